//! Plans that are found again, released, and reserved for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_alloc::Externals;
use orlop_backend::{Device, RunOptions};
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};
use orlop_sched::{
    Constraints, Error, PlanObserver, Planned, Session, SessionOptions, constraints, place_by_rules,
};
use orlop_testkit::devices::{FaultKind, FaultPoint};

use crate::support::{externals, get, machine, private, run, set, stored, two};

fn chain(elements: u64, steps: usize) -> (Graph, TensorId, TensorId) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[elements]);
    let mut y = x;
    for _ in 0..steps {
        y = b.scale(y, 2.0);
    }
    b.output(y);
    (b.build().unwrap(), x, y)
}

#[test]
fn an_equal_graph_is_found_again_and_the_one_not_used_for_longest_goes() {
    let (devices, machine) = two();
    let options = SessionOptions { cache: Some(2), ..SessionOptions::default() };
    let mut session = Session::new(machine, options).unwrap();
    let none = Externals::new();
    let (graph, x, y) = chain(8, 3);
    let first = session.prepare(&graph, &none).unwrap();
    assert_eq!(session.prepare(&chain(8, 3).0, &none).unwrap(), first, "built twice, and equal");
    let second = session.prepare(&chain(8, 4).0, &none).unwrap();
    assert_ne!(first, second);
    set(&mut session, first, x, &[1.0; 8]);
    run(&mut session, first);
    // Two are kept: the second was not used since.
    let third = session.prepare(&chain(16, 3).0, &none).unwrap();
    let gone = session.run(second, &RunOptions::default()).unwrap_err();
    assert!(matches!(gone, Error::UnknownPlan { .. }), "{gone:?}");
    assert_eq!(session.prepare(&graph, &none).unwrap(), first);
    let fourth = session.prepare(&chain(8, 4).0, &none).unwrap();
    assert!(fourth != second && fourth != third, "names are not used twice");
    set(&mut session, first, x, &[1.0; 8]);
    run(&mut session, first);
    assert_eq!(get(&session, first, y, 8), [8.0; 8]);
    let largest = session.memory_plan(first, session.machine().find("g").unwrap()).unwrap().total();
    assert!(devices[0].counters().live_bytes >= largest);
}

/// Weights on `c` that `g` keeps copies of, in more graphs than plans are kept.
#[test]
fn a_plan_that_takes_the_place_of_another_keeps_its_copies_of_weights() {
    for cache in [0, 1, 2] {
        let devices = [private("g").wants_offload(true).build(), private("c").build()];
        let options = SessionOptions { cache: Some(cache), ..SessionOptions::default() };
        let mut session = Session::new(machine(&devices), options).unwrap();
        let g = session.machine().find("g").unwrap();
        let graph = |factor: f32, weights: &[&str]| {
            let mut b = GraphBuilder::new();
            let x = b.input("x", DType::F32, &[64]);
            let leaves: Vec<TensorId> =
                weights.iter().map(|name| b.weight(name, DType::F32, &[64])).collect();
            let y = leaves.iter().fold(x, |y, w| b.add(y, *w));
            let z = b.scale(y, factor);
            b.output(z);
            (b.build().unwrap(), x, leaves, z)
        };
        let (shared, _, leaves, _) = graph(1.0, &["shared"]);
        let shared = stored(&*devices[1], &shared, leaves[0], &[1.0; 64]);
        for factor in 1..5 {
            let (graph, x, leaves, z) = graph(factor as f32, &["shared", "own"]);
            let own = stored(&*devices[1], &graph, leaves[1], &[factor as f32; 64]);
            let given = externals(&[(leaves[0], shared.clone()), (leaves[1], own)]);
            let plan = session.prepare(&graph, &given).unwrap();
            let plans = cache.max(1).min(factor) as u64;
            assert_eq!(session.resident_bytes(g), (1 + plans) * 256, "the shared one, and one a plan");
            set(&mut session, plan, x, &[2.0; 64]);
            run(&mut session, plan);
            assert_eq!(get(&session, plan, z, 64), [(3 + factor) as f32 * factor as f32; 64]);
        }
    }
}

