use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Cancel, Device, DeviceError, RunOptions};
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};
use orlop_sched::{
    Constraints, DeviceId, Error, Machine, PlanId, Planned, Session, SessionOptions, constraints,
    place_by_rules,
};
use orlop_testkit::{Feeds, Forward, Random, ReferenceDevice, f32s, generate, run_unplanned};

use crate::equality::{assignments, packed, private_machine};
use crate::support::{Twin, get, machine, memory_of, private, run, set};

struct Watched {
    session: Session,
    plan: PlanId,
    x: TensorId,
    made: Vec<TensorId>,
}

/// `x * 2 * 2 * …` over three devices in turn, of which two have queues beside the host, with every result observed
/// that `observe` picks.
fn watched(length: usize, delay: Duration, observe: impl Fn(usize) -> bool) -> Watched {
    let devices = [
        private("p").asynchronous(true).step_delay(delay).build(),
        private("q").step_delay(delay).build(),
        private("r").asynchronous(true).step_delay(delay).build(),
    ];
    let machine = machine(&devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let mut made = vec![x];
    for _ in 0..length {
        made.push(b.scale(made[made.len() - 1], 2.0));
    }
    b.output(made[length]);
    let graph: Graph = b.build().unwrap();
    made.remove(0);
    let all: Vec<DeviceId> = machine.indices().collect();
    let assigned = made.iter().enumerate().map(|(index, id)| (*id, all[index / 2 % 3])).collect();
    let observed = made.iter().enumerate().filter(|(index, _)| observe(*index)).map(|(_, id)| *id).collect();
    let constraints = Constraints { assigned, observed, ..Constraints::default() };
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(&graph, &Externals::new(), &constraints, placement).unwrap();
    Watched { session, plan, x, made }
}

fn is_cancelled(error: &Error) -> bool {
    matches!(error, Error::Device { source, .. } if matches!(**source, DeviceError::Cancelled { .. }))
}

#[test]
fn an_observer_sees_every_result_it_asked_for_as_it_is_computed() {
    let Watched { mut session, plan, x, made } = watched(9, Duration::ZERO, |index| index % 2 == 0);
    session.check_races(plan).unwrap();
    for _ in 0..2 {
        set(&mut session, plan, x, &[1.0; 4]);
        let mut seen = Vec::new();
        let mut observe = |id, bytes: &[u8]| {
            seen.push((id, f32s(bytes)));
            true
        };
        session.run_observed(plan, &RunOptions::default(), &mut observe).unwrap();
        let picked = [0, 2, 4, 6, 8];
        let expected: Vec<_> =
            picked.iter().map(|index| (made[*index], vec![2f32.powi(*index as i32 + 1); 4])).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn an_observer_that_says_no_ends_the_run_on_all_devices() {
    let Watched { mut session, plan, x, made } = watched(9, Duration::ZERO, |_| true);
    set(&mut session, plan, x, &[1.0; 4]);
    let mut seen = 0;
    let mut observe = |_, _: &[u8]| {
        seen += 1;
        seen < 3
    };
    let error = session.run_observed(plan, &RunOptions::default(), &mut observe).unwrap_err();
    assert!(is_cancelled(&error), "{error:?}");
    assert_eq!(seen, 3);
    session.get(plan, made[8], &mut [0; 16]).unwrap_err();
    set(&mut session, plan, x, &[1.0; 4]);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, made[8], 4), [512.0; 4]);
}

#[test]
fn an_observer_that_panics_is_an_error_and_the_next_run_works() {
    let Watched { mut session, plan, x, made } = watched(6, Duration::ZERO, |index| index == 3);
    set(&mut session, plan, x, &[1.0; 4]);
    let mut observe = |_, _: &[u8]| -> bool { std::panic::resume_unwind(Box::new("on purpose")) };
    let error = session.run_observed(plan, &RunOptions::default(), &mut observe).unwrap_err();
    assert!(matches!(error, Error::ObserverPanicked { split } if split.index() == 1), "{error:?}");
    set(&mut session, plan, x, &[1.0; 4]);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, made[5], 4), [64.0; 4]);
}

#[test]
fn a_run_that_is_cancelled_beforehand_does_nothing() {
    let Watched { mut session, plan, x, made } = watched(6, Duration::ZERO, |_| false);
    set(&mut session, plan, x, &[1.0; 4]);
    let cancel = Cancel::new();
    cancel.cancel();
    let options = RunOptions { cancel: Some(cancel), ..RunOptions::default() };
    let error = session.run(plan, &options).unwrap_err();
    assert!(is_cancelled(&error), "{error:?}");
    set(&mut session, plan, x, &[1.0; 4]);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, made[5], 4), [64.0; 4]);
}

#[test]
fn a_run_can_be_cancelled_between_splits() {
    let Watched { mut session, plan, x, .. } = watched(12, Duration::ZERO, |index| index == 3);
    set(&mut session, plan, x, &[1.0; 4]);
    let cancel = Cancel::new();
    let options = RunOptions { cancel: Some(cancel.clone()), ..RunOptions::default() };
    let mut observe = |_, _: &[u8]| {
        cancel.cancel();
        true
    };
    let error = session.run_observed(plan, &options, &mut observe).unwrap_err();
    assert!(is_cancelled(&error), "{error:?}");
    assert!(matches!(error, Error::Device { split, .. } if split.index() == 2), "{error:?}");
}

