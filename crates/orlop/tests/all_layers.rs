//! One graph through every layer: built, lowered, planned, bound, run, and compared with values worked out by
//! hand.

use std::sync::Arc;

use orlop::alloc::{Error as AllocError, Externals, SetTensor, TensorSet};
use orlop::backend::{Device, DeviceError, Role, RunOptions};
use orlop::graph::{DType, GraphBuilder, TensorDesc};
use orlop::sched::{
    Constraints, DeviceId, Error, Machine, Session, SessionOptions, constraints, place_by_rules,
};
use orlop_testkit::{ReferenceDevice, f32_bytes, f32s, i32_bytes};

fn vector(length: u64) -> TensorDesc {
    TensorDesc::contiguous(DType::F32, &[length]).unwrap()
}

#[test]
fn a_graph_runs_from_builder_to_results() {
    let device: Arc<dyn Device> = ReferenceDevice::new();

    // y = relu(w x + b), cache[row] = y, total = sum over the cache
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[2]);
    let row = b.input("row", DType::I32, &[1]);
    let w = b.weight("w", DType::F32, &[2, 3]);
    let bias = b.persistent("bias", DType::F32, &[3]);
    let cache = b.state("cache", DType::F32, &[3, 2]);
    let h = b.mul_mat(w, x);
    let h = b.add(h, bias);
    let y = b.relu(h);
    let written = b.set_rows(cache, y, row);
    let total = b.sum(written);
    b.output(y);
    b.output(total);
    let graph = b.build().unwrap();

    let weights = TensorSet::allocate(
        &device.buffer_types(Role::Weight)[0],
        &[SetTensor::new("w", graph.tensor(w).desc), SetTensor::new("cache", graph.tensor(cache).desc)],
    )
    .unwrap();
    weights.tensors()[0].set(0, &f32_bytes(&[1.0, 2.0, -1.0, 1.0, 0.5, 0.0])).unwrap();
    let mut externals = Externals::new();
    externals.insert(w, weights.tensors()[0].clone()).insert(cache, weights.tensors()[1].clone());

    let mut session = Session::new(Machine::new([device]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &externals).unwrap();
    session.memory_plan(plan, DeviceId::default()).unwrap().check().unwrap();
    session.set(plan, bias, &f32_bytes(&[0.0, 0.5, 1.0])).unwrap();

    let mut step = |x_values: [f32; 2], index: i32| {
        session.set(plan, x, &f32_bytes(&x_values)).unwrap();
        session.set(plan, row, &i32_bytes(&[index])).unwrap();
        session.run(plan, &RunOptions::default()).unwrap();
        let (mut y_bytes, mut total_bytes) = ([0; 12], [0; 4]);
        session.get(plan, y, &mut y_bytes).unwrap();
        session.get(plan, total, &mut total_bytes).unwrap();
        (f32s(&y_bytes), f32s(&total_bytes)[0])
    };
    // w x = [1·3 + 2·4, -3 + 4, 1.5] = [11, 1, 1.5]; with the bias [11, 1.5, 2.5]
    assert_eq!(step([3.0, 4.0], 1), (vec![11.0, 1.5, 2.5], 15.0));
    // w x = [1 - 2, -1 - 1, 0.5] = [-1, -2, 0.5]; with the bias [-1, -1.5, 1.5]; the cache keeps row 1
    assert_eq!(step([1.0, -1.0], 0), (vec![0.0, 0.0, 1.5], 16.5));

    let mut rows = [0; 24];
    weights.tensors()[1].get(0, &mut rows).unwrap();
    assert_eq!(f32s(&rows), [0.0, 0.0, 1.5, 11.0, 1.5, 2.5]);
}