#[test]
fn a_parameter_or_another_memory_makes_another_plan() {
    let (devices, machine) = two();
    let options = SessionOptions { cache: Some(9), ..SessionOptions::default() };
    let mut session = Session::new(machine, options).unwrap();
    let graph = |factor: f32| {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[4]);
        let w = b.weight("w", DType::F32, &[4]);
        let y = b.add(x, w);
        let z = b.scale(y, factor);
        b.output(z);
        (b.build().unwrap(), w)
    };
    let (one, w) = graph(2.0);
    let weight = stored(&*devices[0], &one, w, &[1.0; 4]);
    let first = session.prepare(&one, &externals(&[(w, weight.clone())])).unwrap();
    assert_eq!(session.prepare(&graph(2.0).0, &externals(&[(w, weight.clone())])).unwrap(), first);
    assert_ne!(session.prepare(&graph(3.0).0, &externals(&[(w, weight)])).unwrap(), first);
    let elsewhere = stored(&*devices[0], &one, w, &[1.0; 4]);
    assert_ne!(session.prepare(&one, &externals(&[(w, elsewhere)])).unwrap(), first);
}

#[test]
fn without_a_cache_every_preparation_is_a_plan_of_its_own() {
    let (_, machine) = two();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let (graph, ..) = chain(8, 3);
    let first = session.prepare(&graph, &Externals::new()).unwrap();
    assert_ne!(session.prepare(&graph, &Externals::new()).unwrap(), first);
}

#[test]
fn a_released_plan_gives_back_all_but_the_arenas() {
    let devices = [private("g").wants_offload(true).build(), private("c").build()];
    let machine = machine(&devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let w = b.weight("w", DType::F32, &[4]);
    let p = b.persistent("p", DType::F32, &[4]);
    let y = b.add(x, w);
    let z = b.mul(y, p);
    b.output(z);
    let graph = b.build().unwrap();
    let given = externals(&[(w, stored(&*devices[1], &graph, w, &[1.0; 4]))]);
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let [first, second] = [0, 1].map(|_| session.prepare(&graph, &given).unwrap());
    for plan in [first, second] {
        set(&mut session, plan, p, &[2.0; 4]);
        set(&mut session, plan, x, &[1.0; 4]);
        run(&mut session, plan);
        assert_eq!(get(&session, plan, z, 4), [4.0; 4]);
    }
    let arena = session.arena_bytes(session.machine().find("g").unwrap());
    session.release(first).unwrap();
    assert!(matches!(session.release(first), Err(Error::UnknownPlan { .. })));
    set(&mut session, second, x, &[2.0; 4]);
    run(&mut session, second);
    assert_eq!(get(&session, second, z, 4), [6.0; 4], "the copy of the weight is still there");
    session.release(second).unwrap();
    assert_eq!(devices[0].counters().live_bytes, arena);
    let again = session.prepare(&graph, &given).unwrap();
    set(&mut session, again, p, &[2.0; 4]);
    set(&mut session, again, x, &[1.0; 4]);
    run(&mut session, again);
    assert_eq!(get(&session, again, z, 4), [4.0; 4]);
}

#[test]
fn what_was_reserved_is_enough_for_what_was_measured_and_no_more() {
    let (devices, machine) = two();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let (none, free) = (Externals::new(), Constraints::default());
    let (small, x, y) = chain(8, 3);
    let (large, ..) = chain(800, 3);
    let refused = session.prepare_within(&small, &none, &free).unwrap_err();
    assert!(matches!(refused, Error::WouldGrow { reserved: 0, .. }), "{refused:?}");
    let sizes = session.reserve_size(&small, &none, &free).unwrap();
    assert!(devices.iter().all(|device| device.counters().live_bytes == 0), "measuring allocates nothing");
    session.reserve(&small, &none, &free).unwrap();
    for (device, bytes) in sizes {
        assert_eq!(session.arena_bytes(device), bytes);
        assert_eq!(devices[device.index()].counters().live_bytes, bytes);
    }
    let plan = session.prepare_within(&small, &none, &free).unwrap();
    set(&mut session, plan, x, &[1.0; 8]);
    let refused = session.prepare_within(&large, &none, &free).unwrap_err();
    let Error::WouldGrow { needed, reserved, .. } = refused else { panic!("{refused:?}") };
    assert!(needed > reserved && reserved > 0);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, y, 8), [8.0; 8], "a refusal changes nothing");
    session.reserve(&large, &none, &free).unwrap();
    session.prepare_within(&large, &none, &free).unwrap();
}

