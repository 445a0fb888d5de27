//! Memory of a server's device.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlop_backend::{Buffer, BufferType, Claim, DeviceError, Gate};
use orlop_graph::{AccessKind, DType, TensorDesc};

use super::endpoint::Endpoint;
use super::known::Known;
use crate::codec::{RpcRequest, TensorRecord};

/// Data goes in pieces of this size: a server holds a whole message in memory.
const MESSAGE_BYTES: usize = 16 << 20;

/// The one kind of memory of a device.
#[derive(Debug)]
pub(super) struct RpcMemory {
    pub(super) name: String,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) device: u32,
    pub(super) alignment: u64,
    pub(super) max_bytes: u64,
    /// Bytes that are allocated.
    pub(super) held: Arc<AtomicU64>,
}

impl BufferType for RpcMemory {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        if bytes > self.max_bytes {
            let buffer_type = self.name.clone();
            return Err(DeviceError::TooLarge { buffer_type, bytes, max: self.max_bytes });
        }
        let (mut handle, mut base) = (0, 0);
        if bytes > 0 {
            let endpoint = &self.endpoint;
            let request = RpcRequest::AllocBuffer { device: self.device, bytes };
            let given;
            (handle, given) = endpoint.ask_pair(&request)?;
            if handle == 0 || given < bytes {
                return Err(DeviceError::OutOfMemory { buffer_type: self.name.clone(), bytes });
            }
            base = endpoint.ask_number(&RpcRequest::BufferBase { buffer: handle })?;
            if base.checked_add(bytes).is_none() {
                return Err(endpoint.lose(format!("a buffer of {bytes} bytes at {base:#x}")));
            }
            // Rows that were never written must not hold NaN: attention multiplies them by 0.
            endpoint.give(&RpcRequest::ClearBuffer { buffer: handle, value: 0 })?;
        }
        self.held.fetch_add(bytes, Ordering::AcqRel);
        let (endpoint, held) = (Arc::clone(&self.endpoint), Arc::clone(&self.held));
        Ok(Arc::new(RpcBuffer {
            buffer_type: self,
            endpoint,
            held,
            gate: Gate::new(),
            bytes,
            handle,
            base,
            known: Mutex::default(),
        }))
    }
}

/// Memory on a server. It is freed when this is dropped.
pub(super) struct RpcBuffer {
    buffer_type: Arc<dyn BufferType>,
    pub(super) endpoint: Arc<Endpoint>,
    held: Arc<AtomicU64>,
    gate: Arc<Gate>,
    bytes: u64,
    pub(super) handle: u64,
    pub(super) base: u64,
    known: Mutex<Known>,
}

impl RpcBuffer {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A range as a tensor of bytes.
    fn record(&self, offset: u64, bytes: u64) -> Result<TensorRecord, DeviceError> {
        let desc = TensorDesc::contiguous(DType::I8, &[bytes]).ok();
        let record = desc.and_then(|desc| TensorRecord::leaf(1, &desc));
        let record = record.ok_or_else(|| self.outside(offset, bytes))?;
        Ok(TensorRecord { buffer: self.handle, data: self.base + offset, ..record })
    }

    fn outside(&self, offset: u64, bytes: u64) -> DeviceError {
        let tensor = self.buffer_type.name().to_owned();
        DeviceError::OutOfBounds { tensor, offset, bytes, available: self.bytes }
    }

    fn check(&self, claim: &Claim, kind: AccessKind, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        if !claim.allows(self, kind) {
            return Err(DeviceError::NotClaimed { buffer_type: self.buffer_type.name().to_owned() });
        }
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(self.outside(offset, bytes));
        }
        self.endpoint.check()
    }

    /// Writes a range that lies in the buffer.
    pub(super) fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = offset..offset + bytes.len() as u64;
        let mut known = self.known();
        if known.get(&range) == Some(bytes) {
            return Ok(());
        }
        known.forget(&range);
        for (index, piece) in bytes.chunks(MESSAGE_BYTES).enumerate() {
            let at = offset + (index * MESSAGE_BYTES) as u64;
            self.endpoint.give_data(self.record(at, piece.len() as u64)?, 0, piece)?;
        }
        known.note(offset, bytes);
        Ok(())
    }

    /// Reads a range that lies in the buffer.
    pub(super) fn fetch(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(known) = self.known().get(&(offset..offset + bytes.len() as u64)) {
            bytes.copy_from_slice(known);
            return Ok(());
        }
        for (index, piece) in bytes.chunks_mut(1 << 30).enumerate() {
            let (at, length) = (offset + ((index as u64) << 30), piece.len() as u64);
            let tensor = Box::new(self.record(at, length)?);
            self.endpoint.ask(&RpcRequest::GetTensor { tensor, offset: 0, bytes: length }, piece)?;
        }
        Ok(())
    }
}

impl Drop for RpcBuffer {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::AcqRel);
        if self.handle != 0 {
            // With a lost connection, the server has freed it already.
            let _ = self.endpoint.give(&RpcRequest::FreeBuffer { buffer: self.handle });
        }
    }
}

#[allow(unsafe_code)]
mod contract {
    use super::*;

    // SAFETY: `Buffer` asks for the truth about memory that `host` reports: it reports none.
    unsafe impl Buffer for RpcBuffer {
        fn buffer_type(&self) -> &Arc<dyn BufferType> {
            &self.buffer_type
        }

        fn bytes(&self) -> u64 {
            self.bytes
        }

        fn gate(&self) -> &Arc<Gate> {
            &self.gate
        }

        fn write(&self, claim: &Claim, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
            self.check(claim, AccessKind::Write, offset, bytes.len() as u64)?;
            self.put(offset, bytes)
        }

        fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
            self.check(claim, AccessKind::Read, offset, bytes.len() as u64)?;
            self.fetch(offset, bytes)
        }

        fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError> {
            let bytes = range.end.saturating_sub(range.start);
            self.check(claim, AccessKind::Write, range.start, bytes)?;
            if bytes == 0 {
                return Ok(());
            }
            let mut known = self.known();
            known.forget(&range);
            if range == (0..self.bytes) {
                return self.endpoint.give(&RpcRequest::ClearBuffer { buffer: self.handle, value });
            }
            for start in range.clone().step_by(MESSAGE_BYTES) {
                let bytes = (range.end - start).min(MESSAGE_BYTES as u64);
                let tensor = self.record(start, bytes)?;
                if self.endpoint.dialect.memset {
                    let tensor = Box::new(tensor);
                    self.endpoint.give(&RpcRequest::MemsetTensor { tensor, offset: 0, bytes, value })?;
                } else {
                    self.endpoint.give_data(tensor, 0, &vec![value; bytes as usize])?;
                }
            }
            Ok(())
        }

        fn as_any(&self) -> Option<&dyn Any> {
            Some(self)
        }
    }
}

impl fmt::Debug for RpcBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes, self.buffer_type.name())
    }
}
