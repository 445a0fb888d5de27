//! Inputs and results as Rust numbers.

use orlop_alloc::{Error as AllocError, Externals};
use orlop_backend::{DeviceError, RunOptions};
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};
use orlop_sched::{Error, Session, SessionOptions};

use crate::open_machine;

/// `y = w x`, with a 2×3 matrix.
fn product() -> (Graph, TensorId, TensorId) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[2]);
    let w = b.weight("w", DType::F32, &[2, 3]);
    let y = b.mul_mat(w, x);
    b.output(y);
    (b.build().unwrap(), x, y)
}

const W: [f32; 6] = [1.0, 2.0, -1.0, 1.0, 0.5, -4.0];

#[test]
fn floats_go_in_and_come_out() {
    let (graph, x, y) = product();
    let mut session = Session::new(open_machine(1), SessionOptions::default()).unwrap();
    let weights = session.upload(&graph, &[("w", &W)]).unwrap();
    let plan = session.prepare(&graph, &weights).unwrap();
    session.set_f32(plan, x, &[3.0, 1.0]).unwrap();
    session.run(plan, &RunOptions::default()).unwrap();
    assert_eq!(session.get_f32(plan, y).unwrap(), [5.0, -2.0, -2.5]);
}

#[test]
fn one_call_sets_runs_and_reads() {
    let (graph, x, y) = product();
    let mut session = Session::new(open_machine(1), SessionOptions::default()).unwrap();
    let weights = session.upload(&graph, &[("w", &W)]).unwrap();
    let plan = session.prepare(&graph, &weights).unwrap();
    assert_eq!(session.run_f32(plan, &[(x, &[3.0, 1.0])], y).unwrap(), [5.0, -2.0, -2.5]);
    assert!(session.run_f32(plan, &[], y).is_err(), "an input is set for each run");
    assert!(session.run_f32(plan, &[(x, &[3.0])], y).is_err());
}

#[test]
fn numbers_of_another_type_or_length_are_refused_and_change_nothing() {
    let (graph, x, y) = product();
    let mut session = Session::new(open_machine(1), SessionOptions::default()).unwrap();
    let weights = session.upload(&graph, &[("w", &W)]).unwrap();
    let plan = session.prepare(&graph, &weights).unwrap();
    session.set_f32(plan, x, &[3.0, 1.0]).unwrap();
    let wrong = session.set_i32(plan, x, &[3, 1]).unwrap_err();
    let Some(DeviceError::WrongType { tensor, expected, given }) = wrong.device_error() else {
        panic!("{wrong}")
    };
    assert_eq!((tensor.as_str(), *expected, *given), ("x", DType::F32, DType::I32));
    let short = session.set_f32(plan, x, &[3.0]).unwrap_err();
    assert!(
        matches!(short.device_error(), Some(DeviceError::WrongLength { expected: 8, given: 4, .. })),
        "{short}"
    );
    session.run(plan, &RunOptions::default()).unwrap();
    assert!(session.get_i32(plan, y).is_err());
    assert_eq!(session.get_f32(plan, y).unwrap(), [5.0, -2.0, -2.5]);
}

#[test]
fn a_weight_that_the_graph_does_not_have_is_refused() {
    let (graph, ..) = product();
    let session = Session::new(open_machine(1), SessionOptions::default()).unwrap();
    let unknown = session.upload(&graph, &[("v", &W)]).unwrap_err();
    assert!(
        matches!(unknown, Error::Alloc(AllocError::UnknownLeaf { ref name }) if name == "v"),
        "{unknown}"
    );
    let memory = session.machine().arena(session.machine().find("r0").unwrap());
    assert!(Externals::from_slices(&graph, memory, &[("w", &W[..5])]).is_err());
    assert!(Externals::from_slices(&graph, memory, &[("w", &[0i8; 24][..])]).is_err());
}
