//! The reference device as a device: what it accepts, lowers and refuses.

use std::sync::Arc;

use orlop_backend::{
    Bindings, Claims, Device, DeviceError, ForeignBufferType, LowerOptions, Program, Role, RunOptions,
    Segment, Slot, Steps, StoredTensor,
};
use orlop_graph::{AccessKind, DType, Graph, GraphBuilder, NodeId};
use orlop_testkit::{ReferenceDevice, f32_bytes};

/// `x`, its transposition, and the rows of that doubled.
fn doubled() -> Graph {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[2, 2]);
    let transposed = b.transpose(x);
    b.scale(transposed, 2.0);
    b.build().expect("the graph is right")
}

fn lower(device: &ReferenceDevice, graph: &Graph) -> Steps {
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let tensors = graph.tensors().len();
    let (types, escapes) = (vec![None; tensors], vec![true; tensors]);
    let segment = Segment { graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
    device.lower(&segment, &LowerOptions::default()).expect("the device knows these ops")
}

/// One buffer for the input and its view, another for the result.
fn bind(device: &ReferenceDevice, graph: &Graph) -> Bindings {
    let memory = || device.buffer_types(Role::Arena)[0].clone().allocate(16).expect("16 bytes");
    let x = Slot { buffer: memory(), offset: 0 };
    let y = Slot { buffer: memory(), offset: 0 };
    let tensors = graph.tensor_ids().zip([x.clone(), x, y]).collect();
    Bindings { graph: graph.clone(), tensors, temporaries: Vec::new() }
}

fn id(graph: &Graph, index: usize) -> orlop_graph::TensorId {
    graph.tensor_ids().nth(index).expect("a tensor of the graph")
}

fn stored(bindings: &Bindings, index: usize) -> StoredTensor {
    let tensor = &bindings.graph.tensors()[index];
    let slot = bindings.tensors[&id(&bindings.graph, index)].clone();
    StoredTensor::new(tensor.name.as_str(), tensor.desc, slot).expect("buffers are large enough")
}

fn run(device: &ReferenceDevice, program: &Arc<dyn Program>) -> Result<(), DeviceError> {
    let claims = Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind)))?;
    // SAFETY: `submit` asks that no other queue interferes; there is only this one.
    unsafe { device.queue()?.submit(program, &claims, &RunOptions::default()) }
}

#[test]
fn views_are_no_steps() {
    let device = ReferenceDevice::new();
    let steps = lower(&device, &doubled());
    assert_eq!(steps.steps.len(), 1);
    assert_eq!(steps.steps[0].kernel, "scale");
    assert!(steps.temporaries.is_empty());
}

#[test]
fn programs_run_many_times() {
    let device = ReferenceDevice::new();
    let graph = doubled();
    let bindings = bind(&device, &graph);
    let program = device.compile(&lower(&device, &graph), &bindings).unwrap();
    assert_eq!(program.touches().len(), 2);
    for factor in [1.0, 10.0] {
        let x = [1.0, 2.0, 3.0, 4.0].map(|x| x * factor);
        stored(&bindings, 0).set(0, &f32_bytes(&x)).unwrap();
        run(&device, &program).unwrap();
        let mut y = [0; 16];
        stored(&bindings, 2).get(0, &mut y).unwrap();
        assert_eq!(y[..], f32_bytes(&[2.0, 6.0, 4.0, 8.0].map(|y| y * factor)));
    }
}

