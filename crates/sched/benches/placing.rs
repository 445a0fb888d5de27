//! Time to place, split and plan a graph over two devices, per node; and of runs placed by rules and by cost, one after
//! the other and two in flight. Prints; a person compares.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{BufferType, Device, Link, Role, RunOptions};
use orlop_graph::{DType, Graph, GraphBuilder, Leaf, TensorId};
use orlop_sched::{
    ChainPart, ChainProblem, Constraints, CostOptions, Machine, PartCost, Planned, Session, SessionOptions,
    constraints, place_by_cost, place_by_rules, split,
};
use orlop_testkit::devices::TestDevice;
use orlop_testkit::generate::{self, BlockSize, ExpertShape};
use orlop_testkit::{Feeds, ReferenceDevice};

fn main() {
    solve(100, 128);
    let device =
        |name: &str| -> Arc<dyn Device> { TestDevice::builder(ReferenceDevice::new()).name(name).build() };
    let machine = Machine::new([device("a"), device("b")]).expect("two devices");
    println!(
        "{:>7}  {:>8}  {:>6}  {:>24}  {:>10}  {:>9}",
        "nodes", "layers", "splits", "what", "total", "a node"
    );
    for nodes in [1_000, 10_000] {
        for (layers, second) in [("half", false), ("second", true)] {
            report(&machine, nodes, layers, second);
        }
    }
    println!("\n{:>8}  {:>24}  {:>10}  {:>10}  {:>14}", "model", "layers", "rules", "cost", "rules, depth 2");
    let experts = Some(ExpertShape { count: 4, used: 2 });
    for (model, experts) in [("dense", None), ("experts", experts)] {
        let size = BlockSize { experts, ..BlockSize::default() };
        let (graph, feeds) = generate::blocks(&size, LAYERS).expect("a model");
        compare(model, "half on each", &graph, &feeds, |layer| 2 * layer / LAYERS);
        compare(model, "every second on each", &graph, &feeds, |layer| layer % 2);
    }
}

/// Time to choose a device for each of many experts.
fn solve(layers: usize, experts: usize) {
    let costs = |bytes: u64, uses: f64| -> Vec<Option<PartCost>> {
        let rates = [1.0, 4.0, 16.0, 64.0];
        rates.iter().map(|rate| Some(PartCost { bytes, seconds: rate * uses * bytes as f64 })).collect()
    };
    let hops = |seconds: f64| -> Arc<[Vec<f64>]> {
        let from = |from| (0..4).map(|to| if from == to { 0.0 } else { seconds }).collect();
        (0..4).map(from).collect()
    };
    let (free, between) = (hops(0.0), hops(50.0));
    let layer = |layer: usize| {
        let expert = move |index: usize| 1.0 / (1 + (index * 37 + layer * 11) % experts) as f64;
        let attention = ChainPart { costs: costs(300, 1.0), hops: Arc::clone(&between) };
        let experts =
            (0..experts).map(|index| ChainPart { costs: costs(100, expert(index)), hops: Arc::clone(&free) });
        std::iter::once(attention).chain(experts).collect::<Vec<_>>()
    };
    let all = (layers * (300 + 100 * experts)) as u64;
    let capacity = vec![all / 8, all / 6, all / 4, all];
    let problem = ChainProblem { capacity, parts: (0..layers).flat_map(layer).collect() };
    let begin = Instant::now();
    let found = black_box(problem.solve(ChainProblem::EFFORT)).expect("the last device has room");
    let (time, gap) = (begin.elapsed(), found.seconds / found.bound - 1.0);
    println!(
        "\n{layers} layers of {experts} experts on 4 devices: {time:.1?}, at most {:.2} % from the best",
        100.0 * gap
    );
}

const LAYERS: usize = 6;

/// Wall-clock time of runs on two devices beside the host, where steps and copies take the time that is said.
fn compare(model: &str, layers: &str, graph: &Graph, feeds: &Feeds, at: impl Fn(usize) -> usize) {
    let (copy, link) = (Duration::from_micros(300), Link { bytes_per_second: 1e10, latency_seconds: 3e-4 });
    let devices = [("g", 60), ("c", 180)].map(|(name, micros)| {
        TestDevice::builder(ReferenceDevice::new())
            .name(name)
            .asynchronous(true)
            .step_delay(Duration::from_micros(micros))
            .launch_seconds(micros as f64 * 1e-6)
            .copy_delay(copy)
            .host_link(link)
            .build()
    });
    let machine =
        Machine::new(devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>)).expect("two");
    let mut externals = Externals::new();
    let mut bytes = 0;
    for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
        let tensor = graph.tensor(id);
        let layer = tensor.name.split('.').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
        let memory = &devices[at(layer)].buffer_types(Role::Weight)[0];
        let set = TensorSet::allocate(memory, &[SetTensor::new(tensor.name.as_str(), tensor.desc)])
            .expect("memory");
        let fed = feeds.iter().find(|(fed, _)| *fed == id).map(|(_, bytes)| bytes);
        fed.into_iter().for_each(|fed| set.tensors()[0].set(0, fed).expect("it fits"));
        bytes += tensor.desc.bytes();
        externals.insert(id, set.tensors()[0].clone());
    }
    let constraints = constraints(graph, &externals);
    let resident = machine.indices().map(|device| (device, bytes / 4)).collect();
    let options = CostOptions { resident, ..CostOptions::default() };
    let rules = place_by_rules(graph, &machine, &constraints).expect("everything runs somewhere");
    let cost = place_by_cost(graph, &machine, &constraints, &options).expect("everything runs somewhere");
    let run = |placement, depth: usize| {
        let options = SessionOptions { depth, ..SessionOptions::default() };
        let mut session = Session::new(machine.clone(), options).expect("queues");
        let plan = session.prepare_placed(graph, &externals, &constraints, placement).expect("a plan");
        let mut flying = Vec::new();
        let mut once = |session: &mut Session, runs: usize| {
            for _ in 0..runs {
                if flying.len() == depth {
                    session.wait(flying.remove(0)).expect("a run");
                }
                for (id, bytes) in feeds.iter().filter(|(id, _)| graph.root_leaf(*id) == Some(Leaf::Input)) {
                    session.set(plan, *id, bytes).expect("an input");
                }
                flying.push(session.start(plan, &RunOptions::default()).expect("a run"));
            }
            flying.drain(..).for_each(|run| session.wait(run).expect("a run"));
        };
        once(&mut session, 1);
        let begin = Instant::now();
        once(&mut session, 6);
        begin.elapsed() / 6
    };
    let times = [run(rules.clone(), 1), run(cost, 1), run(rules, 2)].map(|time| time.as_secs_f64() * 1e3);
    println!("{model:>8}  {layers:>24}  {:>7.1} ms  {:>7.1} ms  {:>11.1} ms", times[0], times[1], times[2]);
}