#[test]
fn a_run_needs_every_input_set_since_the_last() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    b.output(y);
    let graph = b.build().unwrap();
    let mut session =
        Session::new(Machine::new([ReferenceDevice::new() as _]).unwrap(), SessionOptions::default())
            .unwrap();
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    let run = |session: &mut Session| session.run(plan, &RunOptions::default());

    assert_eq!(run(&mut session), Err(Error::InputNotSet("x".to_owned())));
    let wrong = session.set(plan, x, &[0; 3]);
    let wrong = wrong.unwrap_err();
    assert!(matches!(wrong.device_error(), Some(DeviceError::WrongLength { expected: 16, given: 3, .. })));
    assert_eq!(run(&mut session), Err(Error::InputNotSet("x".to_owned())));
    session.set(plan, x, &f32_bytes(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    run(&mut session).unwrap();
    assert_eq!(run(&mut session), Err(Error::InputNotSet("x".to_owned())));

    let mut bytes = [0; 16];
    session.get(plan, y, &mut bytes).unwrap();
    assert_eq!(f32s(&bytes), [1.0, 4.0, 9.0, 16.0]);
    assert_eq!(session.get(plan, x, &mut bytes), Err(Error::NotOutput { tensor: "x".to_owned() }));
    assert!(matches!(session.set(plan, y, &bytes), Err(Error::NotInput { .. })));
    session.set(plan, x, &bytes).unwrap();
    assert!(matches!(session.get(plan, y, &mut bytes), Err(Error::NotRun { .. })));
}

#[test]
fn graphs_of_one_session_share_an_arena_of_the_largest_ones_size() {
    let graph = |length: u64| {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[length]);
        let y = b.sqr(x);
        b.output(y);
        (b.build().unwrap(), x, y)
    };
    let mut session =
        Session::new(Machine::new([ReferenceDevice::new() as _]).unwrap(), SessionOptions::default())
            .unwrap();
    let (small, x_small, y_small) = graph(16);
    let (large, x_large, _) = graph(1024);
    let first = session.prepare(&small, &Externals::new()).unwrap();
    assert_eq!(session.arena_bytes(DeviceId::default()), 64);
    session.set(first, x_small, &[0; 64]).unwrap();
    session.run(first, &RunOptions::default()).unwrap();
    let second = session.prepare(&large, &Externals::new()).unwrap();
    assert_eq!(session.arena_bytes(DeviceId::default()), 4096);

    // The first graph's program is made anew in the larger arena.
    session.set(first, x_small, &f32_bytes(&[3.0; 16])).unwrap();
    session.run(first, &RunOptions::default()).unwrap();
    let mut bytes = [0; 64];
    session.get(first, y_small, &mut bytes).unwrap();
    assert_eq!(f32s(&bytes), [9.0; 16]);

    // Inputs of one graph end what was set for another.
    session.set(first, x_small, &[0; 64]).unwrap();
    session.set(second, x_large, &[0; 4096]).unwrap();
    assert_eq!(session.run(first, &RunOptions::default()), Err(Error::InputNotSet("x".to_owned())));
}

#[test]
fn externals_must_be_there_and_as_the_graph_says() {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let mut b = GraphBuilder::new();
    let w = b.weight("w", DType::F32, &[8]);
    let y = b.sqr(w);
    b.output(y);
    let graph = b.build().unwrap();
    let mut session =
        Session::new(Machine::new([Arc::clone(&device)]).unwrap(), SessionOptions::default()).unwrap();
    let missing = session.prepare(&graph, &Externals::new());
    assert_eq!(missing, Err(AllocError::MissingExternal { tensor: "w".to_owned() }.into()));

    let set = TensorSet::allocate(&device.buffer_types(Role::Weight)[0], &[SetTensor::new("w", vector(4))])
        .unwrap();
    let mut externals = Externals::new();
    externals.insert(w, set.tensors()[0].clone());
    let mismatch = session.prepare(&graph, &externals).unwrap_err();
    assert!(matches!(mismatch, Error::Alloc(AllocError::ExternalMismatch { .. })), "{mismatch:?}");
}

#[test]
fn a_weight_that_is_being_written_is_busy_and_the_run_can_be_repeated() {
    use orlop::backend::Claim;
    use orlop::graph::AccessKind;
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let mut b = GraphBuilder::new();
    let w = b.weight("w", DType::F32, &[4]);
    let y = b.sqr(w);
    b.output(y);
    let graph = b.build().unwrap();
    let set = TensorSet::allocate(&device.buffer_types(Role::Weight)[0], &[SetTensor::new("w", vector(4))])
        .unwrap();
    let mut externals = Externals::new();
    externals.insert(w, set.tensors()[0].clone());
    let mut session = Session::new(Machine::new([device]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &externals).unwrap();
    let claim = Claim::take(&*set.buffers()[0], AccessKind::Write).unwrap();
    let busy = session.run(plan, &RunOptions::default());
    assert!(matches!(busy.unwrap_err().device_error(), Some(DeviceError::Busy { .. })));
    drop(claim);
    session.run(plan, &RunOptions::default()).unwrap();
}

/// `seen = 2 x - y` is read by nothing but the observer, and steps may change places.
#[test]
fn on_the_cpu_a_result_that_only_an_observer_reads_shows_its_own_bytes() {
    use orlop::cpu::{CpuDevice, ThreadPool};
    let mut b = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|name| b.input(name, DType::F32, &[64]));
    let w = b.weight("w", DType::F32, &[64]);
    let a = b.add(x, x);
    let out = b.scale(w, 100.0);
    let seen = b.sub(a, y);
    b.output(out);
    let graph = b.build().unwrap();
    let device: Arc<dyn Device> = CpuDevice::new(ThreadPool::new(2).unwrap());
    let set = [SetTensor::new("w", vector(64))];
    let set = TensorSet::allocate(&device.buffer_types(Role::Arena)[0], &set).unwrap();
    set.tensors()[0].set(0, &f32_bytes(&[1.0; 64])).unwrap();
    let externals = Externals::by_name(&graph, set.tensors());
    let machine = Machine::new([device]).unwrap();
    let constraints = Constraints { observed: [seen].into(), ..constraints(&graph, &externals) };
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(&graph, &externals, &constraints, placement).unwrap();
    session.set(plan, x, &f32_bytes(&[5.0; 64])).unwrap();
    session.set(plan, y, &f32_bytes(&[3.0; 64])).unwrap();
    let mut found = Vec::new();
    let mut observe = |_, bytes: &[u8]| {
        found = f32s(bytes);
        true
    };
    session.run_observed(plan, &RunOptions::default(), &mut observe).unwrap();
    assert_eq!(found, [7.0; 64]);
}
