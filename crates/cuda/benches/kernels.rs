//! How fast the kernels of a GPU are, beside what its memory and its tensor cores can do: `cargo xtask bench cuda`. Arguments
//! choose lines by parts of their names. Every line is a graph of equal nodes on different data, run as one CUDA graph.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Device, Role, RunOptions};
use orlop_cuda::CudaOptions;
use orlop_graph::{DType, FlashAttention, Graph, GraphBuilder, Leaf, Op, PagedRows, TensorId};
use orlop_sched::{Machine, Session, SessionOptions};

/// Nodes of a graph: together they are far more than a cache holds.
const NODES: u64 = 16;

fn main() {
    let options = CudaOptions {
        cache: std::env::var_os("ORLOP_CACHE").map(PathBuf::from),
        libraries: vec!["/usr/local/cuda/lib64".into()],
        sources: std::env::var_os("ORLOP_KERNELS").map(PathBuf::from),
        ..CudaOptions::default()
    };
    let device = match orlop_cuda::devices(&options) {
        Ok(devices) if !devices.is_empty() => Arc::clone(&devices[0]),
        Ok(_) => return println!("there is no NVIDIA GPU"),
        Err(error) => return println!("{error}"),
    };
    println!("{}", device.facts().description);
    let chosen: Vec<String> = std::env::args().skip(1).filter(|part| !part.starts_with("--")).collect();
    let copied = copies(&device);
    let bandwidth = copied.bytes / copied.seconds;
    copied.print("copy, 2 x 256 MiB", bandwidth, 0.0);
    // By the driver's numbers: a measured product would be no ceiling.
    let rate = device.facts().flops;
    println!("tensor cores, F16: {:.0} TFLOP/s by their number and clock", rate / 1e12);
    let line = |name: String, measure: &dyn Fn() -> Measured| {
        if chosen.is_empty() || chosen.iter().any(|part| name.contains(part.as_str())) {
            measure().print(&name, bandwidth, rate);
        }
    };
    let products = |dtype: DType, n: u64, nodes: u64| {
        for [k, m] in [[4096, 4096], [4096, 11008], [11008, 4096]] {
            line(format!("product {dtype} {k} x {m} x {n}"), &|| product(&device, dtype, [k, m, n], nodes));
        }
    };
    line("product f16 8192 x 8192 x 8192".to_owned(), &|| product(&device, DType::F16, [8192; 3], 2));
    for dtype in [DType::Q4_0, DType::Q4_1, DType::Q8_0, DType::Q4_K, DType::Q6_K, DType::F16, DType::BF16] {
        products(dtype, 1, NODES);
    }
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q4_K] {
        products(dtype, 16, NODES);
    }
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::F16] {
        products(dtype, 512, 8);
    }
    let one = Attending { sequences: 1, tokens: 1, rows: 0, kv_heads: 32, table: None, cache: DType::F16 };
    let attending = |name: String, what: Attending| line(name, &|| attention(&device, what));
    for rows in [64, 512, 4096, 16384] {
        attending(format!("attention 1 token, {rows} rows"), Attending { rows, ..one });
        attending(
            format!("attention 1 token, {rows} rows, paged"),
            Attending { rows, table: Some(1), ..one },
        );
    }
    for tokens in [512, 2048, 4096] {
        let many = Attending { tokens, rows: tokens, ..one };
        attending(format!("attention {tokens} tokens"), many);
        attending(format!("attention {tokens} tokens, paged"), Attending { table: Some(1), ..many });
        attending(
            format!("attention {tokens} tokens, paged, 64 seqs"),
            Attending { table: Some(64), ..many },
        );
    }
    for (sequences, rows) in [(4, 512), (16, 512), (64, 256), (64, 512), (16, 4096)] {
        for kv_heads in [32, 8] {
            let table = Some(sequences);
            let what = Attending { sequences, rows, kv_heads, table, ..one };
            attending(format!("attention {sequences} seqs, {rows} rows, {kv_heads} kv"), what);
        }
    }
    for cache in [DType::Q8_0, DType::Q4_0] {
        let one = Attending { table: Some(1), cache, ..one };
        for (rows, kv_heads) in [(512, 32), (16384, 32), (16384, 8)] {
            let name = format!("attention {cache} 1 token, {rows} rows, {kv_heads} kv");
            attending(name, Attending { rows, kv_heads, ..one });
        }
        for kv_heads in [32, 8] {
            let what = Attending { sequences: 64, rows: 512, kv_heads, table: Some(64), ..one };
            attending(format!("attention {cache} 64 seqs, 512 rows, {kv_heads} kv"), what);
        }
        let prompt = Attending { tokens: 4096, rows: 4096, ..one };
        attending(format!("attention {cache} 4096 tokens"), prompt);
    }
    for columns in [32, 2048, 16384] {
        line(format!("rotation of 128 x {columns}"), &|| rotation(&device, 128, columns));
    }
}

