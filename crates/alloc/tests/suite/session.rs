//! A session on a device that adds bytes.

mod adder;

use std::sync::Arc;

use orlop_alloc::{Error, Externals, Growth, PlanId, Session, SessionOptions, SetTensor, TensorSet};
use orlop_backend::{Claim, DeviceError, RunOptions, StoredTensor};
use orlop_graph::{AccessKind, DType, Graph, GraphBuilder, TensorId};

use crate::support::{Spy, State, bytes, host, input, op};
use adder::Adder;

fn session(growth: Growth) -> (Session, Arc<State>) {
    let (spy, state) = Spy::with_state(8, 1 << 20);
    let options = SessionOptions { growth, ..SessionOptions::default() };
    (Session::new(Adder::new(spy), options).expect("it has a buffer type"), state)
}

/// `x + y + 2`, in two nodes.
fn sum(size: u64) -> (Arc<Graph>, [TensorId; 3]) {
    let mut b = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|name| input(&mut b, name, size));
    let both = op(&mut b, "both", &[x, y], size);
    let z = op(&mut b, "z", &[both], size);
    b.output(z);
    (Arc::new(b.build().expect("the graph is valid")), [x, y, z])
}

fn run(session: &mut Session, plan: PlanId) -> Result<(), Error> {
    session.run(plan, &RunOptions::default())
}

fn get(session: &Session, plan: PlanId, id: TensorId, size: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; size];
    session.get(plan, id, &mut bytes)?;
    Ok(bytes)
}

fn not_set(name: &str) -> Error {
    Error::InputNotSet(name.to_owned())
}

#[test]
fn inputs_go_in_outputs_come_out_and_inputs_are_set_anew() {
    let (mut session, _) = session(Growth::Keep);
    let (graph, [x, y, z]) = sum(8);
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    for round in 1..4 {
        assert_eq!(run(&mut session, plan), Err(not_set("x")));
        session.set(plan, x, &[round; 8]).unwrap();
        assert_eq!(run(&mut session, plan), Err(not_set("y")));
        session.set(plan, y, &[10; 8]).unwrap();
        assert_eq!(get(&session, plan, z, 8), Err(Error::NotRun { tensor: "z".to_owned() }));
        run(&mut session, plan).unwrap();
        assert_eq!(get(&session, plan, z, 8), Ok(vec![round + 12; 8]));
        assert_eq!(get(&session, plan, z, 8), Ok(vec![round + 12; 8]), "reading changes nothing");
    }
    assert_eq!(session.arena_bytes(), 24);
}

#[test]
fn what_cannot_be_set_or_read_is_named() {
    let (mut session, _) = session(Growth::Keep);
    let (graph, [x, _, z]) = sum(8);
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    let both = graph.find("both").unwrap();
    assert_eq!(session.set(plan, z, &[0; 8]), Err(Error::NotInput { tensor: "z".to_owned() }));
    assert_eq!(get(&session, plan, both, 8), Err(Error::NotOutput { tensor: "both".to_owned() }));
    let length = DeviceError::WrongLength { tensor: "x".to_owned(), expected: 8, given: 7 };
    assert_eq!(session.set(plan, x, &[0; 7]), Err(Error::Device(length)));
    assert_eq!(run(&mut session, plan), Err(not_set("x")), "it is not set then");

    let (other, _) = self::session(Growth::Keep);
    assert_eq!(get(&other, plan, z, 8), Err(Error::UnknownPlan { plan: 0, plans: 0 }));
    let mut b = GraphBuilder::new();
    input(&mut b, "alone", 8);
    let small = session.prepare(&Arc::new(b.build().unwrap()), &Externals::new()).unwrap();
    let foreign = Error::ForeignTensor { tensor: z, tensors: 1 };
    assert_eq!(session.set(small, z, &[0; 8]), Err(foreign.clone()));
    assert_eq!(get(&session, small, z, 8), Err(foreign));
}

#[test]
fn inputs_that_were_set_before_the_arena_grew_are_set_again() {
    for growth in [Growth::Keep, Growth::Replace] {
        let (mut session, _) = session(growth);
        let (graph, [x, y, z]) = sum(8);
        let small = session.prepare(&graph, &Externals::new()).unwrap();
        session.set(small, x, &[1; 8]).unwrap();
        session.set(small, y, &[2; 8]).unwrap();
        session.prepare(&sum(64).0, &Externals::new()).unwrap();
        assert_eq!(run(&mut session, small), Err(not_set("x")));
        session.set(small, x, &[1; 8]).unwrap();
        session.set(small, y, &[2; 8]).unwrap();
        run(&mut session, small).unwrap();
        assert_eq!(get(&session, small, z, 8), Ok(vec![5; 8]));
    }
}

