//! What the tests share: inputs, results of a device and of the reference, and their comparison.

use std::path::PathBuf;
use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{BufferType, Device, NodeQuery, Operand, Role, RunOptions};
use orlop_cuda::CudaOptions;
use orlop_graph::{DType, Graph, Leaf, TensorId};
use orlop_quant::encode;
use orlop_sched::{Machine, Session, SessionOptions};
use orlop_testkit::{Feeds, Random, ReferenceDevice, f32s, run_unplanned};

/// Devices as the tests open them. `ORLOP_CACHE` names a folder for compiled kernels, `ORLOP_KERNELS` one with other
/// sources.
pub(crate) fn options() -> CudaOptions {
    CudaOptions {
        cache: std::env::var_os("ORLOP_CACHE").map(PathBuf::from),
        libraries: vec!["/usr/local/cuda/lib64".into()],
        sources: std::env::var_os("ORLOP_KERNELS").map(PathBuf::from),
        ..CudaOptions::default()
    }
}

/// Numbers between -1 and 1 that follow from a seed.
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.signed()).collect()
}

/// `Σ(x - y)² / Σy²`.
pub(crate) fn error(found: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let difference: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    difference / expected.iter().map(|x| square(*x)).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// The results of a graph's outputs on a device, with its quantized weights in the memory of a role.
pub(crate) fn outputs(device: &Arc<dyn Device>, role: Role, graph: &Graph, feeds: &Feeds) -> Vec<Vec<f32>> {
    let plain = device.buffer_types(Role::Arena)[0].clone();
    let leaves: Vec<(TensorId, Leaf)> = graph.leaves().collect();
    let mut externals = Externals::new();
    let mut states = Vec::new();
    for (leaf, kind) in &leaves {
        if !matches!(kind, Leaf::Weight | Leaf::State) {
            continue;
        }
        let tensor = graph.tensor(*leaf);
        let quantized = tensor.desc.dtype.is_quantized() && *kind == Leaf::Weight;
        let memory = if quantized { memory_for(device, role, graph, *leaf) } else { &plain };
        let set = TensorSet::allocate(memory, &[SetTensor::new(tensor.name.as_str(), tensor.desc)]).unwrap();
        let bytes = &feeds.iter().find(|(id, _)| id == leaf).unwrap().1;
        let stored = set.tensors()[0].clone();
        stored.set(0, bytes).unwrap();
        if *kind == Leaf::State {
            states.push((stored.clone(), bytes));
        }
        externals.insert(*leaf, stored);
    }
    let mut session =
        Session::new(Machine::new([Arc::clone(device)]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(graph, &externals).unwrap();
    let mut results = Vec::new();
    // The third run is a replay of what the second recorded.
    for _ in 0..3 {
        for (state, bytes) in &states {
            state.set(0, bytes).unwrap();
        }
        for (leaf, bytes) in feeds {
            if leaves.contains(&(*leaf, Leaf::Input)) {
                session.set(plan, *leaf, bytes).unwrap();
            }
        }
        session.run(plan, &RunOptions::default()).unwrap();
        results = graph
            .outputs()
            .iter()
            .map(|id| {
                let mut bytes = vec![0; graph.tensor(*id).desc.bytes() as usize];
                session.get(plan, *id, &mut bytes).unwrap();
                f32s(&bytes)
            })
            .collect();
    }
    results
}

/// The first memory of a role that every use of a weight accepts, as loaders choose it: types without planes lie plain.
fn memory_for<'a>(
    device: &'a Arc<dyn Device>,
    role: Role,
    graph: &Graph,
    leaf: TensorId,
) -> &'a Arc<dyn BufferType> {
    let accepts = |memory: &Arc<dyn BufferType>| {
        graph.nodes().iter().filter(|node| node.inputs.contains(&leaf)).all(|node| {
            let operand = |id: TensorId| Operand {
                desc: &graph.tensor(id).desc,
                buffer_type: (id == leaf).then_some(memory),
            };
            let inputs: Vec<Operand<'_>> = node.inputs.iter().map(|id| operand(*id)).collect();
            let output = operand(node.output);
            device.supports(&NodeQuery { op: &node.op, inputs: &inputs, output }).is_yes()
        })
    };
    device.buffer_types(role).iter().find(|memory| accepts(memory)).unwrap()
}

/// The results of a graph's outputs on the reference device.
pub(crate) fn expected(graph: &Graph, feeds: &Feeds) -> Vec<Vec<f32>> {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let outputs = run_unplanned(&device, graph, feeds).unwrap();
    graph.outputs().iter().map(|id| outputs.f32s(*id).unwrap()).collect()
}

/// What is wrong if a device is further from the reference than a limit.
pub(crate) fn compare(
    name: &str,
    (device, role): (&Arc<dyn Device>, Role),
    graph: &Graph,
    feeds: &Feeds,
    limit: f64,
) -> Option<String> {
    let (found, wanted) = (outputs(device, role, graph, feeds), expected(graph, feeds));
    let worst = found
        .iter()
        .zip(&wanted)
        .map(|(a, b)| error(a, b))
        .fold(0.0, |worst: f64, e| if e.is_nan() { f64::INFINITY } else { worst.max(e) });
    (worst > limit).then(|| format!("{name}: error {worst:.2e}, at most {limit:.0e} is allowed"))
}

/// Types of weights that kernels read.
pub(crate) fn types() -> impl Iterator<Item = DType> {
    let read = |dtype: &DType| {
        !matches!(dtype.name(), "tq1_0" | "nvfp4" | "q1_0" | "q2_0")
            && !["iq1", "iq2", "iq3"].iter().any(|kind| dtype.name().starts_with(kind))
    };
    orlop_quant::weight_types().filter(read).chain([DType::F16, DType::BF16])
}

/// The bytes of `m` rows of `k` numbers that follow from a seed.
pub(crate) fn weights(dtype: DType, seed: u64, k: u64, m: u64) -> Vec<u8> {
    let values = numbers(seed, (k * m) as usize);
    let mut bytes = vec![0; (dtype.row_bytes(k).unwrap() * m) as usize];
    encode(dtype, &values, &mut bytes).unwrap();
    bytes
}
