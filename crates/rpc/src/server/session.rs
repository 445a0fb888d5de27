//! What one client has on the server, and the answers to its requests.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{Buffer, BufferType, Claim, Device, Role, Slot, StoredTensor, copy};
use orlop_graph::AccessKind;

use super::compute::Compiled;
use super::packed::PackedWeights;
use super::store::Store;
use super::turns::Turns;
use super::{Refusal, RpcLimits};
use crate::codec::{Dialect, ReplyLength, RpcReply, RpcRequest, TensorRecord, reply_length};

pub(super) struct Session<'a> {
    devices: &'a [Arc<dyn Device>],
    limits: &'a RpcLimits,
    dialect: &'a Dialect,
    turns: &'a Turns,
    store: Store,
    packed: PackedWeights,
    /// The last graph of each device.
    graphs: HashMap<u32, Compiled>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        devices: &'a [Arc<dyn Device>],
        limits: &'a RpcLimits,
        dialect: &'a Dialect,
        turns: &'a Turns,
    ) -> Session<'a> {
        let store = Store::new(devices.len());
        Session {
            devices,
            limits,
            dialect,
            turns,
            store,
            packed: PackedWeights::default(),
            graphs: HashMap::new(),
        }
    }

    /// Does what is asked, and appends the answer, if there is one.
    pub(super) fn answer(&mut self, request: &RpcRequest<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let reply = match request {
            RpcRequest::DeviceCount => RpcReply::Count(self.devices.len() as u32),
            RpcRequest::Alignment { device } => RpcReply::Number(self.memory(*device)?.alignment()),
            RpcRequest::MaxSize { device } => {
                let most = self.memory(*device)?.max_bytes();
                RpcReply::Number(most)
            }
            RpcRequest::DeviceMemory { device } => {
                let index = self.index(*device)?;
                let memory = self.devices[index].facts().memory;
                let (free, total) = memory.map_or((u64::MAX, u64::MAX), |memory| (memory.free, memory.total));
                let left = self.left(index);
                RpcReply::Pair(free.min(left), total.min(self.limits.bytes))
            }
            RpcRequest::AllocBuffer { device, bytes } => {
                let (index, memory) = (self.index(*device)?, Arc::clone(self.memory(*device)?));
                let handle = self.store.allocate(index, &memory, *bytes, self.left(index), self.limits)?;
                handle.map_or(RpcReply::Pair(0, 0), |handle| RpcReply::Pair(handle, *bytes))
            }
            RpcRequest::BufferBase { buffer } => RpcReply::Number(self.store.get(*buffer)?.base),
            RpcRequest::FreeBuffer { buffer } => {
                let freed = self.store.free(*buffer)?;
                self.graphs.retain(|_, graph| !graph.touches(&*freed.buffer));
                self.packed.forget(*buffer);
                RpcReply::Done
            }
            RpcRequest::ClearBuffer { buffer, value } => {
                let buffer = &*self.store.get(*buffer)?.buffer;
                let claim = Claim::take(buffer, AccessKind::Write)?;
                buffer.fill(&claim, 0..buffer.bytes(), *value)?;
                RpcReply::Done
            }
            // The conversation greets, and passes data piece by piece.
            RpcRequest::Hello { .. } | RpcRequest::SetTensor { .. } | RpcRequest::GetTensor { .. } => {
                return Ok(());
            }
            RpcRequest::SetTensorHash { .. } => RpcReply::Flag(false),
            RpcRequest::MemsetTensor { tensor, offset, bytes, value } => {
                let place = self.data_place(tensor, *offset, *bytes)?;
                let buffer = &*self.store.get(tensor.buffer)?.buffer;
                let claim = Claim::take(buffer, AccessKind::Write)?;
                buffer.fill(&claim, place, *value)?;
                RpcReply::Done
            }
            RpcRequest::CopyTensor { from, to } => RpcReply::Flag(self.copy(from, to)?),
            RpcRequest::InitTensor { tensor } => {
                self.store.place(tensor, &tensor.desc()?)?;
                RpcReply::Done
            }
            RpcRequest::AllocSize { device, tensor, .. } => {
                RpcReply::Number(self.memory(*device)?.alloc_bytes(&tensor.desc()?))
            }
            RpcRequest::Compute(message) => {
                let index = self.index(message.device)?;
                // Its scratch is given back before the next graph's is counted.
                self.graphs.remove(&message.device);
                let left = self.left(index);
                let Session { devices, store, packed, dialect, limits, .. } = self;
                let device = &devices[index];
                let graph = Compiled::new(device, index, store, message, dialect.ops, limits, packed, left)?;
                graph.run(self.turns)?;
                self.graphs.insert(message.device, graph);
                RpcReply::Done
            }
            RpcRequest::Recompute { device } => {
                self.index(*device)?;
                let graph = self.graphs.get(device).ok_or(Refusal::NoGraph(*device))?;
                graph.run(self.turns)?;
                RpcReply::Done
            }
        };
        if reply_length(self.dialect, request.command())? != ReplyLength::Nothing {
            reply.write(self.dialect, out);
        }
        Ok(())
    }

    fn index(&self, device: u32) -> Result<usize, Refusal> {
        let index = device as usize;
        if index < self.devices.len() {
            return Ok(index);
        }
        Err(Refusal::Device { given: device, devices: self.devices.len() })
    }

    /// Bytes that the client may still have on a device: copies of its weights count, and the scratch of its graph.
    fn left(&self, index: usize) -> u64 {
        let copies = self.packed.bytes(&self.store, index);
        let scratch = self.graphs.get(&(index as u32)).map_or(0, Compiled::scratch_bytes);
        self.store.left(index, self.limits).saturating_sub(copies).saturating_sub(scratch)
    }

    fn memory(&self, device: u32) -> Result<&Arc<dyn BufferType>, Refusal> {
        let types = self.devices[self.index(device)?].buffer_types(Role::Arena);
        types.first().ok_or(Refusal::Device { given: device, devices: self.devices.len() })
    }

    /// Where bytes of a tensor lie in its buffer.
    pub(super) fn data_place(
        &self,
        tensor: &TensorRecord,
        offset: u64,
        bytes: u64,
    ) -> Result<Range<u64>, Refusal> {
        self.store.range(tensor, offset, bytes)
    }

    /// Writes bytes that lie in a buffer.
    pub(super) fn write(&self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let buffer = &*self.store.get(handle)?.buffer;
        let claim = Claim::take(buffer, AccessKind::Write)?;
        Ok(buffer.write(&claim, offset, bytes)?)
    }

    /// Reads bytes that lie in a buffer.
    pub(super) fn read(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<(), Refusal> {
        let buffer: &dyn Buffer = &*self.store.get(handle)?.buffer;
        let claim = Claim::take(buffer, AccessKind::Read)?;
        Ok(buffer.read(&claim, offset, bytes)?)
    }

    /// Copies between equal layouts on one device; `false` if they are not.
    fn copy(&self, from: &TensorRecord, to: &TensorRecord) -> Result<bool, Refusal> {
        let (source, target) = (from.desc()?, to.desc()?);
        let places = [self.store.place(from, &source)?, self.store.place(to, &target)?];
        if source != target || !source.is_contiguous() {
            return Ok(false);
        }
        let stored = |record: &TensorRecord, offset| {
            let buffer = Arc::clone(&self.store.get(record.buffer)?.buffer);
            Ok::<_, Refusal>(StoredTensor::new(record.name(), source, Slot { buffer, offset })?)
        };
        copy(&stored(from, places[0])?, &stored(to, places[1])?)?;
        Ok(true)
    }
}
