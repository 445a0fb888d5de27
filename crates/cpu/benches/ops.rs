//! Time of single ops at the sizes that language models have: `cargo bench -p orlop-cpu --bench ops [-- FILTER]`.
//!
//! Each line gives the best time of many runs on one and on two threads, and the bytes of operands and result
//! that this reads and writes in a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_backend::{Bindings, Claim, Claims, Device, LowerOptions, Role, RunOptions, Segment, Slot};
use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_graph::{
    AccessKind, DType, FlashAttention, Glu, GraphBuilder, Leaf, NodeId, Rope, RopeMode, TensorDesc, TensorId,
    Unary,
};
use orlop_testkit::Random;

/// A graph of one op, and what its leaves hold.
#[derive(Default)]
struct Bench {
    b: GraphBuilder,
    feeds: BTreeMap<usize, Feed>,
}

enum Feed {
    Integers(Vec<i32>),
    /// Numbers between -1 and 1.
    Noise(TensorDesc),
}

impl Feed {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Feed::Integers(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Feed::Noise(desc) => {
                let mut random = Random::new(1);
                let values: Vec<f32> = (0..desc.elements()).map(|_| random.signed()).collect();
                let mut bytes = vec![0; desc.bytes() as usize];
                orlop_quant::encode(desc.dtype, &values, &mut bytes).unwrap();
                bytes
            }
        }
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::default()
    }

    fn noise(&mut self, dtype: DType, extents: &[u64]) -> TensorId {
        let desc = TensorDesc::contiguous(dtype, extents).unwrap();
        self.leaf(desc, Feed::Noise(desc))
    }

    fn integers(&mut self, values: &[i32]) -> TensorId {
        let desc = TensorDesc::contiguous(DType::I32, &[values.len() as u64]).unwrap();
        self.leaf(desc, Feed::Integers(values.to_vec()))
    }

    fn leaf(&mut self, desc: TensorDesc, feed: Feed) -> TensorId {
        let id = self.b.leaf(Leaf::State, &format!("x{}", self.feeds.len()), Ok(desc));
        self.feeds.insert(id.index(), feed);
        id
    }

    /// Times the graph and prints a line; `bytes` are those that a run reads and writes.
    fn time(self, name: &str, bytes: u64) {
        if std::env::args().skip(1).any(|arg| !arg.starts_with("--") && !name.contains(&arg)) {
            return;
        }
        let graph = self.b.build().unwrap();
        let mut line = format!("{name:<44}");
        for threads in [1, 2] {
            let device: Arc<dyn Device> = CpuDevice::new(ThreadPool::new(threads).unwrap());
            let host = Arc::clone(&device.buffer_types(Role::Arena)[0]);
            // One buffer for all leaves, as caches of layers have it.
            let all = graph.tensors().iter().map(|tensor| tensor.desc.bytes().next_multiple_of(64)).sum();
            let buffer = Arc::clone(&host).allocate(all).unwrap();
            let used = std::cell::Cell::new(0);
            let place = |bytes: u64| {
                let offset = used.replace(used.get() + bytes.next_multiple_of(64));
                Slot { buffer: Arc::clone(&buffer), offset }
            };
            let mut slots: Vec<Slot> = Vec::new();
            for id in graph.tensor_ids() {
                let tensor = graph.tensor(id);
                let slot = match slots.get(tensor.storage.root.index()) {
                    Some(root) => Slot { offset: root.offset + tensor.storage.offset, ..root.clone() },
                    None => place(tensor.desc.bytes()),
                };
                if let Some(feed) = self.feeds.get(&id.index()) {
                    let claim = Claim::take(&*slot.buffer, AccessKind::Write).unwrap();
                    slot.buffer.write(&claim, slot.offset, &feed.bytes()).unwrap();
                }
                slots.push(slot);
            }
            let nodes: Vec<NodeId> = graph.node_ids().collect();
            let types = vec![Some(Arc::clone(&host)); slots.len()];
            let escapes = vec![true; slots.len()];
            let segment = Segment { graph: &graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
            let options = LowerOptions { max_threads: threads, ..LowerOptions::default() };
            let steps = device.lower(&segment, &options).unwrap();
            let beside = |bytes: u64| Slot { buffer: Arc::clone(&host).allocate(bytes).unwrap(), offset: 0 };
            let temporaries = steps.temporaries.iter().map(|temporary| beside(temporary.bytes)).collect();
            let tensors = graph.tensor_ids().zip(slots.iter().cloned()).collect();
            let bindings = Bindings { graph: graph.clone(), tensors, temporaries };
            let program = device.compile(&steps, &bindings).unwrap();
            let touches = program.touches().iter().map(|(buffer, kind)| (buffer, *kind));
            let claims = Claims::take(touches).unwrap();
            let mut queue = device.queue().unwrap();
            let (mut best, begin, mut runs) = (f64::INFINITY, Instant::now(), 0);
            while begin.elapsed() < Duration::from_millis(150) || runs < 5 {
                let start = Instant::now();
                // SAFETY: `submit` asks that other queues do not interfere under the same claims: there are none.
                unsafe { queue.submit(&program, &claims, &RunOptions::default()) }.unwrap();
                best = best.min(start.elapsed().as_secs_f64());
                runs += 1;
            }
            line += &format!("{:>12.0} ns {:>7.2} GB/s", best * 1e9, bytes as f64 / best / 1e9);
        }
        println!("{line}");
    }
}

