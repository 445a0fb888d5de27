use std::sync::Arc;

use orlop_backend::{
    Bindings, Buffer, Device, DeviceError, LowerOptions, Overwrite, Reason, Segment, Slot, Step, StepValue,
    Steps, touched,
};
use orlop_graph::AccessKind::{Read, Write};
use orlop_graph::{DType, Graph, GraphBuilder, NodeId, TensorId};

use crate::fixtures::{Idle, host};

fn lower(graph: &Graph, device: &Idle) -> Result<Steps, DeviceError> {
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let escapes = vec![false; graph.tensors().len()];
    let segment = Segment { graph, nodes: &nodes, buffer_types: &[], escapes: &escapes };
    device.lower(&segment, &LowerOptions { max_threads: 3, ..LowerOptions::default() })
}

fn steps(graph: &Graph) -> Vec<Step> {
    lower(graph, &Idle { name: "idle", refuses: None }).expect("it refuses nothing").steps
}

fn pairs(step: &Step) -> Vec<usize> {
    assert!(step.may_overwrite.iter().all(|pair| pair.write == 0));
    step.may_overwrite.iter().map(|pair| pair.read).collect()
}

#[test]
fn each_node_is_a_step_and_views_are_none() {
    let mut builder = GraphBuilder::new();
    let a = builder.input("a", DType::F32, &[4, 2]);
    let b = builder.input("b", DType::F32, &[8]);
    let flat = builder.reshape(a, &[8]);
    let sum = builder.add(flat, b);
    let turned = builder.reshape(sum, &[2, 4]);
    let turned = builder.transpose(turned);
    let whole = builder.cont(turned);
    let graph = builder.build().unwrap();
    let lowered = lower(&graph, &Idle { name: "idle", refuses: None }).unwrap();
    assert_eq!((lowered.options.max_threads, lowered.temporaries.len()), (3, 0));
    let [add, cont] = &lowered.steps[..] else { panic!("{:?}", lowered.steps) };
    assert_eq!((&*add.kernel, &*cont.kernel), ("add", "cont"));
    assert_eq!(add.reads, [StepValue::Tensor(flat), StepValue::Tensor(b)]);
    assert_eq!(add.writes, [StepValue::Tensor(sum)]);
    assert_eq!(
        (&cont.reads[..], &cont.writes[..]),
        (&[turned].map(StepValue::Tensor)[..], &[whole].map(StepValue::Tensor)[..])
    );
}

#[test]
fn repeated_operands_stay_in_slot_order() {
    let mut builder = GraphBuilder::new();
    let a = builder.input("a", DType::F32, &[4]);
    builder.mul(a, a);
    let steps = steps(&builder.build().unwrap());
    assert_eq!(steps[0].reads, [StepValue::Tensor(a); 2]);
    assert_eq!(steps[0].may_overwrite, [0, 1].map(|read| Overwrite { write: 0, read }));
}

#[test]
fn a_refusal_names_device_op_tensor_and_reason() {
    let mut builder = GraphBuilder::new();
    let a = builder.input("a", DType::F32, &[4]);
    let scaled = builder.scale(a, 2.0);
    let soft = builder.soft_max(scaled, None, 1.0, 0.0);
    builder.name(soft, "weights");
    let graph = builder.build().unwrap();
    let refused = lower(&graph, &Idle { name: "npu", refuses: Some("soft_max") }).unwrap_err();
    assert_eq!(
        refused,
        DeviceError::Unsupported {
            device: "npu".to_owned(),
            op: "soft_max".to_owned(),
            tensor: "weights".to_owned(),
            reason: Reason::Op,
        }
    );
    assert_eq!(refused.to_string(), "npu cannot run soft_max for `weights`: no kernel for this op");
}

#[test]
fn a_result_may_overwrite_operands_of_its_own_layout() {
    let mut builder = GraphBuilder::new();
    let a = builder.input("a", DType::F32, &[4, 4]);
    let row = builder.input("row", DType::F32, &[4]);
    let view = builder.transpose(a);
    builder.add(a, a);
    builder.add(a, row);
    builder.add(view, a);
    builder.soft_max(a, Some(a), 1.0, 0.0);
    builder.mul_mat(a, a);
    let overwrites: Vec<Vec<usize>> = steps(&builder.build().unwrap()).iter().map(pairs).collect();
    assert_eq!(overwrites, [vec![0, 1], vec![0], vec![1], vec![0], vec![]]);
}

