//! A program of one step with its memory, and an event that passes when it is told to.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_backend::{
    Bindings, BufferType, Claims, Device, DeviceError, Event, LowerOptions, Program, Queue, Role, RunOptions,
    Segment, Slot, StoredTensor,
};
use orlop_graph::{AccessKind, DType, Graph, GraphBuilder, NodeId};
use orlop_testkit::devices::{TestDevice, TestDeviceBuilder};
use orlop_testkit::{ReferenceDevice, f32_bytes, f32s};

pub(crate) fn builder(name: &str) -> TestDeviceBuilder {
    TestDevice::builder(ReferenceDevice::new()).name(name)
}

pub(crate) const X: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
pub(crate) const DOUBLED: [f32; 4] = [2.0, 4.0, 6.0, 8.0];

/// `x` doubled.
pub(crate) fn doubled() -> Graph {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    b.scale(x, 2.0);
    b.build().expect("a graph")
}

pub(crate) fn arena(device: &TestDevice) -> &Arc<dyn BufferType> {
    &device.buffer_types(Role::Arena)[0]
}

/// Four floats in new memory.
pub(crate) fn floats(buffer_type: &Arc<dyn BufferType>) -> StoredTensor {
    let desc = orlop_graph::TensorDesc::contiguous(DType::F32, &[4]).expect("a description");
    let buffer = Arc::clone(buffer_type).allocate(16).expect("16 bytes");
    StoredTensor::new("floats", desc, Slot { buffer, offset: 0 }).expect("it fits")
}

pub(crate) fn values(stored: &StoredTensor) -> Result<Vec<f32>, DeviceError> {
    let mut bytes = [0; 16];
    stored.get(0, &mut bytes)?;
    Ok(f32s(&bytes))
}

/// A program that doubles, at two places. `x` is set.
pub(crate) struct Rig {
    pub(crate) x: StoredTensor,
    pub(crate) y: StoredTensor,
    pub(crate) program: Arc<dyn Program>,
}

impl Rig {
    pub(crate) fn new(device: &TestDevice) -> Rig {
        let (x, y) = (floats(arena(device)), floats(arena(device)));
        x.set(0, &f32_bytes(&X)).expect("no other claim is there");
        let program = compile(device, &x, &y).expect("a scale");
        Rig { x, y, program }
    }
}

/// Lowers the doubling on a device and compiles it at two places.
pub(crate) fn compile(
    device: &TestDevice,
    x: &StoredTensor,
    y: &StoredTensor,
) -> Result<Arc<dyn Program>, DeviceError> {
    let graph = doubled();
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let buffer_types = [x, y].map(|stored| Some(Arc::clone(stored.slot().buffer.buffer_type())));
    let segment =
        Segment { graph: &graph, nodes: &nodes, buffer_types: &buffer_types, escapes: &[true, true] };
    let steps = device.lower(&segment, &LowerOptions::default())?;
    let tensors = graph.tensor_ids().zip([x.slot().clone(), y.slot().clone()]).collect();
    device.compile(&steps, &Bindings { graph, tensors, temporaries: Vec::new() })
}

/// Claims to write all of these.
pub(crate) fn claims(stored: &[&StoredTensor]) -> Claims {
    let wanted = stored.iter().map(|stored| (&stored.slot().buffer, AccessKind::Write));
    Claims::take(wanted).expect("no other claim is there")
}

pub(crate) fn submit(queue: &mut dyn Queue, rig: &Rig, claims: &Claims) -> Result<(), DeviceError> {
    // SAFETY: tests order what they give to several queues by events.
    unsafe { queue.submit(&rig.program, claims, &RunOptions::default()) }
}

pub(crate) fn copy(
    queue: &mut dyn Queue,
    from: &StoredTensor,
    to: &StoredTensor,
    claims: &Claims,
) -> Result<(), DeviceError> {
    // SAFETY: as in `submit`.
    unsafe { queue.copy(from, to, claims) }
}

/// An event of no device's, which passes when it is told to.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn down() -> (Arc<Flag>, Arc<dyn Event>) {
        let flag = Arc::new(Flag::default());
        (Arc::clone(&flag), flag)
    }

    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Event for Flag {
    fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        while !self.is_done() {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
