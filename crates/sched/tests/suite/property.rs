//! Random graphs × devices, supports, pins, assignments, budgets, runs in flight.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Device, RunOptions};
use orlop_graph::{DType, Graph, Leaf, TensorId};
use orlop_sched::{
    Constraints, DeviceId, Error, Machine, Placement, Planned, RunId, Session, SessionOptions, constraints,
    place_by_rules,
};
use orlop_testkit::devices::TestDevice;
use orlop_testkit::guard::Guarded;
use orlop_testkit::{Feeds, Forward, Random, ReferenceDevice, generate, kept};

use crate::equality::{assignments, packed};
use crate::support::{Twin, memory_of};

/// Contents of inputs for one run: floats take turns from run to run.
fn feeds_of_run(graph: &Graph, feeds: &Feeds, run: usize) -> Feeds {
    let turned = |(id, bytes): &(TensorId, Vec<u8>)| {
        let mut bytes = bytes.clone();
        if graph.tensor(*id).desc.dtype == DType::F32 && !bytes.is_empty() {
            let turns = 4 * run % bytes.len();
            bytes.rotate_left(turns);
        }
        (*id, bytes)
    };
    let inputs = feeds.iter().filter(|(id, _)| graph.root_leaf(*id) == Some(Leaf::Input));
    inputs.map(turned).collect()
}

/// Memory for external leaves, each on the device that `at` says.
pub(crate) fn memory(graph: &Graph, feeds: &Feeds, at: impl Fn(TensorId) -> Arc<dyn Device>) -> Externals {
    let mut externals = Externals::new();
    for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
        let tensor = graph.tensor(id);
        let set = [SetTensor::new(tensor.name.as_str(), tensor.desc)];
        let set = TensorSet::allocate(&memory_of(&*at(id)), &set).unwrap();
        let zeros = vec![0; tensor.desc.bytes() as usize];
        let fed = feeds.iter().find(|(fed, _)| *fed == id).map_or(&zeros, |(_, bytes)| bytes);
        set.tensors()[0].set(0, fed).unwrap();
        externals.insert(id, set.tensors()[0].clone());
    }
    externals
}

