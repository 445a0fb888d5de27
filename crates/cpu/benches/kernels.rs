//! How fast matrix products are, against what the machine can do at all: `cargo bench -p orlop-cpu --bench kernels`.
//!
//! Words after `--` choose element types (`-- q4_0 f16`); `amx`, `avx2`, `scalar` choose instructions, `mapped` leaves weights
//! as they are in files, `cached` takes so few that a cache holds them. One thread.

mod peaks;

use std::sync::Arc;
use std::time::Instant;

use orlop_backend::{
    Bindings, Claims, Device, LowerOptions, MemoryLayout, NodeQuery, Operand, Program, Queue, Role,
    RunOptions, Segment, Slot, StoredTensor,
};
use orlop_cpu::{CpuDevice, CpuOptions, Isa, ThreadPool};
use orlop_graph::{DType, Graph, GraphBuilder, NodeId, TensorDesc, TensorId};

/// Rows and columns of weights, and rows of activations.
const PROMPTS: [[u64; 3]; 4] = [[576, 1536, 512], [1536, 576, 512], [576, 192, 512], [2048, 1024, 512]];
/// Bytes of weights for one row of activations: more than any cache holds.
const STREAMED: u64 = 96 << 20;
/// The same with `cached`.
const CACHED: u64 = 256 << 10;
/// Experts, and those that each token chooses.
const EXPERTS: [u64; 2] = [64, 8];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let has = |word: &str| words.iter().any(|given| given == word);
    let named = Isa::ALL.into_iter().find(|isa| has(&isa.to_string()));
    let isa = named.unwrap_or_else(Isa::detect);
    let chosen: Vec<DType> = words.iter().filter_map(|word| DType::from_name(word)).collect();
    let options = CpuOptions { isa, repack: !has("mapped"), ..CpuOptions::default() };
    let device = CpuDevice::with_options(ThreadPool::new(1).unwrap(), &options);
    let peaks = peaks::measure();
    println!(
        "{device:?}; peaks: {:.0} Gop/s in 8 bits, {:.0} GFLOP/s in F32, {:.1} GB/s read",
        peaks.int8, peaks.f32, peaks.read
    );
    println!("{:<8} {:>18} {:>10} {:>7}   per cent of peak", "type", "shape", "Gop/s", "GB/s");
    let types = orlop_quant::weight_types().chain([DType::F16, DType::BF16, DType::F32]);
    for dtype in types.filter(|dtype| chosen.is_empty() || chosen.contains(dtype)) {
        for [k, m, n] in PROMPTS.into_iter().filter(|shape| dtype.row_bytes(shape[0]).is_some()) {
            let seconds = seconds(&device, dtype, [k, m, n]);
            let gops = 2e-9 * (k * m * n) as f64 / seconds;
            let peak = if dtype.is_quantized() { peaks.int8 } else { peaks.f32 };
            println!(
                "{:<8} {:>18} {gops:>10.1} {:>7}   {:.0}",
                dtype.name(),
                format!("{k}x{m}x{n}"),
                "",
                100.0 * gops / peak
            );
        }
        let streamed = if has("cached") { CACHED } else { STREAMED };
        let m = (streamed / dtype.row_bytes(2048).unwrap()).next_multiple_of(16);
        let desc = TensorDesc::contiguous(dtype, &[2048, m]).unwrap();
        let [fresh, again] = stored(&device, &desc).map(|seconds| 1e-9 * desc.bytes() as f64 / seconds);
        println!(
            "{:<8} {:>18} {:>10} {fresh:>7.1}   {:.0}; {again:.1} into memory that is there",
            dtype.name(),
            "stored",
            "",
            100.0 * fresh / peaks.read
        );
        for n in [1, 2, 3, 4, 6, 8, 12, 16] {
            let seconds = seconds(&device, dtype, [2048, m, n]);
            let gops = 2e-9 * (2048 * m * n) as f64 / seconds;
            let rate = 1e-9 * (dtype.row_bytes(2048).unwrap() * m) as f64 / seconds;
            println!(
                "{:<8} {:>18} {gops:>10.1} {rate:>7.1}   {:.0}",
                dtype.name(),
                format!("2048x{m}x{n}"),
                100.0 * rate / peaks.read
            );
        }
        for n in [1, 4, 16, 64, 256].into_iter().filter(|_| dtype.row_bytes(1024).is_some()) {
            let seconds = seconds_of_experts(&device, dtype, [1024, 512, n]);
            let gops = 2e-9 * (1024 * 512 * n * EXPERTS[1]) as f64 / seconds;
            println!("{:<8} {:>18} {gops:>10.1}", dtype.name(), format!("experts {n}"));
        }
    }
}

/// The times of storing weights: in fresh memory, and in memory that was written before. The best of several.
fn stored(device: &Arc<CpuDevice>, desc: &TensorDesc) -> [f64; 2] {
    let bytes: Vec<u8> = (0..desc.bytes()).map(|at| (at % 251) as u8).collect();
    let mut best = [f64::INFINITY; 2];
    for _ in 0..4 {
        let memory = device.buffer_types(Role::Weight).iter().find(|memory| {
            memory.max_bytes() > 0 && (memory.layout() == MemoryLayout::Plain || desc.dtype.is_quantized())
        });
        let memory = Arc::clone(memory.unwrap());
        let buffer = Arc::clone(&memory).allocate(memory.alloc_bytes(desc)).unwrap();
        let tensor = StoredTensor::new("", *desc, Slot { buffer, offset: 0 }).unwrap();
        for best in &mut best {
            *best = best.min(peaks::seconds(|| tensor.set(0, &bytes).unwrap()));
        }
    }
    best
}