fn report(machine: &Machine, nodes: usize, layers: &str, every_second: bool) {
    let (graph, constraints) = transformer(machine, nodes, every_second);
    let nodes = graph.nodes().len();
    let placement = place_by_rules(&graph, machine, &constraints).expect("everything runs somewhere");
    let schedule = split(&graph, machine, &constraints, &placement);
    let options = SessionOptions::default();
    let line = |what: &str, time: Duration| {
        let each = time.as_nanos() as f64 / nodes as f64;
        let total = time.as_secs_f64() * 1e3;
        println!(
            "{nodes:>7}  {layers:>8}  {:>6}  {what:>24}  {total:>7.2} ms  {each:>6.0} ns",
            schedule.splits.len()
        );
    };
    line("place by rules", time(|| place_by_rules(&graph, machine, &constraints)));
    line("split", time(|| split(&graph, machine, &constraints, &placement)));
    let plan = || Planned::new(&graph, machine, &constraints, placement.clone(), &options);
    line("split, lower and plan", time(plan));
}

/// The time of one of many runs: this thread's on a processor where the system tells it, as others may be at work; else
/// the fastest by the clock.
fn time<T>(mut run: impl FnMut() -> T) -> Duration {
    let (mut best, mut count) = (Duration::MAX, 0);
    let (begin, on_processor) = (Instant::now(), time_on_processor());
    while begin.elapsed() < Duration::from_millis(800) {
        let start = Instant::now();
        black_box(run());
        best = best.min(start.elapsed());
        count += 1;
    }
    let took = time_on_processor().zip(on_processor).map(|(now, then)| (now - then) / count);
    took.unwrap_or(best)
}

fn time_on_processor() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Layers of attention and feed-forward whose weights lie on two devices in turn, or half on each.
fn transformer(machine: &Machine, nodes: usize, every_second: bool) -> (Graph, Constraints) {
    const DIM: u64 = 64;
    const NODES_A_LAYER: usize = 16;
    let layers = nodes / NODES_A_LAYER;
    let mut b = GraphBuilder::new();
    let mut constraints = Constraints::default();
    let types: Vec<Arc<dyn BufferType>> =
        machine.devices().iter().map(|device| Arc::clone(&device.buffer_types(Role::Weight)[0])).collect();
    let mut x = b.input("x", DType::F32, &[DIM, 8]);
    for layer in 0..layers {
        let device = if every_second { layer % 2 } else { 2 * layer / layers };
        let mut weight = |b: &mut GraphBuilder, extents: &[u64]| -> TensorId {
            let desc = orlop_graph::TensorDesc::contiguous(DType::F32, extents);
            let id = b.leaf(Leaf::Weight, "w", desc);
            constraints.pinned.insert(id, Arc::clone(&types[device]));
            id
        };
        let (norm, square) = (weight(&mut b, &[DIM]), weight(&mut b, &[DIM, DIM]));
        let (up, down) = (weight(&mut b, &[DIM, 4 * DIM]), weight(&mut b, &[4 * DIM, DIM]));
        let n = b.rms_norm(x, 1e-5);
        let n = b.mul(n, norm);
        let (q, k, v) = (b.mul_mat(square, n), b.mul_mat(square, n), b.mul_mat(square, n));
        let scores = b.mul_mat(k, q);
        let scores = b.soft_max(scores, None, 0.125, 0.0);
        let v = b.transpose(v);
        let v = b.cont(v);
        let mixed = b.mul_mat(v, scores);
        let out = b.mul_mat(square, mixed);
        x = b.add(out, x);
        let h = b.mul_mat(up, x);
        let h = b.silu(h);
        let h = b.mul_mat(down, h);
        x = b.add(h, x);
    }
    b.output(x);
    (b.build().expect("the graph is valid"), constraints)
}
