//! A session on a machine of one device.

use std::sync::Arc;

use orlop_alloc::{Error as AllocError, Externals, Growth};
use orlop_backend::{Claim, DeviceError, RunOptions};
use orlop_graph::{AccessKind, DType, Graph, GraphBuilder, TensorId};
use orlop_sched::{DeviceId, Error, Machine, PlanId, Session, SessionOptions};
use orlop_testkit::devices::{FaultKind, FaultPoint, TestDevice};
use orlop_testkit::{f32_bytes, f32s};

use crate::support::{externals, private, stored};

fn session(growth: Growth) -> (Session, Arc<TestDevice>) {
    let device = private("only").alignment(8).build();
    let options = SessionOptions { growth, ..SessionOptions::default() };
    (Session::new(Machine::new([device.clone() as _]).unwrap(), options).unwrap(), device)
}

/// `2 (x + y)`, in two nodes.
fn sum(length: u64) -> (Graph, [TensorId; 3]) {
    let mut b = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|name| b.input(name, DType::F32, &[length]));
    let both = b.add(x, y);
    let both = b.name(both, "both");
    let z = b.scale(both, 2.0);
    let z = b.name(z, "z");
    b.output(z);
    (b.build().unwrap(), [x, y, z])
}

fn set(session: &mut Session, plan: PlanId, ids: &[TensorId], value: f32) {
    ids.iter().for_each(|id| session.set(plan, *id, &f32_bytes(&[value; 2])).unwrap());
}

fn run(session: &mut Session, plan: PlanId) -> Result<(), Error> {
    session.run(plan, &RunOptions::default())
}

fn get(session: &Session, plan: PlanId, id: TensorId) -> Result<Vec<f32>, Error> {
    let mut bytes = vec![0; 8];
    session.get(plan, id, &mut bytes)?;
    Ok(f32s(&bytes))
}

fn not_set(name: &str) -> Error {
    Error::InputNotSet(name.to_owned())
}

#[test]
fn inputs_go_in_outputs_come_out_and_inputs_are_set_anew() {
    let (mut session, _) = session(Growth::Keep);
    let (graph, [x, y, z]) = sum(2);
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    for round in [1.0, 2.0, 3.0] {
        assert_eq!(run(&mut session, plan), Err(not_set("x")));
        set(&mut session, plan, &[x], round);
        assert_eq!(run(&mut session, plan), Err(not_set("y")));
        set(&mut session, plan, &[y], 10.0);
        assert_eq!(get(&session, plan, z), Err(Error::NotRun { tensor: "z".to_owned() }));
        run(&mut session, plan).unwrap();
        assert_eq!(get(&session, plan, z), Ok(vec![2.0 * round + 20.0; 2]));
        assert_eq!(get(&session, plan, z), Ok(vec![2.0 * round + 20.0; 2]), "reading changes nothing");
    }
    assert_eq!(session.arena_bytes(DeviceId::default()), 16);
}

#[test]
fn what_cannot_be_set_or_read_is_named() {
    let (mut session, _) = session(Growth::Keep);
    let (graph, [x, _, z]) = sum(2);
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    let both = graph.find("both").unwrap();
    assert_eq!(session.set(plan, z, &[0; 8]), Err(Error::NotInput { tensor: "z".to_owned() }));
    assert_eq!(get(&session, plan, both), Err(Error::NotOutput { tensor: "both".to_owned() }));
    let length = DeviceError::WrongLength { tensor: "x".to_owned(), expected: 8, given: 7 };
    assert_eq!(session.set(plan, x, &[0; 7]), Err(AllocError::from(length).into()));
    assert_eq!(run(&mut session, plan), Err(not_set("x")), "it is not set then");

    let (other, _) = self::session(Growth::Keep);
    assert_eq!(get(&other, plan, z), Err(Error::UnknownPlan { plan: 0, plans: 0 }));
    let mut b = GraphBuilder::new();
    b.input("alone", DType::F32, &[2]);
    let small = session.prepare(&b.build().unwrap(), &Externals::new()).unwrap();
    let foreign = Error::ForeignTensor { tensor: z, tensors: 1 };
    assert_eq!(session.set(small, z, &[0; 8]), Err(foreign.clone()));
    assert_eq!(get(&session, small, z), Err(foreign));
}

#[test]
fn inputs_that_were_set_before_the_arena_grew_are_set_again() {
    for growth in [Growth::Keep, Growth::Replace] {
        let (mut session, _) = session(growth);
        let (graph, [x, y, z]) = sum(2);
        let small = session.prepare(&graph, &Externals::new()).unwrap();
        set(&mut session, small, &[x, y], 1.0);
        session.prepare(&sum(64).0, &Externals::new()).unwrap();
        assert_eq!(run(&mut session, small), Err(not_set("x")));
        set(&mut session, small, &[x, y], 1.0);
        run(&mut session, small).unwrap();
        assert_eq!(get(&session, small, z), Ok(vec![4.0; 2]));
    }
}

