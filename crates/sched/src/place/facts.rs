//! What placement and schedules know about a machine.

use orlop_backend::{Reason, Support};
use orlop_graph::{Graph, NodeId, TensorDesc, TensorId};

use crate::{DeviceId, DeviceSpeeds, Error};

/// The facts of a machine that placement and schedules are made from: its devices in order of preference, their speeds
/// and links, the kinds of memory, and what each device supports. No device is touched.
///
/// [`crate::Machine`] has the facts of its devices, with buffer types as kinds of memory. Others can answer from a table,
/// with numbers as kinds of memory.
pub trait MachineFacts {
    /// A kind of memory.
    type Memory: Clone;

    /// How many devices there are.
    fn device_count(&self) -> usize;

    /// A device's name.
    fn name(&self, device: DeviceId) -> &str;

    /// What a device does in a second.
    fn speeds(&self, device: DeviceId) -> &DeviceSpeeds;

    /// The memory that a device's results go to.
    fn arena(&self, device: DeviceId) -> &Self::Memory;

    /// Whether two kinds of memory are the same.
    fn is_same_memory(&self, one: &Self::Memory, other: &Self::Memory) -> bool;

    /// A name for people.
    fn memory_name(&self, memory: &Self::Memory) -> String;

    /// Whether tensors there have a layout of the device's own, and cannot be copied elsewhere.
    fn is_private(&self, memory: &Self::Memory) -> bool;

    /// Bytes that a tensor takes there.
    fn alloc_bytes(&self, memory: &Self::Memory, desc: &TensorDesc) -> u64;

    /// Whether a device runs a node if operands lie where `lies` says, and everything else in the device's arena.
    fn supports<'a>(
        &'a self,
        device: DeviceId,
        graph: &Graph,
        node: NodeId,
        lies: &dyn Fn(TensorId) -> Option<&'a Self::Memory>,
    ) -> Support;

    /// All devices, most preferred first.
    fn device_ids(&self) -> impl DoubleEndedIterator<Item = DeviceId> + ExactSizeIterator + use<Self> {
        (0..self.device_count()).map(DeviceId)
    }

    /// Whether results of two devices go to the same memory.
    fn shares_arena(&self, one: DeviceId, other: DeviceId) -> bool {
        one == other || self.is_same_memory(self.arena(one), self.arena(other))
    }

    /// Why a device refuses a node whose operands would all be brought to it.
    fn refusal(&self, device: DeviceId, graph: &Graph, node: NodeId) -> Option<Reason> {
        match self.supports(device, graph, node, &|_| None) {
            Support::Yes { .. } => None,
            Support::No(reason) => Some(reason),
        }
    }

    /// Checks that a device is one of this machine's.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] with the names there are.
    fn check_device(&self, device: DeviceId) -> Result<(), Error> {
        if device.index() < self.device_count() {
            return Ok(());
        }
        Err(Error::UnknownDevice {
            name: format!("{device:?}"),
            known: self.device_ids().map(|device| self.name(device).to_owned()).collect(),
        })
    }
}