/// One node's time, and what it cannot do without.
struct Measured {
    seconds: f64,
    bytes: f64,
    flops: f64,
}

impl Measured {
    fn print(&self, name: &str, bandwidth: f64, rate: f64) {
        let share = |found: f64, ceiling: f64| if ceiling > 0.0 { 100.0 * found / ceiling } else { 0.0 };
        println!(
            "{name:<40} {:9.2} us {:9.2} MB {:7.0} GB/s ({:3.0}%) {:7.1} TFLOP/s ({:3.0}%)",
            self.seconds * 1e6,
            self.bytes / 1e6,
            self.bytes / self.seconds / 1e9,
            share(self.bytes / self.seconds, bandwidth),
            self.flops / self.seconds / 1e12,
            share(self.flops / self.seconds, rate),
        );
    }
}

/// The fastest of several replays, in seconds.
fn fastest(device: &Arc<dyn Device>, b: GraphBuilder, inputs: &[(TensorId, Vec<u8>)]) -> f64 {
    let graph: Graph = b.build().unwrap();
    let (weights, plain) = (&device.buffer_types(Role::Weight)[0], &device.buffer_types(Role::Arena)[0]);
    let mut externals = Externals::new();
    for (leaf, kind) in graph.leaves() {
        if !matches!(kind, Leaf::Weight | Leaf::State) {
            continue;
        }
        let tensor = graph.tensor(leaf);
        let planes = tensor.desc.dtype.is_quantized() && kind == Leaf::Weight;
        let memory = if planes { weights } else { plain };
        let set = TensorSet::allocate(memory, &[SetTensor::new(tensor.name.as_str(), tensor.desc)]).unwrap();
        // Small numbers in every type: no NaN, no zeros.
        let pattern: Vec<u8> = (0..4096).map(|index: u32| (index * 37 % 59 + 1) as u8 & 0x3b).collect();
        let bytes: Vec<u8> = pattern.iter().copied().cycle().take(tensor.desc.bytes() as usize).collect();
        set.tensors()[0].set(0, &bytes).unwrap();
        externals.insert(leaf, set.tensors()[0].clone());
    }
    let mut session =
        Session::new(Machine::new([Arc::clone(device)]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &externals).unwrap();
    let mut best = f64::INFINITY;
    for _ in 0..8 {
        for (id, bytes) in inputs {
            session.set(plan, *id, bytes).unwrap();
        }
        let begin = Instant::now();
        session.run(plan, &RunOptions::default()).unwrap();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    best
}

fn floats(count: u64) -> Vec<u8> {
    (0..count).flat_map(|index| ((index % 17) as f32 / 17.0 - 0.4).to_le_bytes()).collect()
}

fn copies(device: &Arc<dyn Device>) -> Measured {
    let (mut b, elements, nodes) = (GraphBuilder::new(), 64 << 20, 8);
    let x = b.state("x", DType::F32, &[elements]);
    for node in 0..nodes {
        let y = b.state(&format!("y{node}"), DType::F32, &[elements]);
        let copied = b.copy(x, y);
        b.output(copied);
    }
    let seconds = fastest(device, b, &[]) / f64::from(nodes);
    Measured { seconds, bytes: 8.0 * elements as f64, flops: 0.0 }
}

fn product(device: &Arc<dyn Device>, dtype: DType, [k, m, n]: [u64; 3], nodes: u64) -> Measured {
    let mut b = GraphBuilder::new();
    let mut inputs = Vec::new();
    for node in 0..nodes {
        // Each has activations of its own, so that none are joined.
        let x = b.input(&format!("x{node}"), DType::F32, &[k, n]);
        inputs.push((x, floats(k * n)));
        let w = b.weight(&format!("w{node}"), dtype, &[k, m]);
        let y = b.mul_mat(w, x);
        b.output(y);
    }
    let seconds = fastest(device, b, &inputs) / nodes as f64;
    let bytes = dtype.row_bytes(k).unwrap() * m + 4 * n * (k + m);
    Measured { seconds, bytes: bytes as f64, flops: 2.0 * (k * m * n) as f64 }
}

/// Products with a square matrix of F32, each of rows of its own.
fn rotation(device: &Arc<dyn Device>, k: u64, columns: u64) -> Measured {
    let (mut b, nodes) = (GraphBuilder::new(), 8);
    let mut inputs = Vec::new();
    for node in 0..nodes {
        let [matrix, x] = [("matrix", k), ("x", columns)].map(|(name, rows)| {
            let input = b.input(&format!("{name}{node}"), DType::F32, &[k, rows]);
            inputs.push((input, floats(k * rows)));
            input
        });
        let y = b.mul_mat(matrix, x);
        b.output(y);
    }
    let seconds = fastest(device, b, &inputs) / nodes as f64;
    Measured { seconds, bytes: (4 * k * (k + 2 * columns)) as f64, flops: 2.0 * (k * k * columns) as f64 }
}

/// Sequences that attend with some tokens each to rows of their own.
#[derive(Clone, Copy)]
struct Attending {
    sequences: u64,
    tokens: u64,
    /// What the last token of each sees.
    rows: u64,
    kv_heads: u64,
    /// Sequences that pages are listed for; without, rows lie one after the other.
    table: Option<u64>,
    cache: DType,
}

/// Rows of a page.
const PAGE_ROWS: u64 = 64;

fn attention(device: &Arc<dyn Device>, what: Attending) -> Measured {
    let Attending { sequences, tokens, rows, kv_heads, table, cache } = what;
    let (mut b, head, heads, nodes) = (GraphBuilder::new(), 128, 32, 8);
    let integers = |numbers: &mut dyn Iterator<Item = u64>| -> Vec<u8> {
        numbers.flat_map(|number| (number as i32).to_le_bytes()).collect()
    };
    let (all, first) = (sequences * tokens, rows - tokens + 1);
    let seen = b.input("seen", DType::I32, &[all]);
    let mut inputs = vec![(seen, integers(&mut (0..all).map(|token| first + token % tokens)))];
    let places = table.map(|count| {
        let each = rows.div_ceil(PAGE_ROWS);
        let pages = b.input("pages", DType::I32, &[each, count]);
        let own = b.input("sequences", DType::I32, &[all]);
        // Pages of a sequence are far from each other.
        let page = |index: u64| index / each % sequences + index % each * sequences;
        inputs.push((pages, integers(&mut (0..each * count).map(page))));
        inputs.push((own, integers(&mut (0..all).map(|token| token / tokens))));
        PagedRows { kv_len: seen, pages, sequences: own, page_rows: PAGE_ROWS as u32 }
    });
    let cached = rows.next_multiple_of(PAGE_ROWS) * sequences;
    for node in 0..nodes {
        let q = b.input(&format!("q{node}"), DType::F32, &[head, all, heads]);
        inputs.push((q, floats(head * all * heads)));
        let [k, v] =
            ["k", "v"].map(|name| b.state(&format!("{name}{node}"), cache, &[head, cached, kv_heads]));
        let flash = FlashAttention { kv_len: true, ..FlashAttention::scaled(0.1) };
        let y = match places {
            Some(places) => b.paged_attention([q, k, v], places, None, flash),
            None => b.node(Op::FlashAttention(flash), &[q, k, v, seen]),
        };
        b.output(y);
    }
    let seconds = fastest(device, b, &inputs) / nodes as f64;
    let seen = (first + rows) as f64 / 2.0 * all as f64;
    let row = cache.row_bytes(head).unwrap();
    let bytes = 2 * row * rows * sequences * kv_heads + 2 * 4 * head * all * heads;
    Measured { seconds, bytes: bytes as f64, flops: 4.0 * seen * (head * heads) as f64 }
}