/// A weight on `c` that `g` uses: with room for it, it stays there; without, every run brings it.
#[test]
fn weights_stay_while_the_budget_allows_and_are_brought_in_every_run_if_not() {
    let devices = [private("g").wants_offload(true).build(), private("c").build()];
    let machine = machine(&devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64]);
    let weights: Vec<TensorId> = (0..4).map(|n| b.weight(&format!("w{n}"), DType::F32, &[64])).collect();
    let mut y = x;
    for w in &weights {
        y = b.add(y, *w);
    }
    b.output(y);
    let graph = b.build().unwrap();
    let given: Vec<_> = weights.iter().map(|w| (*w, stored(&*devices[1], &graph, *w, &[1.0; 64]))).collect();
    let given = externals(&given);
    let all = constraints(&graph, &given);
    let placement = place_by_rules(&graph, &machine, &all).unwrap();
    let g = machine.find("g").unwrap();
    let free = Planned::new(&graph, &machine, &all, placement.clone(), &SessionOptions::default()).unwrap();
    let arena = free.memory_plan(&machine, g).total();
    assert_eq!(free.resident_bytes(g), 4 * 256);
    let mut kept = Vec::new();
    for budget in [arena + 4 * 256, arena + 3 * 256, arena + 2 * 256, arena + 256] {
        let options = SessionOptions { budgets: [(g, budget)].into(), ..SessionOptions::default() };
        let planned = Planned::new(&graph, &machine, &all, placement.clone(), &options).unwrap();
        assert!(planned.memory_plan(&machine, g).total() + planned.resident_bytes(g) <= budget);
        kept.push(planned.resident_bytes(g) / 256);
        let before = devices[0].counters().live_bytes;
        let mut session = Session::new(machine.clone(), options).unwrap();
        let plan = session.prepare_placed(&graph, &given, &all, placement.clone()).unwrap();
        assert!(devices[0].counters().live_bytes - before <= budget);
        for _ in 0..2 {
            let copies = devices[0].counters().copies;
            set(&mut session, plan, x, &[1.0; 64]);
            run(&mut session, plan);
            assert_eq!(get(&session, plan, y, 64), [5.0; 64]);
            let brought = devices[0].counters().copies - copies;
            assert_eq!(brought, 4 - planned.resident_bytes(g) / 256);
        }
    }
    assert!(kept[0] == 4 && kept.windows(2).all(|two| two[0] >= two[1]) && kept[3] < 4, "{kept:?}");
    let narrow = SessionOptions { budgets: [(g, arena / 2)].into(), ..SessionOptions::default() };
    let refused = Planned::new(&graph, &machine, &all, placement, &narrow).unwrap_err();
    assert!(matches!(refused, Error::OverBudget { .. }), "{refused:?}");
}

