//! Devices and tensors that tests share.

use std::sync::{Arc, Mutex};

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{
    BufferType, Device, DeviceError, LowerOptions, NodeQuery, Reason, Role, RunOptions, Segment, Steps,
    StoredTensor, Support, same_type,
};
use orlop_graph::{Graph, TensorId};
use orlop_sched::{Machine, PlanId, Session};
use orlop_testkit::devices::{TestDevice, TestDeviceBuilder};
use orlop_testkit::{DeviceHooks, ReferenceDevice, f32_bytes, f32s};

/// A device to be, with memory of its own that starts out full of garbage.
pub(crate) fn private(name: &str) -> TestDeviceBuilder {
    TestDevice::builder(ReferenceDevice::new()).name(name).fresh_bytes(0xff)
}

pub(crate) fn machine(devices: &[Arc<TestDevice>]) -> Machine {
    Machine::new(devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>)).unwrap()
}

/// `g` and `c`, in this order of preference, each with memory of its own.
pub(crate) fn two() -> ([Arc<TestDevice>; 2], Machine) {
    let devices = [private("g").build(), private("c").build()];
    let machine = machine(&devices);
    (devices, machine)
}

pub(crate) fn memory_of(device: &dyn Device) -> Arc<dyn BufferType> {
    Arc::clone(&device.buffer_types(Role::Weight)[0])
}

/// A leaf's memory on a device, with contents.
pub(crate) fn stored(device: &dyn Device, graph: &Graph, leaf: TensorId, values: &[f32]) -> StoredTensor {
    let tensor = graph.tensor(leaf);
    let set = [SetTensor::new(tensor.name.as_str(), tensor.desc)];
    let set = TensorSet::allocate(&memory_of(device), &set).unwrap();
    set.tensors()[0].set(0, &f32_bytes(values)).unwrap();
    set.tensors()[0].clone()
}

pub(crate) fn externals(given: &[(TensorId, StoredTensor)]) -> Externals {
    let mut externals = Externals::new();
    for (leaf, tensor) in given {
        externals.insert(*leaf, tensor.clone());
    }
    externals
}

pub(crate) fn set(session: &mut Session, plan: PlanId, input: TensorId, values: &[f32]) {
    session.set(plan, input, &f32_bytes(values)).unwrap();
}

pub(crate) fn run(session: &mut Session, plan: PlanId) {
    session.run(plan, &RunOptions::default()).unwrap();
}

pub(crate) fn get(session: &Session, plan: PlanId, output: TensorId, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * count];
    session.get(plan, output, &mut bytes).unwrap();
    f32s(&bytes)
}

/// Another name for a device, which shares its memory and lacks some of its ops.
#[derive(Debug)]
pub(crate) struct Twin {
    pub(crate) name: &'static str,
    pub(crate) without: &'static [&'static str],
    /// Memory of its own instead.
    pub(crate) memory: Option<[Arc<dyn BufferType>; 1]>,
    /// What it was told not to fuse away, by all that it lowered.
    pub(crate) escaped: Mutex<Vec<TensorId>>,
}

impl Twin {
    pub(crate) fn new(name: &'static str) -> Twin {
        Twin { name, without: &[], memory: None, escaped: Mutex::default() }
    }
}

impl DeviceHooks for Twin {
    fn name<'a>(&'a self, _: &'a dyn Device) -> &'a str {
        self.name
    }

    fn buffer_types<'a>(&'a self, inner: &'a dyn Device, role: Role) -> &'a [Arc<dyn BufferType>] {
        self.memory.as_ref().map_or_else(|| inner.buffer_types(role), |own| &own[..])
    }

    fn supports(&self, inner: &dyn Device, node: &NodeQuery<'_>) -> Support {
        if self.without.contains(&node.op.name()) {
            return Support::No(Reason::Op);
        }
        let types = node.inputs.iter().filter_map(|operand| operand.buffer_type).enumerate();
        let strange = |(_, found): &(usize, &Arc<dyn BufferType>)| {
            self.memory.as_ref().is_some_and(|[own]| !same_type(found, own))
        };
        match types.into_iter().find(strange) {
            Some((operand, found)) => {
                Support::No(Reason::BufferType { operand, buffer_type: found.name().to_owned() })
            }
            None => inner.supports(node),
        }
    }

    fn lower(
        &self,
        inner: &dyn Device,
        segment: &Segment<'_>,
        options: &LowerOptions,
    ) -> Result<Steps, DeviceError> {
        let escapes = segment.graph.tensor_ids().filter(|id| segment.escapes[id.index()]);
        self.escaped.lock().unwrap().extend(escapes);
        inner.lower(segment, options)
    }
}