#[test]
fn a_write_into_existing_storage_overwrites_no_operand() {
    let mut builder = GraphBuilder::new();
    let a = builder.input("a", DType::F32, &[4, 4]);
    let cache = builder.state("cache", DType::F32, &[4, 4]);
    let index = builder.input("index", DType::I32, &[4]);
    builder.copy(a, cache);
    builder.set_rows(cache, a, index);
    let steps = steps(&builder.build().unwrap());
    assert_eq!(steps.iter().map(|step| pairs(step).len()).collect::<Vec<_>>(), [0, 0]);
}

fn bound(graph: Graph, place: impl Fn(TensorId) -> Option<Arc<dyn Buffer>>) -> Bindings {
    let slot = |id| Some((id, Slot { buffer: place(id)?, offset: 0 }));
    let tensors = graph.tensor_ids().filter_map(slot).collect();
    Bindings { graph, tensors, temporaries: vec![Slot { buffer: host(8), offset: 0 }] }
}

#[test]
fn buffers_touched_are_listed_once_and_for_writing_if_anything_writes() {
    let mut builder = GraphBuilder::new();
    let a = builder.input("a", DType::F32, &[4]);
    let w = builder.weight("w", DType::F32, &[4]);
    let sum = builder.add(a, w);
    builder.mul(sum, w);
    let graph = builder.build().unwrap();
    let steps = lower(&graph, &Idle { name: "idle", refuses: None }).unwrap();
    let [arena, weights] = [host(64), host(64)];
    let bindings = bound(graph, |id| Some(Arc::clone(if id == w { &weights } else { &arena })));
    let touched = touched(&steps, &bindings).unwrap();
    let kinds: Vec<_> = touched.iter().map(|(buffer, kind)| (Arc::ptr_eq(buffer, &arena), *kind)).collect();
    assert_eq!(kinds, [(true, Write), (false, Read)]);
}

#[test]
fn a_value_without_a_place_is_named() {
    let mut builder = GraphBuilder::new();
    let a = builder.input("a", DType::F32, &[4]);
    let b = builder.input("bias", DType::F32, &[4]);
    builder.add(a, b);
    let graph = builder.build().unwrap();
    let steps = lower(&graph, &Idle { name: "idle", refuses: None }).unwrap();
    let buffer = host(64);
    let bindings = bound(graph, |id| (id != b).then(|| Arc::clone(&buffer)));
    let unbound = |value: &str| DeviceError::Unbound { value: value.to_owned() };
    assert_eq!(touched(&steps, &bindings).unwrap_err(), unbound("bias"));
    assert_eq!(bindings.slot(StepValue::Tensor(b)).unwrap_err(), unbound("bias"));
    assert_eq!(bindings.slot(StepValue::Temporary(1)).unwrap_err(), unbound("temporary 1"));
    assert!(bindings.slot(StepValue::Tensor(a)).is_ok() && bindings.slot(StepValue::Temporary(0)).is_ok());
}

#[test]
fn a_write_over_bytes_that_its_step_reads_is_refused() {
    let refused = |from: u64| {
        let mut builder = GraphBuilder::new();
        let base = builder.input("base", DType::F32, &[8]);
        let half =
            |builder: &mut GraphBuilder, offset| builder.view(base, [4, 1, 1, 1], [4, 16, 16, 16], offset);
        let (source, destination) = (half(&mut builder, from), half(&mut builder, 16));
        builder.copy(source, destination);
        let graph = builder.build().unwrap();
        let (nodes, escapes) = (graph.node_ids().collect::<Vec<_>>(), vec![false; graph.tensors().len()]);
        let segment = Segment { graph: &graph, nodes: &nodes, buffer_types: &[], escapes: &escapes };
        segment.refuse_overlaps(&Idle { name: "idle", refuses: None }).err().map(|error| match error {
            DeviceError::Unsupported { reason, .. } => reason,
            other => panic!("{other}"),
        })
    };
    assert_eq!(refused(0), None);
    assert_eq!(refused(4), Some(Reason::Strides { operand: 0 }));
    // Each element goes to where it is.
    assert_eq!(refused(16), None);
}