/// What each of several runs gives on one device, one after the other, and what is kept in the end.
fn expected(graph: &Graph, feeds: &Feeds, runs: usize) -> (Vec<Feeds>, Feeds) {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let externals = memory(graph, feeds, |_| Arc::clone(&device));
    let mut session = Session::new(Machine::new([device]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(graph, &externals).unwrap();
    for (id, bytes) in persistent(graph, feeds) {
        session.set(plan, id, &bytes).unwrap();
    }
    let mut results = Vec::new();
    for run in 0..runs {
        for (id, bytes) in feeds_of_run(graph, feeds, run) {
            session.set(plan, id, &bytes).unwrap();
        }
        session.run(plan, &RunOptions::default()).unwrap();
        let read = |id: TensorId| {
            let mut bytes = vec![0; graph.tensor(id).desc.bytes() as usize];
            session.get(plan, id, &mut bytes).unwrap();
            (id, packed(graph, id, &bytes))
        };
        results.push(kept(graph).into_iter().filter(|id| in_arena(graph, *id)).map(read).collect());
    }
    let read = |id: TensorId| {
        let mut bytes = vec![0; graph.tensor(id).desc.bytes() as usize];
        session.get(plan, id, &mut bytes).unwrap();
        (id, packed(graph, id, &bytes))
    };
    let lasting = kept(graph).into_iter().filter(|id| !in_arena(graph, *id)).map(read).collect();
    (results, lasting)
}

fn in_arena(graph: &Graph, id: TensorId) -> bool {
    matches!(graph.root_leaf(id), None | Some(Leaf::Input))
}

fn persistent(graph: &Graph, feeds: &Feeds) -> Feeds {
    let kept = graph.leaves().filter(|(_, leaf)| *leaf == Leaf::Persistent).map(|(id, _)| id);
    let fed = |id: TensorId| feeds.iter().find(|(fed, _)| *fed == id).map(|(_, bytes)| bytes.clone());
    kept.map(|id| (id, fed(id).unwrap_or_else(|| vec![0; graph.tensor(id).desc.bytes() as usize]))).collect()
}

struct Scene {
    machine: Machine,
    guards: Vec<Arc<Guarded>>,
    /// Devices that run everything, so that anything may lie there.
    able: Vec<Arc<dyn Device>>,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        if seed.is_multiple_of(4) { Scene::guarded(seed) } else { Scene::private(seed) }
    }

    /// A device that watches its memory, under one name or two. The guard knows one place for each storage, so nothing
    /// may be copied.
    fn guarded(seed: u64) -> Scene {
        let guard = Guarded::new(ReferenceDevice::new());
        let base: Arc<dyn Device> = guard.clone();
        let mut devices = vec![Arc::clone(&base)];
        if Random::nth(seed, 1).is_multiple_of(2) {
            devices
                .insert(0, Forward::new(base, Twin { without: &["sqr", "soft_max"], ..Twin::new("twin") }));
        }
        let able = devices.clone();
        Scene { machine: Machine::new(devices).unwrap(), guards: vec![guard], able }
    }

    fn private(seed: u64) -> Scene {
        let count = 1 + Random::nth(seed, 1) % 5;
        let mut able: Vec<Arc<dyn Device>> = Vec::new();
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        for index in 0..count {
            let salt = Random::nth(seed, 10 + index);
            let mut builder = TestDevice::builder(ReferenceDevice::new())
                .name(&format!("r{index}"))
                .alignment(1 << (3 + salt / 4 % 4))
                .fresh_bytes(0xff)
                .asynchronous(salt & 32 != 0)
                .direct_copies(salt & 64 != 0);
            if salt & 128 != 0 {
                let short = Duration::from_micros(20);
                builder = builder.copy_delay(short).step_delay(short);
            }
            let last = index + 1 == count;
            let lacks = !last && salt & 256 != 0;
            if last {
                builder = builder.host_visible(true).reads_host(true);
            } else if lacks {
                builder = builder.without(["sqr", "soft_max", "rms_norm", "get_rows", "set_rows"]);
            }
            let device = builder.build();
            if !lacks {
                able.push(device.clone());
            }
            devices.push(device);
        }
        Scene { machine: Machine::new(devices).unwrap(), guards: Vec::new(), able }
    }
}

/// Budgets that are just enough, or too little for all weights to stay; `None` if even that cannot be.
fn budgets(
    seed: u64,
    graph: &Graph,
    machine: &Machine,
    constraints: &Constraints,
    placement: &Placement,
    options: &SessionOptions,
) -> HashMap<DeviceId, u64> {
    let all = Planned::new(graph, machine, constraints, placement.clone(), options).unwrap();
    let arena = |device: DeviceId| all.memory_plan(machine, device).total();
    let aligned = |device: DeviceId| machine.arena(device).alignment();
    let weights = |device: DeviceId| {
        all.schedule().transfers.iter().filter(move |copy| copy.resident && copy.to == device)
    };
    let enough = |device: DeviceId| {
        arena(device) + weights(device).map(|copy| copy.room.next_multiple_of(aligned(device))).sum::<u64>()
    };
    match Random::nth(seed, 3) % 4 {
        0 => HashMap::new(),
        1 => machine.indices().map(|device| (device, enough(device))).collect(),
        _ => machine
            .indices()
            .map(|device| (device, arena(device) + (enough(device) - arena(device)) / 2))
            .collect(),
    }
}

#[derive(Default)]
struct Seen {
    streamed: usize,
    narrow: usize,
    guarded: usize,
    deep: usize,
    races: usize,
}

fn check(seed: u64, seen: &mut Seen) {
    let (graph, feeds) = generate::graph(seed + 20_000, &generate::Size { moves: 18, elements: 300 });
    let scene = Scene::new(seed);
    let machine = &scene.machine;
    let home = |id: TensorId| {
        let at = Random::nth(seed, 50 + id.index() as u64) as usize % scene.able.len();
        Arc::clone(&scene.able[at])
    };
    let externals = memory(&graph, &feeds, home);
    let mut all = constraints(&graph, &externals);
    let ids: Vec<_> = graph.node_ids().collect();
    let devices: Vec<DeviceId> = machine.indices().collect();
    all.assigned = assignments(&graph, |node| {
        let number = Random::nth(seed, 1_000 + node as u64);
        let device = devices[number as usize / 7 % devices.len()];
        (number.is_multiple_of(2) && machine.can_run(device, &graph, ids[node])).then_some(device)
    });
    let placement = place_by_rules(&graph, machine, &all).unwrap();
    let depth = 1 + Random::nth(seed, 2) as usize % 3;
    let mut options = SessionOptions { depth, ..SessionOptions::default() };
    options.budgets = budgets(seed, &graph, machine, &all, &placement, &options);
    let mut session = Session::new(machine.clone(), options).unwrap();
    let plan = match session.prepare_placed(&graph, &externals, &all, placement) {
        Ok(plan) => plan,
        Err(Error::OverBudget { .. }) => return seen.narrow += 1,
        Err(other) => panic!("graph {seed}: {other:?}"),
    };
    seen.streamed += usize::from(
        session.schedule(plan).unwrap().transfers.iter().any(|copy| copy.constant && !copy.resident),
    );
    seen.guarded += usize::from(!scene.guards.is_empty());
    for device in machine.indices() {
        session.memory_plan(plan, device).unwrap().check().unwrap();
        assert_eq!(
            session.arena_bytes(device),
            session.memory_plan(plan, device).unwrap().total(),
            "graph {seed}"
        );
    }
    session.check_races(plan).unwrap_or_else(|race| panic!("graph {seed}, {depth} runs: {race}"));
    if depth > 1 {
        seen.deep += 1;
        seen.races += usize::from(session.check_races_without_carries(plan).is_err());
    }
    for (id, bytes) in persistent(&graph, &feeds) {
        session.set(plan, id, &bytes).unwrap();
    }
    let runs = depth + 2;
    let (results, lasting) = expected(&graph, &feeds, runs);
    let mut in_flight: VecDeque<(usize, RunId)> = VecDeque::new();
    let finish = |session: &mut Session, (number, run): (usize, RunId)| {
        session.wait(run).unwrap_or_else(|error| panic!("graph {seed}, run {number}: {error:?}"));
        for (id, wanted) in &results[number] {
            let mut bytes = vec![0; graph.tensor(*id).desc.bytes() as usize];
            session.get_of(run, *id, &mut bytes).unwrap();
            assert!(
                packed(&graph, *id, &bytes) == *wanted,
                "graph {seed}, run {number} of depth {depth}, {id}"
            );
        }
    };
    for number in 0..runs {
        if in_flight.len() == depth {
            let oldest = in_flight.pop_front().unwrap();
            finish(&mut session, oldest);
        }
        for (id, bytes) in feeds_of_run(&graph, &feeds, number) {
            session.set(plan, id, &bytes).unwrap();
        }
        in_flight.push_back((number, session.start(plan, &RunOptions::default()).unwrap()));
    }
    in_flight.into_iter().for_each(|run| finish(&mut session, run));
    for (id, wanted) in lasting {
        let mut bytes = vec![0; graph.tensor(id).desc.bytes() as usize];
        session.get(plan, id, &mut bytes).unwrap();
        assert!(packed(&graph, id, &bytes) == wanted, "graph {seed}, {id} in the end");
    }
    let trespasses: Vec<_> = scene.guards.iter().flat_map(|guard| guard.trespasses()).collect();
    assert!(trespasses.is_empty(), "graph {seed}: {trespasses:?}");
}

#[test]
fn whatever_the_devices_budgets_and_runs_in_flight_results_are_those_of_one_device() {
    let mut seen = Seen::default();
    (0..600).for_each(|seed| check(seed, &mut seen));
    let Seen { streamed, narrow, guarded, deep, races } = seen;
    // Every kind has been drawn.
    assert!(streamed > 15 && guarded > 100 && deep > 200, "{streamed} {guarded} {deep}");
    assert!(races > 50, "of {deep} graphs with runs in flight, {races} need to wait for each other");
    assert!(narrow < 60, "{narrow} did not fit");
}