/// Weights on `c`, work on both.
fn spread_over(
    devices: &[Arc<orlop_testkit::devices::TestDevice>],
) -> (Session, orlop_sched::PlanId, [TensorId; 3]) {
    let machine = machine(devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let w = b.weight("w", DType::F32, &[4]);
    let p = b.persistent("p", DType::F32, &[4]);
    let h = b.scale(x, 3.0);
    let y = b.add(h, w);
    let z = b.mul(y, p);
    b.output(z);
    let graph = b.build().unwrap();
    let given = externals(&[(w, stored(&*devices[1], &graph, w, &[1.0; 4]))]);
    let mut all = constraints(&graph, &given);
    let [g, c] = ["g", "c"].map(|name| machine.find(name).unwrap());
    all.assigned = [(h, g), (y, c), (z, c)].into();
    let placement = place_by_rules(&graph, &machine, &all).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(&graph, &given, &all, placement).unwrap();
    set(&mut session, plan, p, &[2.0; 4]);
    (session, plan, [x, p, z])
}

#[test]
fn a_graph_goes_on_without_a_lost_device_if_nothing_lay_there() {
    for asynchronous in [false, true] {
        let devices = ["g", "c"].map(|name| private(name).asynchronous(asynchronous).build());
        let (mut session, plan, [x, p, z]) = spread_over(&devices);
        assert_eq!(session.recover().unwrap(), Vec::<String>::new(), "nothing is lost yet");
        set(&mut session, plan, x, &[1.0; 4]);
        devices[0].faults().fail(FaultPoint::Submit, 1, FaultKind::Lost);
        let lost = session.run(plan, &RunOptions::default()).unwrap_err();
        let Error::DeviceLost { device, tensors, .. } = &lost else { panic!("{lost:?}") };
        assert_eq!((device.as_str(), tensors.len()), ("g", 0));
        assert_eq!(session.recover().unwrap(), ["g"]);
        assert_eq!(session.machine().devices().len(), 1);
        set(&mut session, plan, x, &[1.0; 4]);
        run(&mut session, plan);
        assert_eq!(get(&session, plan, z, 4), [8.0; 4]);
        assert_eq!(get(&session, plan, p, 4), [2.0; 4], "what persists came along");
    }
}

#[test]
fn data_that_was_lost_with_a_device_is_named() {
    let devices = ["g", "c"].map(|name| private(name).asynchronous(true).build());
    let (mut session, plan, [x, ..]) = spread_over(&devices);
    set(&mut session, plan, x, &[1.0; 4]);
    devices[1].faults().fail(FaultPoint::Submit, 1, FaultKind::Lost);
    let lost = session.run(plan, &RunOptions::default()).unwrap_err();
    let Error::DeviceLost { device, tensors, .. } = &lost else { panic!("{lost:?}") };
    assert_eq!(
        (device.as_str(), tensors.as_slice()),
        (devices[1].name(), &["w".to_owned(), "p".to_owned()][..])
    );
    assert!(lost.to_string().contains("w, p"), "{lost}");
    let named = Error::DataLost { tensors: vec!["p".to_owned(), "w".to_owned()] };
    assert_eq!(session.recover().unwrap_err(), named);
    assert_eq!(session.machine().devices().len(), 2, "as it was");
}

/// Weights that are to be brought in every run: each comes while the split before the one that reads it is computed.
#[test]
fn weights_that_do_not_stay_come_one_split_ahead() {
    let devices = [private("g").wants_offload(true).build(), private("c").build()];
    let machine = machine(&devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64]);
    let weights: Vec<TensorId> = (0..4).map(|n| b.weight(&format!("w{n}"), DType::F32, &[64])).collect();
    let y = weights.iter().fold(x, |y, w| b.add(y, *w));
    b.output(y);
    let graph = b.build().unwrap();
    let given: Vec<_> = weights.iter().map(|w| (*w, stored(&*devices[1], &graph, *w, &[1.0; 64]))).collect();
    let given = externals(&given);
    let options = SessionOptions { keep_offloaded: false, ..SessionOptions::default() };
    let all = constraints(&graph, &given);
    let placement = place_by_rules(&graph, &machine, &all).unwrap();
    let planned = Planned::new(&graph, &machine, &all, placement, &options).unwrap();
    let g = machine.find("g").unwrap();
    assert_eq!(planned.resident_bytes(g), 0);
    let brought: Vec<usize> = planned.schedule().transfers.iter().map(|copy| copy.split.index()).collect();
    assert_eq!(brought, [0, 0, 1, 2]);
    // Room for what is computed with and for the next.
    assert_eq!(planned.memory_plan(&machine, g).total(), 3 * 256);
    let mut session = Session::new(machine, options).unwrap();
    let plan = session.prepare(&graph, &given).unwrap();
    session.check_races(plan).unwrap();
    for run_number in 0..3 {
        set(&mut session, plan, x, &[run_number as f32; 64]);
        run(&mut session, plan);
        assert_eq!(get(&session, plan, y, 64), [run_number as f32 + 4.0; 64]);
    }
}

