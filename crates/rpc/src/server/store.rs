//! A client's buffers: random handles, invented addresses, a quota.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{Buffer, BufferType, Claim, DeviceError};
use orlop_graph::{AccessKind, TensorDesc};

use super::{Refusal, RpcLimits};
use crate::codec::TensorRecord;

/// Bytes between the addresses of buffers; none is larger.
const FAR: u64 = 1 << 44;

/// Buffers that one client has had, at most: their addresses fit 63 bits.
const MOST: u64 = (1 << 63) / FAR - 1;

/// A buffer and the address that its client believes it has.
pub(super) struct Stored {
    pub(super) buffer: Arc<dyn Buffer>,
    pub(super) base: u64,
    pub(super) device: usize,
}

/// All buffers of a client.
pub(super) struct Store {
    buffers: HashMap<u64, Stored>,
    /// A keyed hash of a counter: handles cannot be guessed.
    keys: RandomState,
    made: u64,
    /// Bytes on each device.
    held: Vec<u64>,
}

impl Store {
    pub(super) fn new(devices: usize) -> Store {
        Store { buffers: HashMap::new(), keys: RandomState::new(), made: 0, held: vec![0; devices] }
    }

    /// A new buffer's handle; `None` if the client may have no more than `left` bytes, or memory cannot be had.
    pub(super) fn allocate(
        &mut self,
        device: usize,
        memory: &Arc<dyn BufferType>,
        bytes: u64,
        left: u64,
        limits: &RpcLimits,
    ) -> Result<Option<u64>, DeviceError> {
        let fits = left >= bytes && bytes < FAR && bytes <= memory.max_bytes();
        if !fits || self.buffers.len() >= limits.buffers || self.made >= MOST {
            return Ok(None);
        }
        let buffer = match Arc::clone(memory).allocate(bytes) {
            Ok(buffer) => buffer,
            Err(DeviceError::OutOfMemory { .. } | DeviceError::TooLarge { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // What another client left there is not this one's to read; host memory comes zeroed.
        if buffer.host().is_none() {
            let claim = Claim::take(&*buffer, AccessKind::Write)?;
            buffer.fill(&claim, 0..bytes, 0)?;
        }
        self.made += 1;
        self.held[device] += bytes;
        let base = self.made * FAR;
        let mut salt = self.made;
        let handle = loop {
            let handle = self.keys.hash_one(salt);
            if handle != 0 && !self.buffers.contains_key(&handle) {
                break handle;
            }
            salt = salt.wrapping_add(MOST);
        };
        self.buffers.insert(handle, Stored { buffer, base, device });
        Ok(Some(handle))
    }

    pub(super) fn free(&mut self, handle: u64) -> Result<Stored, Refusal> {
        let stored = self.buffers.remove(&handle).ok_or(Refusal::Buffer(handle))?;
        self.held[stored.device] -= stored.buffer.bytes();
        Ok(stored)
    }

    pub(super) fn get(&self, handle: u64) -> Result<&Stored, Refusal> {
        self.buffers.get(&handle).ok_or(Refusal::Buffer(handle))
    }

    /// Bytes of a client's quota that its buffers on a device leave.
    pub(super) fn left(&self, device: usize, limits: &RpcLimits) -> u64 {
        limits.bytes.saturating_sub(self.held[device])
    }

    /// Where a tensor lies in its buffer.
    pub(super) fn place(&self, record: &TensorRecord, desc: &TensorDesc) -> Result<u64, Refusal> {
        let stored = self.get(record.buffer)?;
        let outside =
            || Refusal::Outside { tensor: record.name(), address: record.data, bytes: desc.bytes() };
        let offset = record.data.checked_sub(stored.base).ok_or_else(outside)?;
        let end = offset.checked_add(desc.bytes()).ok_or_else(outside)?;
        if end > stored.buffer.bytes() {
            return Err(outside());
        }
        Ok(offset)
    }

    /// A range of a tensor's bytes in its buffer.
    pub(super) fn range(
        &self,
        record: &TensorRecord,
        offset: u64,
        bytes: u64,
    ) -> Result<Range<u64>, Refusal> {
        let desc = record.desc()?;
        let begin = self.place(record, &desc)?;
        let outside =
            Refusal::Outside { tensor: record.name(), address: record.data.saturating_add(offset), bytes };
        match offset.checked_add(bytes) {
            Some(end) if end <= desc.bytes() => Ok(begin + offset..begin + end),
            _ => Err(outside),
        }
    }
}