#[test]
fn another_thread_can_cancel_a_run() {
    let Watched { mut session, plan, x, made } = watched(300, Duration::from_millis(20), |_| false);
    set(&mut session, plan, x, &[0.0; 4]);
    let cancel = Cancel::new();
    let options = RunOptions { cancel: Some(cancel.clone()), ..RunOptions::default() };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(60));
            cancel.cancel();
        });
        let error = session.run(plan, &options).unwrap_err();
        assert!(is_cancelled(&error), "{error:?}");
    });
    // All of it would take 6 seconds.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let mut short = watched(3, Duration::ZERO, |_| false);
    set(&mut short.session, short.plan, short.x, &[1.0; 4]);
    run(&mut short.session, short.plan);
    assert_eq!(get(&short.session, short.plan, short.made[2], 4), [8.0; 4]);
    session.get(plan, made[299], &mut [0; 16]).unwrap_err();
}

#[test]
fn observed_results_of_random_graphs_are_what_one_device_computes() {
    let mut compared = 0;
    for seed in 0..60 {
        let (graph, feeds) = generate::graph(seed + 7_000, &generate::Size { moves: 16, elements: 100 });
        let reference: Arc<dyn Device> = ReferenceDevice::new();
        let outputs = run_unplanned(&reference, &graph, &feeds).unwrap();
        let machine = private_machine(seed);
        let (mut session, plan) = observed_session(&machine, &graph, &feeds);
        let mut written = vec![0; graph.tensors().len()];
        for node in graph.nodes().iter().filter(|node| !node.op.is_view()) {
            written[graph.tensor(node.output).storage.root.index()] += 1;
        }
        let mut observe = |id: TensorId, bytes: &[u8]| {
            // What is written once is at the end what it was then.
            if written[id.index()] == 1 {
                assert_eq!(packed(&graph, id, bytes), outputs.bytes(id).unwrap(), "graph {seed}, {id}");
                compared += 1;
            }
            true
        };
        session.run_observed(plan, &RunOptions::default(), &mut observe).unwrap();
    }
    assert!(compared > 600, "{compared}");
}

/// A random graph with everything set and every result observed.
fn observed_session(machine: &Machine, graph: &Graph, feeds: &Feeds) -> (Session, PlanId) {
    let last = machine.devices().last().unwrap();
    let mut externals = Externals::new();
    for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
        let set = [SetTensor::new(graph.tensor(id).name.as_str(), graph.tensor(id).desc)];
        let set = TensorSet::allocate(&memory_of(&**last), &set).unwrap();
        externals.insert(id, set.tensors()[0].clone());
    }
    let mut all = constraints(graph, &externals);
    let computed = graph.nodes().iter().filter(|node| !node.op.is_view());
    all.observed = computed.map(|node| node.output).collect();
    let devices: Vec<DeviceId> = machine.indices().collect();
    let ids: Vec<_> = graph.node_ids().collect();
    all.assigned = assignments(graph, |node| {
        let device = devices[Random::nth(3, node as u64) as usize % devices.len()];
        machine.can_run(device, graph, ids[node]).then_some(device)
    });
    let placement = place_by_rules(graph, machine, &all).unwrap();
    let mut session = Session::new(machine.clone(), SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(graph, &externals, &all, placement).unwrap();
    for (id, bytes) in feeds {
        match externals.get(*id) {
            Some(stored) => stored.set(0, bytes).unwrap(),
            None => session.set(plan, *id, bytes).unwrap(),
        }
    }
    (session, plan)
}

#[test]
fn what_others_read_or_see_is_not_fused_away() {
    let twin = Forward::new(private("base").build(), Twin::new("twin"));
    let other = private("other").build();
    let machine = Machine::new([twin.clone() as Arc<dyn Device>, other]).unwrap();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let mut made = vec![x];
    for _ in 0..6 {
        made.push(b.scale(made[made.len() - 1], 2.0));
    }
    let aside = b.sqr(made[6]);
    let flat = b.reshape(made[5], &[2, 2]);
    let far = b.sum(flat);
    b.output(made[6]);
    b.output(far);
    let graph = b.build().unwrap();
    let [here, there] = ["twin", "other"].map(|name| machine.find(name).unwrap());
    let mut assigned: HashMap<TensorId, DeviceId> = made[1..].iter().map(|id| (*id, here)).collect();
    assigned.insert(aside, here);
    assigned.insert(far, there);
    let constraints = Constraints { assigned, observed: [aside].into(), ..Constraints::default() };
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    Planned::new(&graph, &machine, &constraints, placement, &SessionOptions::default()).unwrap();
    // Read through a view on another device, an output, and observed though it is unread.
    assert_eq!(*twin.hooks().escaped.lock().unwrap(), [made[5], made[6], aside]);
}
