//! Time to plan a graph and to bind it again, per node. Prints; a person compares.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_alloc::{Assignment, Externals, GraphAllocator, MemoryPlan, PlanOptions, Usage, plan_memory};
use orlop_backend::HostBufferType;
use orlop_graph::{DType, Graph, GraphBuilder};

fn main() {
    println!("{:>9}  {:>28}  {:>10}  {:>9}  peak / bound", "nodes", "what", "total", "a node");
    for nodes in [1_000, 10_000, 100_000] {
        let graph = transformer(nodes);
        report(&graph);
    }
}

fn report(graph: &Graph) {
    let nodes = graph.nodes().len();
    let host = || GraphAllocator::new([HostBufferType::new("host") as _]).expect("one buffer type");
    let usage: Arc<Usage> =
        Arc::new(host().usage(graph, &Assignment::default()).expect("the graph is valid"));
    let line = |what: &str, time: Duration, plan: Option<&MemoryPlan>| {
        let each = time.as_nanos() as f64 / nodes as f64;
        let gap = plan.map_or(String::new(), |plan| {
            format!("{:.4}", plan.arenas[0].peak as f64 / plan.arenas[0].bound as f64)
        });
        println!("{nodes:>9}  {what:>28}  {:>7.2} ms  {each:>6.0} ns  {gap}", time.as_secs_f64() * 1e3);
    };

    line("graph to usage", time(|| host().usage(graph, &Assignment::default())), None);
    for (what, options) in
        [("plan, best fit online", PlanOptions::GGML), ("plan, best of all", PlanOptions::default())]
    {
        let plan = plan_memory(&usage, &options).expect("it can be planned");
        line(what, time(|| plan_memory(&usage, &options)), Some(&plan));
    }
    let plan = plan_memory(&usage, &PlanOptions::GGML).expect("it can be planned");
    let same = Usage::clone(&usage);
    line("does a plan still fit", time(|| plan.fits(&same)), None);

    let mut allocator = host().with_options(PlanOptions::GGML);
    allocator.reserve(graph).expect("there is memory");
    line("bind an unchanged graph", time(|| allocator.alloc(graph, &Externals::new())), None);
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

/// Layers of attention and feed-forward, about as many nodes as asked for.
fn transformer(nodes: usize) -> Graph {
    const DIM: u64 = 64;
    const TOKENS: u64 = 8;
    let mut b = GraphBuilder::new();
    let mut x = b.input("x", DType::F32, &[DIM, TOKENS]);
    let norm = b.weight("norm", DType::F32, &[DIM]);
    let square = b.weight("square", DType::F32, &[DIM, DIM]);
    let up = b.weight("up", DType::F32, &[DIM, 4 * DIM]);
    let down = b.weight("down", DType::F32, &[4 * DIM, DIM]);
    let mut count = 0;
    while count < nodes {
        let n = b.rms_norm(x, 1e-5);
        let n = b.mul(n, norm);
        let q = b.mul_mat(square, n);
        let k = b.mul_mat(square, n);
        let v = b.mul_mat(square, n);
        let scores = b.mul_mat(k, q);
        let scores = b.soft_max(scores, None, 0.125, 0.0);
        let v = b.transpose(v);
        let v = b.cont(v);
        let mixed = b.mul_mat(v, scores);
        let out = b.mul_mat(square, mixed);
        x = b.add(out, x);
        let n = b.rms_norm(x, 1e-5);
        let n = b.mul(n, norm);
        let h = b.mul_mat(up, n);
        let h = b.silu(h);
        let h = b.mul_mat(down, h);
        x = b.add(h, x);
        count += 18;
    }
    b.output(x);
    b.build().expect("the graph is valid")
}