/// The time of one product.
fn seconds(device: &Arc<CpuDevice>, dtype: DType, [k, m, n]: [u64; 3]) -> f64 {
    let mut b = GraphBuilder::new();
    let w = b.weight("w", dtype, &[k, m]);
    let x = b.input("x", DType::F32, &[k, n]);
    let y = b.mul_mat(w, x);
    b.output(y);
    best_seconds(device, &b.build().unwrap())
}

/// The time of one product with experts, which `n` tokens choose evenly.
fn seconds_of_experts(device: &Arc<CpuDevice>, dtype: DType, [k, m, n]: [u64; 3]) -> f64 {
    let [experts, used] = EXPERTS;
    let mut b = GraphBuilder::new();
    let w = b.weight("w", dtype, &[k, m, experts]);
    let x = b.input("x", DType::F32, &[k, 1, n]);
    let ids = b.input("ids", DType::I32, &[used, n]);
    let y = b.mul_mat_id(w, x, ids);
    b.output(y);
    best_seconds(device, &b.build().unwrap())
}

/// The time of a graph of one node: the best of several.
fn best_seconds(device: &Arc<CpuDevice>, graph: &Graph) -> f64 {
    let bound = Bound::new(device, graph);
    let claims = Claims::take(bound.program.touches().iter().map(|(buffer, kind)| (buffer, *kind))).unwrap();
    let mut queue = device.queue().unwrap();
    let mut best = f64::INFINITY;
    let begin = Instant::now();
    let mut runs = 0;
    while runs < 5 || begin.elapsed().as_secs_f64() < 0.4 {
        best = best.min(peaks::seconds(|| run(&mut *queue, &bound.program, &claims)));
        runs += 1;
    }
    best
}

fn run(queue: &mut dyn Queue, program: &Arc<dyn Program>, claims: &Claims) {
    // SAFETY: `submit` asks that other queues do not interfere under the same claims: there are none.
    unsafe { queue.submit(program, claims, &RunOptions::default()) }.unwrap();
}

struct Bound {
    program: Arc<dyn Program>,
}

impl Bound {
    fn new(device: &Arc<CpuDevice>, graph: &Graph) -> Bound {
        let node = &graph.nodes()[0];
        let (w, operands) = node.inputs.split_first().unwrap();
        let host = &device.buffer_types(Role::Arena)[0];
        let desc = |id: TensorId| &graph.tensor(id).desc;
        // The best memory that can be asked for and that the product takes its weights in.
        let fits = |memory: &&Arc<dyn orlop_backend::BufferType>| {
            let operand = |id: TensorId| Operand { desc: desc(id), buffer_type: Some(host) };
            let mut inputs = vec![Operand { desc: desc(*w), buffer_type: Some(memory) }];
            inputs.extend(operands.iter().map(|id| operand(*id)));
            let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(node.output) };
            memory.max_bytes() > 0 && device.supports(&query).is_yes()
        };
        let memory = device.buffer_types(Role::Weight).iter().find(fits).unwrap();
        let mut types = vec![Some(Arc::clone(host)); graph.tensors().len()];
        types[w.index()] = Some(Arc::clone(memory));
        let nodes: Vec<NodeId> = graph.node_ids().collect();
        let escapes = vec![true; types.len()];
        let segment = Segment { graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
        let steps = device.lower(&segment, &LowerOptions::default()).unwrap();
        let place = |bytes: u64| Slot { buffer: Arc::clone(host).allocate(bytes).unwrap(), offset: 0 };
        let mut tensors: std::collections::HashMap<TensorId, Slot> =
            graph.tensor_ids().map(|id| (id, place(desc(id).bytes()))).collect();
        let buffer = Arc::clone(memory).allocate(memory.alloc_bytes(desc(*w))).unwrap();
        tensors.insert(*w, Slot { buffer, offset: 0 });
        set(&tensors[w], desc(*w));
        operands.iter().for_each(|id| set(&tensors[id], desc(*id)));
        let temporaries = steps.temporaries.iter().map(|temporary| place(temporary.bytes)).collect();
        let bindings = Bindings { graph: graph.clone(), tensors, temporaries };
        Bound { program: device.compile(&steps, &bindings).unwrap() }
    }
}

/// Fills a tensor with numbers: some rows, over and over; one of integers with those of experts.
fn set(slot: &Slot, desc: &TensorDesc) {
    let stored = StoredTensor::new("", *desc, slot.clone()).unwrap();
    if desc.dtype.is_integer() {
        let numbers = (0..desc.rows() * desc.extents[0]).map(|number| (number % EXPERTS[0]) as i32);
        let bytes: Vec<u8> = numbers.flat_map(i32::to_le_bytes).collect();
        return stored.set(0, &bytes).unwrap();
    }
    let rows = 32.min(desc.rows());
    let mut bytes = vec![0; (rows * desc.row_bytes()) as usize];
    let values: Vec<f32> =
        (0..rows * desc.extents[0]).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 300.0).collect();
    orlop_quant::encode(desc.dtype, &values, &mut bytes).unwrap();
    for first in (0..desc.rows()).step_by(rows as usize) {
        let these = rows.min(desc.rows() - first);
        stored.set(first * desc.row_bytes(), &bytes[..(these * desc.row_bytes()) as usize]).unwrap();
    }
}