fn rows(hidden: u64, tokens: u64) {
    let floats = hidden * tokens * 4;
    let name = |op: &str| format!("{op} {hidden}x{tokens}");
    let one = |op: &str, bytes: u64, node: &dyn Fn(&mut GraphBuilder, TensorId) -> TensorId| {
        let mut bench = Bench::new();
        let x = bench.noise(DType::F32, &[hidden, tokens]);
        node(&mut bench.b, x);
        bench.time(&name(op), bytes);
    };
    one("rms_norm", 2 * floats, &|b, x| b.rms_norm(x, 1e-5));
    one("norm", 2 * floats, &|b, x| b.norm(x, 1e-5));
    one("l2_norm", 2 * floats, &|b, x| b.l2_norm(x, 1e-5));
    one("silu", 2 * floats, &|b, x| b.unary(Unary::Silu, x));
    one("gelu", 2 * floats, &|b, x| b.unary(Unary::Gelu, x));
    one("scale", 2 * floats, &|b, x| b.scale(x, 0.5));
    one("soft_max", 2 * floats, &|b, x| b.soft_max(x, None, 0.1, 0.0));
    one("cast to f16", floats * 3 / 2, &|b, x| b.cast(x, DType::F16));
    one("arg_max", floats, &|b, x| b.argmax(x));

    let mut bench = Bench::new();
    let x = bench.noise(DType::F16, &[hidden, tokens]);
    bench.b.cast(x, DType::F32);
    bench.time(&name("cast from f16"), floats * 3 / 2);

    for (op, gate) in [("gated silu", Glu::Silu), ("gated gelu", Glu::Gelu)] {
        let mut bench = Bench::new();
        let [a, c] = [0, 1].map(|_| bench.noise(DType::F32, &[hidden, tokens]));
        bench.b.gated(gate, a, c);
        bench.time(&name(op), 3 * floats);
    }
    let mut bench = Bench::new();
    let [a, c] = [0, 1].map(|_| bench.noise(DType::F32, &[hidden, tokens]));
    bench.b.add(a, c);
    bench.time(&name("add"), 3 * floats);

    let mut bench = Bench::new();
    let (a, c) = (bench.noise(DType::F32, &[hidden, tokens]), bench.noise(DType::F32, &[hidden]));
    bench.b.mul(a, c);
    bench.time(&name("mul by a row"), 2 * floats);

    let indices: Vec<i32> = (0..tokens as i32).map(|i| i * 37 % 1000).collect();
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        let mut bench = Bench::new();
        let (table, indices) = (bench.noise(dtype, &[hidden, 1000]), bench.integers(&indices));
        bench.b.get_rows(table, indices);
        bench.time(&name(&format!("get_rows {dtype}")), floats + bytes(dtype, hidden * tokens));
    }
    for dtype in [DType::F16, DType::Q8_0] {
        let mut bench = Bench::new();
        let table = bench.noise(dtype, &[hidden, 1000]);
        let (rows, indices) = (bench.noise(DType::F32, &[hidden, tokens]), bench.integers(&indices));
        bench.b.set_rows(table, rows, indices);
        bench.time(&name(&format!("set_rows {dtype}")), floats + bytes(dtype, hidden * tokens));
    }
    for (op, mode) in [("rope", RopeMode::Normal), ("rope neox", RopeMode::Neox)] {
        let mut bench = Bench::new();
        let x = bench.noise(DType::F32, &[64, hidden / 64, tokens]);
        let positions = bench.integers(&(0..tokens as i32).map(|i| i + 100).collect::<Vec<i32>>());
        let rope = Rope { mode, dims: 64, ..Rope::default() };
        bench.b.rope(x, positions, None, rope);
        bench.time(&name(op), 2 * floats);
    }
    let mut bench = Bench::new();
    let x = bench.noise(DType::F32, &[64, tokens, hidden / 64]);
    let x = bench.b.permute(x, [0, 2, 1, 3]);
    bench.b.cont(x);
    bench.time(&name("cont of permuted"), 2 * floats);
}