#[test]
fn results_may_take_their_operands_place() {
    let device = ReferenceDevice::new();
    let graph = doubled();
    let mut bindings = bind(&device, &graph);
    let x = bindings.tensors[&id(&graph, 0)].clone();
    bindings.tensors.insert(id(&graph, 2), x);
    let program = device.compile(&lower(&device, &graph), &bindings).unwrap();
    stored(&bindings, 0).set(0, &f32_bytes(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    run(&device, &program).unwrap();
    let mut y = [0; 16];
    stored(&bindings, 2).get(0, &mut y).unwrap();
    assert_eq!(y[..], f32_bytes(&[2.0, 6.0, 4.0, 8.0]));
}

#[test]
fn runs_without_claims_are_refused() {
    let device = ReferenceDevice::new();
    let graph = doubled();
    let bindings = bind(&device, &graph);
    let program = device.compile(&lower(&device, &graph), &bindings).unwrap();
    let refused = Err(DeviceError::NotClaimed { buffer_type: "reference".to_owned() });
    // All buffers, but only to be read.
    let claims = Claims::take(program.touches().iter().map(|(buffer, _)| (buffer, AccessKind::Read)));
    let mut queue = device.queue().unwrap();
    // SAFETY: as in `run`.
    let result = unsafe { queue.submit(&program, &claims.unwrap(), &RunOptions::default()) };
    assert_eq!(result, refused);
    let none = Claims::take([]).unwrap();
    let (from, to) = (stored(&bindings, 0), stored(&bindings, 2));
    // SAFETY: as in `run`.
    assert_eq!(unsafe { queue.copy(&from, &to, &none) }, refused);
}

#[test]
fn queues_copy_and_their_events_are_done() {
    let device = ReferenceDevice::new();
    let bindings = bind(&device, &doubled());
    let from = stored(&bindings, 0);
    let to = stored(&bindings, 2);
    from.set(0, &f32_bytes(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    let claims =
        Claims::take([(&from.slot().buffer, AccessKind::Read), (&to.slot().buffer, AccessKind::Write)])
            .unwrap();
    let mut queue = device.queue().unwrap();
    // SAFETY: as in `run`.
    unsafe { queue.copy(&from, &to, &claims) }.unwrap();
    let event = queue.record().unwrap();
    assert!(event.is_done());
    queue.wait(&event).unwrap();
    queue.sync().unwrap();
    drop(claims);
    let mut bytes = [0; 16];
    to.get(0, &mut bytes).unwrap();
    assert_eq!(bytes[..], f32_bytes(&[1.0, 2.0, 3.0, 4.0]));
}

#[test]
fn programs_of_another_device_are_refused() {
    let (device, other) = (ReferenceDevice::new(), ReferenceDevice::named("other"));
    let graph = doubled();
    let program = other.compile(&lower(&other, &graph), &bind(&other, &graph)).unwrap();
    let foreign =
        DeviceError::Foreign { what: "a program", owner: "other".to_owned(), device: "reference".to_owned() };
    assert_eq!(run(&device, &program), Err(foreign));
}

#[test]
fn steps_of_another_lowering_are_refused() {
    let device = ReferenceDevice::new();
    let graph = doubled();
    let bindings = bind(&device, &graph);
    let mut fused = lower(&device, &graph);
    fused.steps[0].nodes = graph.node_ids().collect();
    assert!(matches!(device.compile(&fused, &bindings), Err(DeviceError::Foreign { .. })));
    let mut renamed = lower(&device, &graph);
    renamed.steps[0].kernel = "fast_scale".into();
    assert!(matches!(device.compile(&renamed, &bindings), Err(DeviceError::Foreign { .. })));
}

#[test]
fn places_must_be_there_and_large_enough() {
    let device = ReferenceDevice::new();
    let graph = doubled();
    let steps = lower(&device, &graph);
    let mut bindings = bind(&device, &graph);
    bindings.tensors.remove(&id(&graph, 1));
    let missing = DeviceError::Unbound { value: "t1".to_owned() };
    assert_eq!(device.compile(&steps, &bindings).err(), Some(missing));
    let mut bindings = bind(&device, &graph);
    if let Some(slot) = bindings.tensors.get_mut(&id(&graph, 2)) {
        slot.offset = 4;
    }
    let outside = DeviceError::OutOfBounds { tensor: "t2".to_owned(), offset: 4, bytes: 16, available: 16 };
    assert_eq!(device.compile(&steps, &bindings).err(), Some(outside));
}

#[test]
fn operands_may_lie_in_mapped_memory_but_results_may_not() {
    let device = ReferenceDevice::new();
    let graph = doubled();
    let file: Vec<u8> = [vec![0], f32_bytes(&[1.0, 2.0, 3.0, 4.0])].concat();
    let mapped = ForeignBufferType::mapped("mapped").over_bytes(Arc::new(file)).unwrap();
    let mut bindings = bind(&device, &graph);
    for index in [0, 1] {
        bindings.tensors.insert(id(&graph, index), Slot { buffer: Arc::clone(&mapped), offset: 1 });
    }
    let program = device.compile(&lower(&device, &graph), &bindings).unwrap();
    run(&device, &program).unwrap();
    let mut y = [0; 16];
    stored(&bindings, 2).get(0, &mut y).unwrap();
    assert_eq!(y[..], f32_bytes(&[2.0, 6.0, 4.0, 8.0]));
    bindings.tensors.insert(id(&graph, 2), Slot { buffer: mapped, offset: 1 });
    let program = device.compile(&lower(&device, &graph), &bindings).unwrap();
    assert_eq!(run(&device, &program), Err(DeviceError::ReadOnly { buffer_type: "mapped".to_owned() }));
}

#[test]
fn unknown_ops_are_refused_when_lowered() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[1]);
    let y = b.custom("mine", &[x], DType::F32, &[1], &[]);
    b.name(y, "y");
    let graph = b.build().unwrap();
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let segment =
        Segment { graph: &graph, nodes: &nodes, buffer_types: &[None, None], escapes: &[true, true] };
    let error = ReferenceDevice::new().lower(&segment, &LowerOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "reference cannot run mine for `y`: no kernel for this op");
}

#[test]
fn operands_too_large_to_gather_are_an_error() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[1]);
    // One element, read 2^60 times.
    let endless = b.view(x, [1 << 60, 1, 1, 1], [0, 4, 4, 4], 0);
    b.sum(endless);
    let graph = b.build().unwrap();
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let error = orlop_testkit::run_unplanned(&device, &graph, &[(x, f32_bytes(&[1.0]))]).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfMemory { bytes, .. } if bytes == 1 << 62));
}
