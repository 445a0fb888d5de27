//! Runs without a plan.

use std::sync::Arc;

use orlop_backend::{Cancel, Device, DeviceError, LowerOptions, RunOptions};
use orlop_graph::{DType, Glu, GraphBuilder, Op, TensorDesc};
use orlop_testkit::{
    Elements, Interpreter, Observe, OpFailure, ReferenceDevice, UnplannedOptions, compute, f32_bytes,
    run_unplanned, run_unplanned_with,
};

fn device() -> Arc<dyn Device> {
    ReferenceDevice::new()
}

#[test]
fn every_value_is_there_afterwards() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[2]);
    let w = b.weight("w", DType::F32, &[2, 2]);
    let h = b.mul_mat(w, x);
    let y = b.gated_fused(Glu::Relu, h, false);
    b.output(y);
    let graph = b.build().unwrap();
    let feeds = [(x, f32_bytes(&[1.0, 2.0])), (w, f32_bytes(&[1.0, 1.0, 0.0, 2.0]))];
    let outputs = run_unplanned(&device(), &graph, &feeds).unwrap();
    assert_eq!(outputs.f32s(x).unwrap(), [1.0, 2.0]);
    assert_eq!(outputs.f32s(h).unwrap(), [3.0, 4.0]);
    assert_eq!(outputs.f32s(y).unwrap(), [12.0]);
    let options = UnplannedOptions { observe: Observe::Results, ..UnplannedOptions::default() };
    let outputs = run_unplanned_with(&device(), &graph, &feeds, &options).unwrap();
    assert_eq!(outputs.f32s(y).unwrap(), [12.0]);
}

#[test]
fn inputs_must_be_fed_and_states_need_not() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[2]);
    let state = b.state("state", DType::F32, &[2]);
    let sum = b.add(state, x);
    let graph = b.build().unwrap();
    let error = run_unplanned(&device(), &graph, &[]).unwrap_err();
    assert_eq!(error, DeviceError::Unbound { value: "x".to_owned() });
    let outputs = run_unplanned(&device(), &graph, &[(x, f32_bytes(&[1.0, 2.0]))]).unwrap();
    assert_eq!(outputs.f32s(sum).unwrap(), [1.0, 2.0]);
    let short = run_unplanned(&device(), &graph, &[(x, f32_bytes(&[1.0]))]).unwrap_err();
    assert_eq!(short, DeviceError::WrongLength { tensor: "x".to_owned(), expected: 8, given: 4 });
    let stray = run_unplanned(&device(), &graph, &[(sum, f32_bytes(&[1.0, 2.0]))]).unwrap_err();
    assert_eq!(stray, DeviceError::Unbound { value: "t2".to_owned() });
}

#[test]
fn options_reach_the_run() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[1]);
    b.silu(x);
    let graph = b.build().unwrap();
    let feeds = [(x, f32_bytes(&[1.0]))];
    let cancel = Cancel::new();
    cancel.cancel();
    let run = RunOptions { cancel: Some(cancel), ..RunOptions::default() };
    let options = UnplannedOptions { run, ..UnplannedOptions::default() };
    let error = run_unplanned_with(&device(), &graph, &feeds, &options).unwrap_err();
    assert_eq!(error, DeviceError::Cancelled { step: 0, steps: 1 });
    for (threads, fine) in [(0, false), (1, true), (4, true), (5, false)] {
        let run = RunOptions { threads: Some(threads), ..RunOptions::default() };
        let lower = LowerOptions { max_threads: 4, ..LowerOptions::default() };
        let options = UnplannedOptions { lower, run, observe: Observe::Everything };
        let result = run_unplanned_with(&device(), &graph, &feeds, &options);
        let refused = DeviceError::BadThreads { asked: threads, max: 4 };
        assert_eq!(result.err(), (!fine).then_some(refused));
    }
}

#[test]
fn padded_leaves_keep_their_gaps() {
    let mut b = GraphBuilder::new();
    let padded = TensorDesc::strided(DType::F32, [1, 2, 1, 1], [4, 8, 16, 16]);
    let x = b.leaf(orlop_graph::Leaf::Input, "x", padded);
    let y = b.scale(x, 2.0);
    let graph = b.build().unwrap();
    let outputs = run_unplanned(&device(), &graph, &[(x, f32_bytes(&[1.0, 9.0, 3.0]))]).unwrap();
    assert_eq!(outputs.f32s(y).unwrap(), [2.0, 6.0]);
}

#[test]
fn the_interpreter_keeps_states_between_runs() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[1]);
    let state = b.state("state", DType::F32, &[1]);
    let sum = b.add(state, x);
    b.copy(sum, state);
    let mut run = Interpreter::new(&b.build().unwrap()).unwrap();
    run.set(x, &f32_bytes(&[2.0])).unwrap();
    run.run().unwrap();
    run.run().unwrap();
    assert_eq!(run.f32s(state).unwrap(), [4.0]);
    let short = DeviceError::WrongLength { tensor: "x".to_owned(), expected: 4, given: 0 };
    assert_eq!(run.set(x, &[]), Err(short));
    assert_eq!(run.set(sum, &[0; 4]), Err(DeviceError::Unbound { value: "t2".to_owned() }));
}

#[test]
fn compute_refuses_what_it_does_not_know() {
    let desc = |extents: &[u64]| TensorDesc::contiguous(DType::F32, extents).unwrap();
    let x = Elements::new(desc(&[2]), vec![1.0, 2.0]).unwrap();
    let two = std::slice::from_ref(&x);
    assert_eq!(compute(&Op::Sum, two, &desc(&[1])), Ok(vec![3.0]));
    let wrong = OpFailure::Output { descs: Box::new([desc(&[2]), desc(&[1])]) };
    assert_eq!(compute(&Op::Sum, two, &desc(&[2])), Err(wrong));
    assert!(matches!(compute(&Op::Add, two, &desc(&[2])), Err(OpFailure::Operands(_))));
    assert_eq!(compute(&Op::Transpose, two, &desc(&[1, 2])), Err(OpFailure::NotComputed));
}
