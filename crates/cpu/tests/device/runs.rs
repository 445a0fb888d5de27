use std::sync::Arc;

use orlop_alloc::Externals;
use orlop_backend::{
    Cancel, Claim, Device, DeviceClass, DeviceError, Role, RunOptions, Slot, StoredTensor, has_large_pages,
};
use orlop_cpu::{CpuDevice, Isa, ThreadPool};
use orlop_graph::{AccessKind, DType, Graph, GraphBuilder, Rope, RopeMode, TensorId};
use orlop_sched::{DeviceId, Machine, PlanId, Session, SessionOptions};
use orlop_testkit::{f32_bytes, i32_bytes};

use crate::{device, lower};

/// `x`, then as many squares, one after the other.
fn chain(steps: usize) -> (Graph, TensorId, TensorId) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 3]);
    let mut y = x;
    for _ in 0..steps {
        y = b.sqr(y);
    }
    b.output(y);
    (b.build().unwrap(), x, y)
}

fn prepared(device: Arc<CpuDevice>, graph: &Graph, max_threads: usize) -> (Session, PlanId) {
    let options = SessionOptions { lower: lower(max_threads), ..SessionOptions::default() };
    let mut session = Session::new(Machine::new([device as _]).unwrap(), options).unwrap();
    let plan = session.prepare(graph, &Externals::new()).unwrap();
    (session, plan)
}

fn threads(threads: usize) -> RunOptions {
    RunOptions { threads: Some(threads), ..RunOptions::default() }
}

#[test]
fn the_device_says_what_it_is_and_has_nothing_to_wait_for() {
    let pool = ThreadPool::new(2).unwrap();
    let device = CpuDevice::with_isa("processor", Arc::clone(&pool), Isa::Scalar);
    assert_eq!(device.name(), "processor");
    assert_eq!((device.isa(), device.pool().threads()), (Isa::Scalar, 2));
    let facts = device.facts();
    assert_eq!((facts.class, facts.asynchronous, facts.lost), (DeviceClass::Cpu, false, false));
    assert_eq!(facts.description, "2 threads, scalar");
    let alignments = |role| device.buffer_types(role).iter().map(|each| each.alignment()).collect::<Vec<_>>();
    // Repacked, and then copied before mapped only where copies get larger pages.
    let weights = if has_large_pages() { vec![64, 64, 1] } else { vec![64, 1, 64] };
    assert_eq!((alignments(Role::Arena), alignments(Role::Weight)), (vec![64], weights));
    let mut queue = device.queue().unwrap();
    let event = queue.record().unwrap();
    assert!(event.is_done());
    queue.wait(&event).unwrap();
    queue.sync().unwrap();
}

#[test]
fn threads_are_counted_from_one_to_the_maximum() {
    let (graph, x, y) = chain(3);
    let (mut session, plan) = prepared(device(Isa::detect()), &graph, 3);
    for (asked, possible) in [(0, false), (1, true), (3, true), (4, false), (usize::MAX, false)] {
        session.set(plan, x, &f32_bytes(&[1.5; 192])).unwrap();
        let result = session.run(plan, &threads(asked));
        if possible {
            result.unwrap();
            let mut bytes = [0; 768];
            session.get(plan, y, &mut bytes).unwrap();
            assert_eq!(bytes[..], f32_bytes(&[1.5f32.powi(8); 192]));
        } else {
            let expected = DeviceError::BadThreads { asked, max: 3 };
            assert_eq!(result.unwrap_err().device_error(), Some(&expected));
        }
    }
}

#[test]
fn results_are_the_same_to_the_bit_on_one_to_eight_threads() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[256, 7]);
    let weights = b.input("weights", DType::F32, &[256, 300]);
    let normed = b.rms_norm(x, 1e-5);
    let product = b.mul_mat(weights, normed);
    let y = b.soft_max(product, None, 1.0, 0.0);
    b.output(y);
    let graph = b.build().unwrap();
    let numbers =
        |count: usize| (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 37.0).collect::<Vec<f32>>();
    let (mut session, plan) = prepared(CpuDevice::new(ThreadPool::new(8).unwrap()), &graph, 8);
    let mut run = |count: usize| {
        session.set(plan, x, &f32_bytes(&numbers(256 * 7))).unwrap();
        session.set(plan, weights, &f32_bytes(&numbers(256 * 300))).unwrap();
        session.run(plan, &threads(count)).unwrap();
        let mut bytes = vec![0; 300 * 7 * 4];
        session.get(plan, y, &mut bytes).unwrap();
        bytes
    };
    let alone = run(1);
    assert!(alone.iter().any(|byte| *byte != 0));
    for count in (2..=8).cycle().take(40) {
        assert!(run(count) == alone, "{count} threads");
    }
}