/// A plan that was made apart from the session is run as it is; one for something else is refused.
#[test]
fn a_session_adopts_a_plan_without_planning_again() {
    let devices = [private("g").build(), private("c").build()];
    let machine = machine(&devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64]);
    let w = b.weight("w", DType::F32, &[64]);
    let y = b.add(x, w);
    b.output(y);
    let graph = b.build().unwrap();
    let on = |device: usize| externals(&[(w, stored(&*devices[device], &graph, w, &[1.0; 64]))]);
    let plannings = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&plannings);
    let observer = PlanObserver::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let options = SessionOptions { observer, ..SessionOptions::default() };
    let given = on(1);
    let planned = Planned::by_rules(&graph, &machine, &constraints(&graph, &given), &options).unwrap();
    let planned = Arc::new(planned);
    let mut session = Session::new(machine.clone(), options.clone()).unwrap();
    let none_fits = session.adopt_within(&graph, &given, Arc::clone(&planned)).unwrap_err();
    assert!(matches!(none_fits, Error::WouldGrow { .. }), "{none_fits:?}");
    let plan = session.adopt(&graph, &given, Arc::clone(&planned)).unwrap();
    session.adopt_within(&graph, &given, Arc::clone(&planned)).unwrap();
    set(&mut session, plan, x, &[2.0; 64]);
    run(&mut session, plan);
    assert_eq!(get(&session, plan, y, 64), [3.0; 64]);
    assert_eq!(plannings.load(Ordering::Relaxed), 1);

    let said = |result: Result<_, Error>| result.unwrap_err().to_string();
    let elsewhere = session.adopt(&graph, &on(0), Arc::clone(&planned));
    assert_eq!(said(elsewhere), "the plan was made for other memory of `w`");
    let (other, ..) = chain(64, 2);
    let another = session.adopt(&other, &Externals::new(), Arc::clone(&planned));
    assert_eq!(said(another), "the plan was made for another graph");
    let deep = SessionOptions { depth: 2, ..options };
    let shallow = Session::new(machine, deep).unwrap().adopt(&graph, &given, planned);
    assert_eq!(said(shallow), "the plan was made for 1 runs in flight at a time");
}

#[test]
fn an_equal_graph_that_is_found_again_has_the_persistent_contents_of_the_old_plan() {
    let (_, machine) = two();
    let graph = || {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[4]);
        let kept = b.persistent("kept", DType::F32, &[4]);
        let y = b.add(x, kept);
        b.output(y);
        (b.build().unwrap(), x, kept, y)
    };
    for (cache, expected) in [(Some(2), Some(11.0)), (None, None)] {
        let options = SessionOptions { cache, ..SessionOptions::default() };
        let mut session = Session::new(machine.clone(), options).unwrap();
        let (first, _, kept, _) = graph();
        let plan = session.prepare(&first, &Externals::new()).unwrap();
        set(&mut session, plan, kept, &[10.0; 4]);
        let (equal, x, kept, y) = graph();
        let again = session.prepare(&equal, &Externals::new()).unwrap();
        assert_eq!(again == plan, cache.is_some());
        if expected.is_none() {
            // A plan of its own has persistent leaves of its own.
            set(&mut session, again, kept, &[0.0; 4]);
        }
        set(&mut session, again, x, &[1.0; 4]);
        run(&mut session, again);
        assert_eq!(get(&session, again, y, 4), [expected.unwrap_or(1.0); 4]);
    }
}