#[test]
fn growth_that_fails_leaves_inputs_and_results_alone() {
    let (mut session, device) = session(Growth::Keep);
    let (graph, [x, y, z]) = sum(2);
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    set(&mut session, plan, &[x, y], 1.0);
    run(&mut session, plan).unwrap();
    device.faults().fail(FaultPoint::Allocation, 1, FaultKind::OutOfMemory);
    let error = session.prepare(&sum(64).0, &Externals::new()).unwrap_err();
    assert!(matches!(error.alloc_error(), Some(AllocError::AllocFailed { .. })), "{error:?}");
    assert_eq!(get(&session, plan, z), Ok(vec![4.0; 2]));
    set(&mut session, plan, &[x, y], 2.0);
    device.faults().fail(FaultPoint::Allocation, 1, FaultKind::OutOfMemory);
    assert!(session.prepare(&sum(64).0, &Externals::new()).is_err());
    run(&mut session, plan).unwrap();
    assert_eq!(get(&session, plan, z), Ok(vec![8.0; 2]));
}

#[test]
fn after_growth_that_replaces_and_fails_the_graphs_that_were_there_get_their_room_back() {
    let (mut session, device) = session(Growth::Replace);
    let (graph, [x, y, z]) = sum(2);
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    set(&mut session, plan, &[x], 9.0);
    // The first allocation is the empty buffer that keeps the place of the arena.
    device.faults().fail(FaultPoint::Allocation, 2, FaultKind::OutOfMemory);
    assert!(session.prepare(&sum(64).0, &Externals::new()).is_err());
    assert_eq!(session.arena_bytes(DeviceId::default()), 0);
    // What was set before is gone.
    set(&mut session, plan, &[y], 1.0);
    assert_eq!(run(&mut session, plan), Err(not_set("x")));
    set(&mut session, plan, &[x], 1.0);
    run(&mut session, plan).unwrap();
    assert_eq!(get(&session, plan, z), Ok(vec![4.0; 2]));
}

#[test]
fn graphs_that_share_the_arena_end_each_others_inputs_and_results() {
    let (mut session, _) = session(Growth::Keep);
    let (graph, [x, y, z]) = sum(2);
    let [first, second] = [0, 1].map(|_| session.prepare(&graph, &Externals::new()).unwrap());
    set(&mut session, first, &[x, y], 1.0);
    run(&mut session, first).unwrap();
    set(&mut session, second, &[x], 1.0);
    assert_eq!(get(&session, first, z), Err(Error::NotRun { tensor: "z".to_owned() }));
    set(&mut session, second, &[y], 1.0);
    set(&mut session, first, &[x], 1.0);
    assert_eq!(run(&mut session, second), Err(not_set("x")));
}

/// Adds an input to a leaf that is kept, and writes the result back into it.
fn accumulate(kind: fn(&mut GraphBuilder) -> TensorId) -> (Graph, [TensorId; 2]) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[2]);
    let kept = kind(&mut b);
    let sum = b.add(x, kept);
    let written = b.copy(sum, kept);
    b.output(written);
    (b.build().unwrap(), [x, kept])
}

#[test]
fn persistent_leaves_keep_their_contents_between_runs() {
    let (mut session, _) = session(Growth::Keep);
    let (graph, [x, kept]) = accumulate(|b| b.persistent("kept", DType::F32, &[2]));
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    assert_eq!(session.persistent_bytes(DeviceId::default()), 8);
    set(&mut session, plan, &[kept], 100.0);
    for round in [1.0, 2.0, 3.0] {
        set(&mut session, plan, &[x], 1.0);
        run(&mut session, plan).unwrap();
        assert_eq!(get(&session, plan, kept), Ok(vec![100.0 + round; 2]));
    }
    session.prepare(&sum(64).0, &Externals::new()).unwrap();
    assert_eq!(get(&session, plan, kept), Ok(vec![103.0; 2]), "the arena grew beside them");
}

#[test]
fn two_graphs_share_a_state_and_a_busy_one_costs_no_inputs() {
    let (mut session, device) = session(Growth::Keep);
    let (graph, [x, kept]) = accumulate(|b| b.state("kept", DType::F32, &[2]));
    let missing = AllocError::MissingExternal { tensor: "kept".to_owned() };
    assert_eq!(session.prepare(&graph, &Externals::new()), Err(missing.into()));
    let state = stored(&*device, &graph, kept, &[0.0; 2]);
    let externals = externals(&[(kept, state.clone())]);
    let plans = [0, 1].map(|_| session.prepare(&graph, &externals).unwrap());
    for plan in plans {
        set(&mut session, plan, &[x], 1.0);
        let reader = Claim::take(&*state.slot().buffer, AccessKind::Read).unwrap();
        let busy = run(&mut session, plan).unwrap_err();
        assert!(matches!(busy.device_error(), Some(DeviceError::Busy { .. })), "{busy:?}");
        drop(reader);
        run(&mut session, plan).unwrap();
    }
    assert_eq!(get(&session, plans[0], kept), Ok(vec![2.0; 2]));
    let mut contents = [0; 8];
    state.get(0, &mut contents).unwrap();
    assert_eq!(f32s(&contents), [2.0; 2]);
}