#[test]
fn a_maximum_beyond_the_pool_is_the_pools() {
    let (graph, x, _) = chain(1);
    let device = CpuDevice::new(ThreadPool::new(2).unwrap());
    let (mut session, plan) = prepared(device, &graph, 100);
    session.set(plan, x, &[0; 768]).unwrap();
    session.run(plan, &RunOptions::default()).unwrap();
    session.set(plan, x, &[0; 768]).unwrap();
    let too_many = session.run(plan, &threads(3));
    let expected = DeviceError::BadThreads { asked: 3, max: 2 };
    assert_eq!(too_many.unwrap_err().device_error(), Some(&expected));
}

#[test]
fn a_cancelled_run_says_so_and_the_next_one_works() {
    let (graph, x, _) = chain(10);
    let (mut session, plan) = prepared(device(Isa::detect()), &graph, 2);
    let cancel = Cancel::new();
    cancel.cancel();
    session.set(plan, x, &[0; 768]).unwrap();
    let cancelled = session.run(plan, &RunOptions { cancel: Some(cancel), ..RunOptions::default() });
    // Between splits, of which there is one.
    let expected = DeviceError::Cancelled { step: 0, steps: 1 };
    assert_eq!(cancelled.unwrap_err().device_error(), Some(&expected));
    session.set(plan, x, &[0; 768]).unwrap();
    session.run(plan, &RunOptions { cancel: Some(Cancel::new()), ..RunOptions::default() }).unwrap();
}

#[test]
fn a_run_is_cancelled_from_another_thread_between_steps() {
    let (graph, x, _) = chain(20_000);
    let (mut session, plan) = prepared(device(Isa::detect()), &graph, 2);
    // A machine may be so fast or so busy that the switch is thrown too late or too early, but not always.
    let in_between = (0..1_000u64).any(|attempt| {
        let cancel = Cancel::new();
        session.set(plan, x, &[0; 768]).unwrap();
        let options = RunOptions { cancel: Some(cancel.clone()), ..RunOptions::default() };
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_micros(50 * (attempt % 100)));
                cancel.cancel();
            });
            session.run(plan, &options)
        });
        let Err(error) = result else { return false };
        match error.device_error() {
            Some(DeviceError::Cancelled { step, steps: 20_000 }) => (1..20_000).contains(step),
            // Before the split was given to the device.
            Some(DeviceError::Cancelled { step: 0, steps: 1 }) => false,
            _ => panic!("{error:?}"),
        }
    });
    assert!(in_between, "no run was stopped between two steps");
}

#[test]
fn a_bad_index_stops_the_run_before_anything_is_written() {
    for turned in [false, true] {
        let mut b = GraphBuilder::new();
        let table = b.state("table", DType::F32, &[4, 3]);
        let rows = b.input("rows", DType::F32, &[4, 1, 2]);
        let positions = b.input("positions", DType::I32, &[2]);
        let at = b.input("at", DType::I32, &[2]);
        let turning = Rope { mode: RopeMode::Neox, dims: 4, ..Rope::default() };
        let heads = if turned { b.rope(rows, positions, None, turning) } else { b.sqr(rows) };
        let heads = b.reshape(heads, &[4, 2]);
        let written = b.set_rows(table, heads, at);
        b.output(written);
        let graph = b.build().unwrap();
        for count in [1, 2, 5] {
            let cpu = device(Isa::detect());
            let buffer = Arc::clone(&cpu.buffer_types(Role::Arena)[0]).allocate(48).unwrap();
            let slot = Slot { buffer: Arc::clone(&buffer), offset: 0 };
            let stored = StoredTensor::new("table", graph.tensor(table).desc, slot);
            let mut externals = Externals::new();
            externals.insert(table, stored.unwrap());
            let options = SessionOptions { lower: lower(count), ..SessionOptions::default() };
            let mut session = Session::new(Machine::new([cpu as _]).unwrap(), options).unwrap();
            let plan = session.prepare(&graph, &externals).unwrap();
            let mut run = |at_values: [i32; 2]| {
                let claim = Claim::take(&*buffer, AccessKind::Write).unwrap();
                buffer.write(&claim, 0, &f32_bytes(&[1.0; 12])).unwrap();
                drop(claim);
                session.set(plan, rows, &f32_bytes(&[2.0; 8])).unwrap();
                session.set(plan, positions, &i32_bytes(&[0, 0])).unwrap();
                session.set(plan, at, &i32_bytes(&at_values)).unwrap();
                let result = session.run(plan, &threads(count));
                let claim = Claim::take(&*buffer, AccessKind::Read).unwrap();
                let mut bytes = vec![0; 48];
                buffer.read(&claim, 0, &mut bytes).unwrap();
                (result, bytes)
            };
            let (bad, bytes) = run([0, 3]);
            assert!(
                matches!(
                    bad.as_ref().unwrap_err().device_error(),
                    Some(DeviceError::BadIndex { index: 3, rows: 3, .. })
                ),
                "{bad:?}"
            );
            assert_eq!(bytes, f32_bytes(&[1.0; 12]), "{turned}, {count} threads");
            let (good, bytes) = run([2, -1]);
            good.unwrap();
            let value = if turned { 2.0 } else { 4.0 };
            assert_eq!(bytes, f32_bytes(&[[1.0; 4], [1.0; 4], [value; 4]].concat()), "{turned}");
        }
    }
}