#[test]
fn growth_that_fails_leaves_inputs_and_results_alone() {
    let (mut session, state) = session(Growth::Keep);
    let (graph, [x, y, z]) = sum(8);
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    for id in [x, y] {
        session.set(plan, id, &[1; 8]).unwrap();
    }
    run(&mut session, plan).unwrap();
    state.fail_allocation_after(0);
    let error = session.prepare(&sum(64).0, &Externals::new()).unwrap_err();
    assert!(matches!(error, Error::AllocFailed { .. }), "{error:?}");
    assert_eq!(get(&session, plan, z, 8), Ok(vec![4; 8]));
    for id in [x, y] {
        session.set(plan, id, &[2; 8]).unwrap();
    }
    state.fail_allocation_after(0);
    assert!(session.prepare(&sum(64).0, &Externals::new()).is_err());
    run(&mut session, plan).unwrap();
    assert_eq!(get(&session, plan, z, 8), Ok(vec![6; 8]));
}

#[test]
fn after_growth_that_replaces_and_fails_the_graphs_that_were_there_get_their_room_back() {
    let (mut session, state) = session(Growth::Replace);
    let (graph, [x, y, z]) = sum(8);
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    session.set(plan, x, &[9; 8]).unwrap();
    state.fail_allocation_after(0);
    assert!(session.prepare(&sum(64).0, &Externals::new()).is_err());
    assert_eq!(session.arena_bytes(), 0);
    // What was set before is gone.
    session.set(plan, y, &[1; 8]).unwrap();
    assert_eq!(run(&mut session, plan), Err(Error::InputNotSet("x".to_owned())));
    session.set(plan, x, &[1; 8]).unwrap();
    run(&mut session, plan).unwrap();
    assert!(get(&session, plan, z, 8).is_ok());
}

#[test]
fn graphs_that_share_the_arena_end_each_others_inputs_and_results() {
    let (mut session, _) = session(Growth::Keep);
    let (graph, [x, y, z]) = sum(8);
    let first = session.prepare(&graph, &Externals::new()).unwrap();
    let second = session.prepare(&graph, &Externals::new()).unwrap();
    for id in [x, y] {
        session.set(first, id, &[1; 8]).unwrap();
    }
    run(&mut session, first).unwrap();
    session.set(second, x, &[1; 8]).unwrap();
    assert_eq!(get(&session, first, z, 8), Err(Error::NotRun { tensor: "z".to_owned() }));
    session.set(second, y, &[1; 8]).unwrap();
    session.set(first, x, &[1; 8]).unwrap();
    assert_eq!(run(&mut session, second), Err(not_set("x")));
}

/// Adds an input to a leaf that is kept, and writes the result back into it.
fn accumulate(kind: fn(&mut GraphBuilder) -> TensorId) -> (Arc<Graph>, [TensorId; 2]) {
    let mut b = GraphBuilder::new();
    let x = input(&mut b, "x", 8);
    let kept = kind(&mut b);
    let sum = op(&mut b, "sum", &[x, kept], 8);
    let written = b.copy(sum, kept);
    b.output(written);
    (Arc::new(b.build().expect("the graph is valid")), [x, kept])
}

#[test]
fn persistent_leafs_keep_their_contents_between_runs() {
    let (mut session, _) = session(Growth::Keep);
    let (graph, [x, kept]) = accumulate(|b| b.persistent("kept", DType::I8, &[8]));
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    assert_eq!(session.persistent_bytes(), 8);
    session.set(plan, kept, &[100; 8]).unwrap();
    for round in 1..4 {
        session.set(plan, x, &[1; 8]).unwrap();
        run(&mut session, plan).unwrap();
        // Each run adds the input, and the device one of its own to the sum; a copy adds none.
        assert_eq!(get(&session, plan, kept, 8), Ok(vec![100 + 2 * round; 8]));
    }
    session.prepare(&sum(64).0, &Externals::new()).unwrap();
    assert_eq!(get(&session, plan, kept, 8), Ok(vec![106; 8]), "the arena grew beside them");
}

fn state_of(session_type: &Arc<dyn orlop_backend::BufferType>) -> StoredTensor {
    let set = TensorSet::allocate(session_type, &[SetTensor::new("kept", bytes(8))]).expect("8 bytes");
    set.tensors()[0].clone()
}

#[test]
fn two_graphs_share_a_state_and_a_busy_one_costs_no_inputs() {
    let (mut session, _) = session(Growth::Keep);
    let (graph, [x, kept]) = accumulate(|b| b.state("kept", DType::I8, &[8]));
    let missing = Error::MissingExternal { tensor: "kept".to_owned() };
    assert_eq!(session.prepare(&graph, &Externals::new()), Err(missing));
    let state = state_of(&host(8, 64));
    let mut externals = Externals::new();
    externals.insert(kept, state.clone());
    let plans = [0, 1].map(|_| session.prepare(&graph, &externals).unwrap());
    for plan in plans {
        session.set(plan, x, &[1; 8]).unwrap();
        let reader = Claim::take(&*state.slot().buffer, AccessKind::Read).unwrap();
        let busy = run(&mut session, plan).unwrap_err();
        assert!(matches!(busy, Error::Device(DeviceError::Busy { .. })), "{busy:?}");
        drop(reader);
        run(&mut session, plan).unwrap();
    }
    assert_eq!(get(&session, plans[0], kept, 8), Ok(vec![4; 8]));
    let mut contents = [0; 8];
    state.get(0, &mut contents).unwrap();
    assert_eq!(contents, [4; 8]);
}
