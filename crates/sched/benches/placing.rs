//! Time to place, split and plan a graph over two devices, per node. Prints; a person compares.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_backend::{BufferType, Device, Role};
use orlop_graph::{DType, Graph, GraphBuilder, Leaf, TensorId};
use orlop_sched::{Machine, Planned, SessionOptions, Wishes, place_by_rules, split};
use orlop_testkit::ReferenceDevice;
use orlop_testkit::devices::TestDevice;

fn main() {
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
}

fn report(machine: &Machine, nodes: usize, layers: &str, every_second: bool) {
    let (graph, wishes) = transformer(machine, nodes, every_second);
    let nodes = graph.nodes().len();
    let placement = place_by_rules(&graph, machine, &wishes).expect("everything runs somewhere");
    let schedule = split(&graph, machine, &wishes, &placement);
    let options = SessionOptions::default();
    let line = |what: &str, time: Duration| {
        let each = time.as_nanos() as f64 / nodes as f64;
        let total = time.as_secs_f64() * 1e3;
        println!(
            "{nodes:>7}  {layers:>8}  {:>6}  {what:>24}  {total:>7.2} ms  {each:>6.0} ns",
            schedule.splits.len()
        );
    };
    line("place by rules", time(|| place_by_rules(&graph, machine, &wishes)));
    line("split", time(|| split(&graph, machine, &wishes, &placement)));
    let plan = || Planned::new(&graph, machine, &wishes, placement.clone(), &options);
    line("split, lower and plan", time(plan));
}

/// The fastest of several runs.
fn time<T>(mut run: impl FnMut() -> T) -> Duration {
    let mut best = Duration::MAX;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(300) {
        let start = Instant::now();
        black_box(run());
        best = best.min(start.elapsed());
    }
    best
}

/// Layers of attention and feed-forward whose weights lie on two devices in turn, or half on each.
fn transformer(machine: &Machine, nodes: usize, every_second: bool) -> (Graph, Wishes) {
    const DIM: u64 = 64;
    const NODES_A_LAYER: usize = 16;
    let layers = nodes / NODES_A_LAYER;
    let mut b = GraphBuilder::new();
    let mut wishes = Wishes::default();
    let types: Vec<Arc<dyn BufferType>> =
        machine.devices().iter().map(|device| Arc::clone(&device.buffer_types(Role::Weight)[0])).collect();
    let mut x = b.input("x", DType::F32, &[DIM, 8]);
    for layer in 0..layers {
        let device = if every_second { layer % 2 } else { 2 * layer / layers };
        let mut weight = |b: &mut GraphBuilder, extents: &[u64]| -> TensorId {
            let desc = orlop_graph::TensorDesc::contiguous(DType::F32, extents);
            let id = b.leaf(Leaf::Weight, "w", desc);
            wishes.pinned.insert(id, Arc::clone(&types[device]));
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
    (b.build().expect("the graph is valid"), wishes)
}
