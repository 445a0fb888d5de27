use orlop_alloc::Externals;
use orlop_graph::Graph;
use orlop_sched::{
    Error, Machine, PlanId, Schedule, Session, SessionOptions, SplitId, TransferId, constraints, estimate,
    place_by_rules,
};
use orlop_testkit::{Random, generate};

use crate::equality::{assignments, private_machine};
use crate::support::memory_of;

/// A prepared graph with nodes on random devices.
fn prepare(seed: u64, machine: &Machine, graph: &Graph) -> (Session, PlanId) {
    let last = machine.devices().last().unwrap();
    let mut externals = Externals::new();
    for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
        let tensor = graph.tensor(id);
        let set = [orlop_alloc::SetTensor::new(tensor.name.as_str(), tensor.desc)];
        let set = orlop_alloc::TensorSet::allocate(&memory_of(&**last), &set).unwrap();
        externals.insert(id, set.tensors()[0].clone());
    }
    let mut all = constraints(graph, &externals);
    let ids: Vec<_> = graph.node_ids().collect();
    let devices: Vec<_> = machine.indices().collect();
    all.assigned = assignments(graph, |node| {
        let device = devices[Random::nth(seed, node as u64) as usize % devices.len()];
        machine.can_run(device, graph, ids[node]).then_some(device)
    });
    let placement = place_by_rules(graph, machine, &all).unwrap();
    let mut session = Session::new(machine.clone(), SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(graph, &externals, &all, placement).unwrap();
    (session, plan)
}

fn without(schedule: &Schedule, split: usize, wait: usize) -> Schedule {
    let mut schedule = schedule.clone();
    schedule.splits[split].waits.remove(wait);
    schedule
}

#[test]
fn a_missing_wait_is_found() {
    let mut graphs = 0;
    let (mut edges, mut caught_edges) = (0, 0);
    for seed in 0.. {
        if graphs == 50 {
            break;
        }
        let (graph, _) = generate::graph(seed + 5_000, &generate::Size { moves: 12, elements: 100 });
        let machine = private_machine(seed);
        let (session, plan) = prepare(seed, &machine, &graph);
        session.check_races(plan).unwrap();
        let schedule = session.schedule(plan).unwrap();
        let waits: Vec<(usize, usize)> = schedule
            .splits
            .iter()
            .enumerate()
            .flat_map(|(split, part)| (0..part.waits.len()).map(move |wait| (split, wait)))
            .collect();
        if waits.is_empty() {
            continue;
        }
        graphs += 1;
        let caught = waits.iter().filter(|(split, wait)| {
            let edited = without(schedule, *split, *wait);
            match session.check_races_in(plan, &edited) {
                Ok(()) => false,
                Err(Error::Race(race)) => {
                    assert!(race.before < race.after);
                    true
                }
                Err(other) => panic!("{other:?}"),
            }
        });
        let caught = caught.count();
        assert!(caught > 0, "graph {seed}: none of {} waits is missed", waits.len());
        edges += waits.len();
        caught_edges += caught;
    }
    // Most waits are needed; the rest follow from others.
    assert!(caught_edges * 2 > edges, "{caught_edges} of {edges}");
}

#[test]
fn a_schedule_of_other_splits_is_no_reason_to_panic() {
    let (graph, _) = generate::graph(5_001, &generate::Size { moves: 12, elements: 100 });
    let machine = private_machine(1);
    let (session, plan) = prepare(1, &machine, &graph);
    let mut short = session.schedule(plan).unwrap().clone();
    short.splits.truncate(1);
    let refused = session.check_races_in(plan, &short).unwrap_err();
    assert!(matches!(refused, Error::ForeignSchedule { given: 1, .. }), "{refused:?}");
    let mut tangled = session.schedule(plan).unwrap().clone();
    let last = SplitId::new(tangled.splits.len() + 7);
    tangled.splits.iter_mut().for_each(|split| split.waits = vec![last]);
    let race = session.check_races_in(plan, &tangled).unwrap_err();
    assert!(matches!(race, Error::Race(_)), "{race:?}");
}

/// A prepared graph whose schedule has copies and waits.
fn with_copies() -> (Session, PlanId, Graph, Machine) {
    (5_001..)
        .map(|seed| {
            let (graph, _) = generate::graph(seed, &generate::Size { moves: 12, elements: 100 });
            let machine = private_machine(1);
            let (session, plan) = prepare(seed, &machine, &graph);
            (session, plan, graph, machine)
        })
        .find(|(session, plan, ..)| {
            let schedule = session.schedule(*plan).unwrap();
            schedule.splits.iter().any(|split| !split.transfers.is_empty() && !split.waits.is_empty())
        })
        .unwrap()
}

#[test]
fn a_schedule_of_other_copies_is_no_reason_to_panic() {
    let (session, plan, ..) = with_copies();
    let schedule = session.schedule(plan).unwrap();
    let changes: [fn(&mut Schedule); 3] = [
        |schedule| schedule.splits[0].transfers = vec![TransferId::new(99)],
        |schedule| schedule.splits.iter_mut().for_each(|split| split.transfers.clear()),
        |schedule| schedule.transfers.clear(),
    ];
    for change in changes {
        let mut changed = schedule.clone();
        change(&mut changed);
        let refused = session.check_races_in(plan, &changed).unwrap_err();
        assert!(matches!(refused, Error::ForeignSchedule { .. }), "{refused:?}");
    }
}

#[test]
fn a_schedule_that_cannot_be_has_no_estimate() {
    let (session, plan, graph, machine) = with_copies();
    let schedule = session.schedule(plan).unwrap();
    assert!(estimate(&graph, &machine, schedule).unwrap() >= 0.0);
    let last = schedule.splits.len() - 1;
    let copied = schedule.splits.iter().position(|split| !split.transfers.is_empty()).unwrap();
    let first_copy = schedule.splits[copied].transfers[0].index();
    type Change<'a> = &'a dyn Fn(&mut Schedule);
    let changes: [(usize, Change<'_>); 4] = [
        (0, &|schedule| schedule.splits[0].transfers = vec![TransferId::new(99)]),
        (last, &|schedule| schedule.splits[last].waits.push(SplitId::new(last))),
        (copied, &|schedule| schedule.transfers[first_copy].after = 99),
        (copied, &|schedule| schedule.transfers[first_copy].range.start = u64::MAX),
    ];
    for (split, change) in changes {
        let mut changed = schedule.clone();
        change(&mut changed);
        let refused = estimate(&graph, &machine, &changed).unwrap_err();
        assert!(
            matches!(refused, Error::BadSchedule { split: bad, .. } if bad.index() == split),
            "{refused:?}"
        );
    }
    let (small, _) = generate::graph(1, &generate::Size { moves: 1, elements: 10 });
    assert!(matches!(estimate(&small, &machine, schedule), Err(Error::BadSchedule { .. })));
    let one = Machine::new(machine.devices().iter().take(1).cloned()).unwrap();
    assert!(matches!(estimate(&graph, &one, schedule), Err(Error::UnknownDevice { .. })));
}