#[test]
fn assigning_and_observing_is_one_call_and_reserving_takes_the_same_constraints() {
    let (_, machine) = two();
    let [g, c] = ["g", "c"].map(|name| machine.find(name).unwrap());
    let (graph, x, y) = chain(8, 3);
    let made: Vec<TensorId> = graph.nodes().iter().map(|node| node.output).collect();
    let wishes = Constraints {
        assigned: [(made[0], g), (made[1], c), (made[2], g)].into(),
        observed: [made[1]].into(),
        ..Constraints::default()
    };
    let options = SessionOptions { cache: Some(4), ..SessionOptions::default() };
    let mut session = Session::new(machine, options).unwrap();
    let none = Externals::new();
    session.reserve(&graph, &none, &wishes).unwrap();
    let sizes = session.reserve_size(&graph, &none, &wishes).unwrap();
    assert!(sizes.iter().all(|(device, bytes)| *bytes > 0 && session.arena_bytes(*device) == *bytes));
    let plan = session.prepare_within(&graph, &none, &wishes).unwrap();
    assert_eq!(session.prepare_with(&graph, &none, &wishes).unwrap(), plan, "the same constraints");
    assert_ne!(session.prepare(&graph, &none).unwrap(), plan, "others");
    let devices: Vec<_> = session.schedule(plan).unwrap().splits.iter().map(|split| split.device).collect();
    assert_eq!(devices, [g, c, g]);
    set(&mut session, plan, x, &[1.0; 8]);
    let mut seen = Vec::new();
    let mut observe = |id: TensorId, _: &[u8]| {
        seen.push(id);
        true
    };
    session.run_observed(plan, &RunOptions::default(), &mut observe).unwrap();
    assert_eq!(seen, [made[1]]);
    assert_eq!(get(&session, plan, y, 8), [8.0; 8]);
}

#[test]
fn the_device_of_a_stored_tensor_and_of_a_buffer_is_found() {
    let (devices, machine) = two();
    let mut b = GraphBuilder::new();
    let w = b.weight("w", DType::F32, &[4]);
    let y = b.sqr(w);
    b.output(y);
    let graph = b.build().unwrap();
    for (device, id) in devices.iter().zip(machine.indices()) {
        let tensor = stored(&**device, &graph, w, &[1.0; 4]);
        assert_eq!(machine.device_of(&tensor), Some(id));
        assert_eq!(machine.device_of_buffer(&*tensor.slot().buffer), Some(id));
    }
    let stranger = stored(&*private("stranger").build(), &graph, w, &[1.0; 4]);
    assert_eq!(machine.device_of(&stranger), None);
}

#[test]
fn a_plan_is_adopted_without_planning_again_and_only_for_an_equal_graph() {
    let (_, machine) = two();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let observer = PlanObserver::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let options = SessionOptions { observer, ..SessionOptions::default() };
    let (graph, x, y) = chain(8, 3);
    let free = Constraints::default();
    let planned = Arc::new(Planned::by_rules(&graph, &machine, &free, &options).unwrap());
    let mut session = Session::new(machine, options).unwrap();
    let none = Externals::new();
    let plan = session.adopt(&graph, &none, Arc::clone(&planned)).unwrap();
    let again = session.adopt_within(&chain(8, 3).0, &none, Arc::clone(&planned)).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1, "planned once, adopted twice");
    for plan in [plan, again] {
        set(&mut session, plan, x, &[1.0; 8]);
        run(&mut session, plan);
        assert_eq!(get(&session, plan, y, 8), [8.0; 8]);
    }
    // The same structure, with another factor.
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[8]);
    let y = (0..3).fold(x, |y, _| b.scale(y, 3.0));
    b.output(y);
    let other = b.build().unwrap();
    let refused = session.adopt(&other, &none, planned).unwrap_err();
    assert!(matches!(refused, Error::ForeignPlan { .. }), "{refused:?}");
}