fn bytes(dtype: DType, elements: u64) -> u64 {
    elements / dtype.block_elements() * dtype.block_bytes()
}

/// How the rows of K and V lie.
#[derive(Clone, Copy, Debug)]
enum Rows {
    /// All of a head one after the other.
    ByHead,
    /// Those of all heads side by side, token by token.
    ByToken,
}

/// `tokens` queries after a context, so that the last of them sees `depth` rows, with the caches of some layers one
/// after the other.
fn attention(
    dtype: DType,
    lie: Rows,
    [heads, kv_heads, dim]: [u64; 3],
    tokens: u64,
    depth: u64,
    layers: u64,
) {
    let mut bench = Bench::new();
    let q = bench.noise(DType::F32, &[dim, heads, tokens]);
    let q = bench.b.permute(q, [0, 2, 1, 3]);
    let lengths: Vec<i32> = (0..tokens).map(|token| (depth - tokens + token + 1) as i32).collect();
    let lengths = bench.integers(&lengths);
    let params = FlashAttention::scaled(1.0 / (dim as f32).sqrt());
    for _ in 0..layers {
        let [k, v] = [(); 2].map(|()| match lie {
            Rows::ByHead => bench.noise(dtype, &[dim, depth, kv_heads]),
            Rows::ByToken => {
                let rows = bench.noise(dtype, &[dim, kv_heads, depth]);
                bench.b.permute(rows, [0, 2, 1, 3])
            }
        });
        bench.b.flash_attention([q, k, v], Some(lengths), None, None, params);
    }
    let name =
        format!("attention {dtype} {heads}/{kv_heads}x{dim} {lie:?} {tokens} of {depth}, {layers} layers");
    bench.time(&name, layers * 2 * bytes(dtype, dim * kv_heads * depth));
}

fn main() {
    for (hidden, tokens) in [(576, 1), (576, 512), (2048, 1), (2048, 512)] {
        rows(hidden, tokens);
    }
    let mut bench = Bench::new();
    let x = bench.noise(DType::F32, &[49_152]);
    bench.b.argmax(x);
    bench.time("arg_max 49152", 49_152 * 4);
    let mut bench = Bench::new();
    let x = bench.noise(DType::F32, &[49_152]);
    bench.b.top_k(x, 40);
    bench.time("top_k 40 of 49152", 49_152 * 4);
    for lie in [Rows::ByHead, Rows::ByToken] {
        for shape in [[9, 3, 64], [32, 4, 64], [32, 8, 128]] {
            for depth in [128, 512, 2048, 8192] {
                attention(DType::F16, lie, shape, 1, depth, 1);
            }
            attention(DType::F16, lie, shape, 512, 512, 1);
        }
        // More than caches hold.
        attention(DType::F16, lie, [9, 3, 64], 1, 2048, 30);
        attention(DType::F16, lie, [32, 8, 128], 1, 2048, 32);
        attention(DType::Q8_0, lie, [32, 4, 64], 1, 2048, 1);
        attention(DType::F32, lie, [32, 4, 64], 1, 2048, 1);
    }
}