#[test]
fn what_is_looked_at_once_for_several_steps_is_looked_at_for_all() {
    let mut b = GraphBuilder::new();
    let [small, large] =
        [("small", 3), ("large", 4)].map(|(name, rows)| b.input(name, DType::F32, &[4, rows]));
    let [at, other] = ["at", "other"].map(|name| b.input(name, DType::I32, &[2]));
    // The second asks the same as the first; the third has other indices, the last another size.
    for (table, at) in [(large, at), (large, at), (large, other), (small, at)] {
        let rows = b.get_rows(table, at);
        b.output(rows);
    }
    let graph = b.build().unwrap();
    let (mut session, plan) = prepared(device(Isa::detect()), &graph, 2);
    let mut run = |at_values: [i32; 2], other_values: [i32; 2]| {
        session.set(plan, small, &f32_bytes(&[1.0; 12])).unwrap();
        session.set(plan, large, &f32_bytes(&[2.0; 16])).unwrap();
        session.set(plan, at, &i32_bytes(&at_values)).unwrap();
        session.set(plan, other, &i32_bytes(&other_values)).unwrap();
        session.run(plan, &RunOptions::default())
    };
    run([0, 2], [3, 1]).unwrap();
    for (at_values, other_values, expected) in
        [([0, 4], [0, 0], (4, 4)), ([0, 0], [-1, 0], (-1, 4)), ([3, 0], [3, 0], (3, 3))]
    {
        let error = run(at_values, other_values).unwrap_err();
        match error.device_error() {
            Some(DeviceError::BadIndex { index, rows, .. }) => assert_eq!((*index, *rows), expected),
            _ => panic!("{error:?}"),
        }
    }
}

#[test]
fn indices_that_a_step_before_computes_are_looked_at_when_they_are_there() {
    // top_k writes the ids on one thread while others are already at the next step.
    let mut b = GraphBuilder::new();
    let scores = b.input("scores", DType::F32, &[64, 4096]);
    let table = b.input("table", DType::F32, &[8, 64, 4096]);
    let ids = b.top_k(scores, 8);
    let ids = b.reshape(ids, &[8, 4096]);
    let rows = b.get_rows(table, ids);
    b.output(rows);
    let graph = b.build().unwrap();
    let (mut session, plan) = prepared(device(Isa::detect()), &graph, 5);
    let values: Vec<f32> = (0..64 * 4096).map(|i| (i * 7919 % 1013) as f32).collect();
    for _ in 0..20 {
        session.set(plan, scores, &f32_bytes(&values)).unwrap();
        session.set(plan, table, &vec![0; 4 * 8 * 64 * 4096]).unwrap();
        session.run(plan, &RunOptions::default()).unwrap();
    }
}

#[test]
fn sessions_on_several_threads_share_a_pool() {
    let device = device(Isa::detect());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = Arc::clone(&device);
            scope.spawn(move || {
                let (graph, x, y) = chain(5);
                let (mut session, plan) = prepared(device, &graph, 5);
                for _ in 0..100 {
                    let value = 1.0 + thread as f32 / 64.0;
                    session.set(plan, x, &f32_bytes(&[value; 192])).unwrap();
                    session.run(plan, &RunOptions::default()).unwrap();
                    let mut bytes = [0; 768];
                    session.get(plan, y, &mut bytes).unwrap();
                    let expected = (0..5).fold(value, |x, _| x * x);
                    assert_eq!(bytes[..], f32_bytes(&[expected; 192]));
                }
            });
        }
    });
}

#[test]
fn scratch_is_in_the_plan_and_sized_for_the_maximum_of_threads() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[256, 8]);
    let w = b.input("w", DType::F32, &[256, 32]);
    let y = b.mul_mat(w, x);
    b.output(y);
    let graph = b.build().unwrap();
    let bytes = |max_threads| {
        let (session, plan) = prepared(device(Isa::detect()), &graph, max_threads);
        (
            session.arena_bytes(DeviceId::default()),
            session.memory_plan(plan, DeviceId::default()).unwrap().total(),
        )
    };
    let (one, five) = (bytes(1), bytes(5));
    assert_eq!(one.0, one.1);
    assert_eq!(five.0, five.1);
    assert!(five.0 > one.0, "{five:?} {one:?}");
}
