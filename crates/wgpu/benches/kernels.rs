//! Speed of kernels: `cargo bench -p orlop-wgpu --bench kernels`.
//!
//! Arguments after `--` select element types of products (`-- q4_0 f16`). Bytes are those of operands and results, each
//! counted once. Lines of software adapters are marked.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_backend::{Bindings, Device, LowerOptions, Program, Role, Segment, Slot, StoredTensor};
use orlop_graph::{DType, FlashAttention, Glu, Graph, GraphBuilder, NodeId, Rope, TensorId};
use orlop_wgpu::{KernelTime, WgpuDevice, adapters};

const TYPES: [DType; 9] = [
    DType::Q4_0,
    DType::Q4_1,
    DType::Q8_0,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::F16,
    DType::BF16,
    DType::F32,
];
/// Rows and columns of weights, and rows of activations.
const PRODUCTS: [[u64; 3]; 4] = [[2048, 2048, 1], [2048, 8192, 1], [2048, 2048, 16], [2048, 2048, 128]];
/// Runs of each kernel; the best counts.
const RUNS: usize = 5;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let chosen: Vec<DType> = words.iter().filter_map(|word| DType::from_name(word)).collect();
    for adapter in adapters(true) {
        let device = WgpuDevice::new(&adapter).unwrap();
        let label = if adapter.is_software() { "SOFTWARE ADAPTER" } else { "" };
        let clock = if device.has_timestamps() { "the adapter's clock" } else { "the host's clock" };
        println!("{device:?}; timed by {clock}");
        println!("{:>10} {:>9} {:>9}   kernel", "µs", "GB/s", "Gop/s");
        for dtype in TYPES.into_iter().filter(|dtype| chosen.is_empty() || chosen.contains(dtype)) {
            for [k, m, n] in PRODUCTS {
                measure(&device, label, |b| {
                    let w = b.weight("w", dtype, &[k, m]);
                    let x = b.input("x", DType::F32, &[k, n]);
                    b.mul_mat(w, x)
                });
            }
        }
        if chosen.is_empty() {
            others(&device, label);
        }
    }
}

/// The other ops of a transformer layer.
fn others(device: &Arc<WgpuDevice>, label: &str) {
    for tokens in [1, 128] {
        measure(device, label, |b| {
            let x = b.input("x", DType::F32, &[2048, tokens]);
            b.rms_norm(x, 1e-5)
        });
        measure(device, label, |b| {
            let operands = [0, 1].map(|number| b.input(&format!("x{number}"), DType::F32, &[8192, tokens]));
            b.gated(Glu::Silu, operands[0], operands[1])
        });
        measure(device, label, |b| {
            let x = b.input("x", DType::F32, &[128, 16, tokens]);
            let positions = b.input("positions", DType::I32, &[tokens]);
            b.rope(x, positions, None, Rope::default())
        });
        for kv in [DType::F16, DType::Q8_0] {
            measure(device, label, |b| {
                let q = b.input("q", DType::F32, &[128, tokens, 16]);
                let [k, v] = ["k", "v"].map(|name| b.input(name, kv, &[128, 1024, 4]));
                let params = FlashAttention::scaled(0.1);
                b.flash_attention([q, k, v], None, None, None, params)
            });
        }
    }
}

fn measure(device: &Arc<WgpuDevice>, label: &str, build: impl FnOnce(&mut GraphBuilder) -> TensorId) {
    let mut b = GraphBuilder::new();
    let output = build(&mut b);
    b.output(output);
    let graph = b.build().unwrap();
    let program = program(device, &graph);
    let mut best: Vec<KernelTime> = device.time_kernels(&program).unwrap();
    for _ in 1..RUNS {
        for (best, again) in best.iter_mut().zip(device.time_kernels(&program).unwrap()) {
            best.seconds = best.seconds.min(again.seconds);
        }
    }
    for KernelTime { kernel, seconds, bytes, operations } in best {
        let operations = match operations {
            0.0 => String::new(),
            operations => format!("{:.2}", 1e-9 * operations / seconds),
        };
        println!(
            "{:>10.1} {:>9.2} {operations:>9}   {kernel}  {label}",
            1e6 * seconds,
            1e-9 * bytes / seconds
        );
    }
}

/// A compiled graph with each tensor in its own buffer.
fn program(device: &Arc<WgpuDevice>, graph: &Graph) -> Arc<dyn Program> {
    let memory = &device.buffer_types(Role::Arena)[0];
    let mut tensors: HashMap<TensorId, Slot> = HashMap::new();
    for id in graph.tensor_ids() {
        let desc = graph.tensor(id).desc;
        let slot = Slot { buffer: Arc::clone(memory).allocate(desc.bytes()).unwrap(), offset: 0 };
        let row: Vec<f32> =
            (0..desc.extents[0]).map(|at| ((at * 7919 % 1009) as f32 - 504.0) / 900.0).collect();
        let mut bytes = vec![0; desc.row_bytes() as usize];
        if orlop_quant::encode(desc.dtype, &row, &mut bytes).is_ok() {
            let stored = StoredTensor::new("", desc, slot.clone()).unwrap();
            stored.set(0, &bytes.repeat(desc.rows() as usize)).unwrap();
        }
        tensors.insert(id, slot);
    }
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let buffer_types = vec![Some(Arc::clone(memory)); graph.tensors().len()];
    let escapes = vec![true; buffer_types.len()];
    let segment = Segment { graph, nodes: &nodes, buffer_types: &buffer_types, escapes: &escapes };
    let steps = device.lower(&segment, &LowerOptions::default()).unwrap();
    device.compile(&steps, &Bindings { graph: graph.clone(), tensors, temporaries: Vec::new() }).unwrap()
}
