//! A machine: devices in order of preference, with the memory of their results and what they say of themselves.

use std::sync::Arc;

use orlop_backend::{
    Buffer, BufferType, Device, DeviceFacts, MemoryLayout, NodeQuery, Operand, Role, StoredTensor, Support,
    same_type,
};
use orlop_graph::{Graph, NodeId, TensorDesc, TensorId};

use crate::{DeviceSpeeds, Error, MachineFacts};

/// The devices that a graph is spread over, most preferred first.
#[derive(Clone, Debug)]
pub struct Machine {
    devices: Vec<Arc<dyn Device>>,
    arenas: Vec<Arc<dyn BufferType>>,
    facts: Vec<DeviceFacts>,
    speeds: Vec<DeviceSpeeds>,
}

/// A device of a machine; prints as `d0`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceId(pub(crate) usize);

impl DeviceId {
    /// Position among the machine's devices.
    pub fn index(self) -> usize {
        self.0
    }
}

impl std::fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "d{}", self.0)
    }
}

impl Machine {
    /// A machine of these devices, most preferred first.
    ///
    /// # Errors
    /// [`Error::NoDevices`], [`Error::DuplicateDevice`], [`Error::NoArena`].
    pub fn new(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<Machine, Error> {
        let devices: Vec<Arc<dyn Device>> = devices.into_iter().collect();
        let mut arenas = Vec::with_capacity(devices.len());
        for (index, device) in devices.iter().enumerate() {
            if devices[..index].iter().any(|other| other.name() == device.name()) {
                return Err(Error::DuplicateDevice(device.name().to_owned()));
            }
            let arena = device.buffer_types(Role::Arena).first();
            arenas
                .push(Arc::clone(arena.ok_or_else(|| Error::NoArena { device: device.name().to_owned() })?));
        }
        if devices.is_empty() {
            return Err(Error::NoDevices);
        }
        let facts: Vec<DeviceFacts> = devices.iter().map(|device| device.facts()).collect();
        let speeds = facts.iter().map(DeviceSpeeds::stated).collect();
        Ok(Machine { devices, arenas, facts, speeds })
    }

    /// All devices, most preferred first.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// A device.
    ///
    /// # Panics
    /// If the device is another machine's and out of range here.
    pub fn device(&self, ix: DeviceId) -> &Arc<dyn Device> {
        &self.devices[ix.0]
    }

    /// A device's name.
    ///
    /// # Panics
    /// If the device is another machine's and out of range here.
    pub fn name(&self, ix: DeviceId) -> &str {
        self.devices[ix.0].name()
    }

    /// The memory that a device's results go to.
    ///
    /// # Panics
    /// If the device is another machine's and out of range here.
    pub fn arena(&self, ix: DeviceId) -> &Arc<dyn BufferType> {
        &self.arenas[ix.0]
    }

    /// What a device said of itself when the machine was made.
    ///
    /// # Panics
    /// If the device is another machine's and out of range here.
    pub fn facts(&self, ix: DeviceId) -> &DeviceFacts {
        &self.facts[ix.0]
    }

    /// What a device does in a second: as it states it, or as it was measured.
    ///
    /// # Panics
    /// If the device is another machine's and out of range here.
    pub fn speeds(&self, ix: DeviceId) -> &DeviceSpeeds {
        &self.speeds[ix.0]
    }

    /// The same machine, with a device's speeds as they were measured ([`crate::calibrate`]).
    ///
    /// # Errors
    /// [`Error::UnknownDevice`].
    pub fn calibrated(mut self, ix: DeviceId, speeds: DeviceSpeeds) -> Result<Machine, Error> {
        self.check_device(ix)?;
        self.speeds[ix.0] = speeds;
        Ok(self)
    }

    /// All devices' positions.
    pub fn indices(&self) -> impl DoubleEndedIterator<Item = DeviceId> + ExactSizeIterator + use<> {
        (0..self.devices.len()).map(DeviceId)
    }

    /// The device with a name.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] with the names there are.
    pub fn find(&self, name: &str) -> Result<DeviceId, Error> {
        let position = self.devices.iter().position(|device| device.name() == name);
        position.map(DeviceId).ok_or_else(|| Error::UnknownDevice {
            name: name.to_owned(),
            known: self.devices.iter().map(|device| device.name().to_owned()).collect(),
        })
    }

    /// The device that a stored tensor lies on: the most preferred one that has its kind of memory. `None` for memory of
    /// no device of this machine, such as another machine's.
    pub fn device_of(&self, tensor: &StoredTensor) -> Option<DeviceId> {
        self.device_of_buffer(&*tensor.slot().buffer)
    }

    /// The device that a buffer lies on; see [`Machine::device_of`].
    pub fn device_of_buffer(&self, buffer: &dyn Buffer) -> Option<DeviceId> {
        let memory = buffer.buffer_type();
        let arena = self.indices().find(|device| same_type(self.arena(*device), memory));
        arena.or_else(|| self.indices().find(|device| has_memory(&**self.device(*device), memory)))
    }

    /// Whether a device can run a node if everything is brought to it.
    pub fn can_run(&self, ix: DeviceId, graph: &Graph, node: NodeId) -> bool {
        self.refusal(ix, graph, node).is_none()
    }
}

impl MachineFacts for Machine {
    type Memory = Arc<dyn BufferType>;

    fn device_count(&self) -> usize {
        self.devices.len()
    }

    fn name(&self, device: DeviceId) -> &str {
        Machine::name(self, device)
    }

    fn speeds(&self, device: DeviceId) -> &DeviceSpeeds {
        Machine::speeds(self, device)
    }

    fn arena(&self, device: DeviceId) -> &Arc<dyn BufferType> {
        Machine::arena(self, device)
    }

    fn is_same_memory(&self, one: &Arc<dyn BufferType>, other: &Arc<dyn BufferType>) -> bool {
        same_type(one, other)
    }

    fn memory_name(&self, memory: &Arc<dyn BufferType>) -> String {
        memory.name().to_owned()
    }

    fn is_private(&self, memory: &Arc<dyn BufferType>) -> bool {
        memory.layout() == MemoryLayout::Private
    }

    fn alloc_bytes(&self, memory: &Arc<dyn BufferType>, desc: &TensorDesc) -> u64 {
        memory.alloc_bytes(desc)
    }

    fn supports<'a>(
        &'a self,
        device: DeviceId,
        graph: &Graph,
        node: NodeId,
        lies: &dyn Fn(TensorId) -> Option<&'a Arc<dyn BufferType>>,
    ) -> Support {
        let node = graph.node(node);
        let own = Machine::arena(self, device);
        let operand = |id: &TensorId| Operand {
            desc: &graph.tensor(*id).desc,
            buffer_type: Some(lies(*id).unwrap_or(own)),
        };
        let operands: Vec<Operand<'_>> = node.inputs.iter().chain([&node.output]).map(operand).collect();
        let (output, inputs) = operands.split_last().expect("every node has a result");
        self.device(device).supports(&NodeQuery { op: &node.op, inputs, output: *output })
    }
}

/// Whether a kind of memory is one of a device's.
pub(crate) fn has_memory(device: &dyn Device, memory: &Arc<dyn BufferType>) -> bool {
    let roles = [Role::Arena, Role::Weight];
    roles.iter().flat_map(|role| device.buffer_types(*role)).any(|kind| same_type(kind, memory))
}
