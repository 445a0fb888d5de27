use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{BufferType, Device, DeviceError, MemoryLayout, Reason, Role, RunOptions, Support};
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};
use orlop_sched::{Machine, Session, SessionOptions};
use orlop_testkit::{f32_bytes, f32s};
use orlop_wgpu::{WgpuDevice, WgpuOptions};

use crate::support::{cpu, gpu_with, numbers};

const MIB: u64 = 1 << 20;

/// A device that binds no more than a mebibyte.
fn narrow() -> Arc<WgpuDevice> {
    gpu_with(WgpuOptions { max_binding: Some(MIB), ..WgpuOptions::default() })
}

/// Four products with weights of 768 KiB each, whose results of 600 KiB each live to the end.
fn wide_graph() -> (Graph, TensorId, Vec<TensorId>, TensorId) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[384, 300]);
    let weights: Vec<TensorId> =
        (0..4).map(|number| b.weight(&format!("w{number}"), DType::F32, &[384, 512])).collect();
    let products: Vec<TensorId> = weights.iter().map(|weight| b.mul_mat(*weight, x)).collect();
    let sum = products[1..].iter().fold(products[0], |sum, product| b.add(sum, *product));
    let all = products.iter().fold(sum, |sum, product| b.mul(sum, *product));
    b.output(all);
    (b.build().unwrap(), x, weights, all)
}

/// The result of the graph on a device, and the chunks of its arena.
fn run(device: Arc<dyn Device>) -> (Vec<f32>, Vec<u64>) {
    let (graph, x, weights, all) = wide_graph();
    let set: Vec<SetTensor> = weights
        .iter()
        .map(|id| SetTensor::new(graph.tensor(*id).name.as_str(), graph.tensor(*id).desc))
        .collect();
    let plain =
        |memory: &&Arc<dyn BufferType>| memory.layout() == MemoryLayout::Plain && !memory.is_borrowed();
    let memory = device.buffer_types(Role::Weight).iter().find(plain).unwrap();
    let set = TensorSet::allocate(memory, &set).unwrap();
    let mut externals = Externals::new();
    for (number, (id, stored)) in weights.iter().zip(set.tensors()).enumerate() {
        stored.set(0, &f32_bytes(&numbers(384 * 512, number as u64))).unwrap();
        externals.insert(*id, stored.clone());
    }
    let mut session = Session::new(Machine::new([device]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &externals).unwrap();
    session.set(plan, x, &f32_bytes(&numbers(384 * 300, 9))).unwrap();
    session.run(plan, &RunOptions::default()).unwrap();
    session.check_races(plan).unwrap();
    let mut bytes = vec![0; 512 * 300 * 4];
    session.get(plan, all, &mut bytes).unwrap();
    let device = session.machine().indices().next().unwrap();
    let chunks = session.memory_plan(plan, device).unwrap().arenas[0].chunks.clone();
    assert_eq!(session.arena_bytes(device), chunks.iter().sum::<u64>());
    (f32s(&bytes), chunks)
}

#[test]
fn memory_beyond_the_largest_binding_comes_in_chunks() {
    let device = narrow();
    assert_eq!(device.buffer_types(Role::Arena)[0].max_bytes(), MIB);
    let (found, chunks) = run(device.clone());
    assert!(chunks.len() >= 3, "{chunks:?}");
    assert!(chunks.iter().all(|bytes| *bytes <= MIB), "{chunks:?}");
    let (expected, whole) = run(gpu_with(WgpuOptions::default()));
    assert_eq!(whole.len(), 1);
    assert_eq!(found, expected);
    let (on_cpu, _) = run(cpu());
    let (mut error, mut scale) = (0.0, 0.0);
    for (a, b) in found.iter().zip(&on_cpu) {
        error += f64::from(a - b).powi(2);
        scale += f64::from(*b).powi(2);
    }
    assert!(error / scale < 1e-8, "{}", error / scale);
}

#[test]
fn a_tensor_larger_than_a_binding_is_refused_and_runs_on_the_cpu() {
    let device = narrow();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[1000]);
    let small = b.sqr(x);
    let large = b.repeat(small, [1000, 300, 1, 1]);
    let rows = b.sum_rows(large);
    b.output(rows);
    let graph = b.build().unwrap();
    let too_large = graph.tensor(large).desc;
    let memory = Arc::clone(&device.buffer_types(Role::Arena)[0]);
    let refused = Arc::clone(&memory).allocate(too_large.bytes());
    assert!(matches!(refused, Err(DeviceError::TooLarge { bytes: 1_200_000, max: MIB, .. })), "{refused:?}");

    let machine = Machine::new([device as Arc<dyn Device>, cpu()]).unwrap();
    let on_gpu = machine.indices().next().unwrap();
    let nodes: Vec<_> = graph.node_ids().collect();
    assert!(machine.can_run(on_gpu, &graph, nodes[0]));
    assert!(!machine.can_run(on_gpu, &graph, nodes[1]));
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    session.set(plan, x, &f32_bytes(&vec![0.5; 1000])).unwrap();
    session.run(plan, &RunOptions::default()).unwrap();
    let mut bytes = vec![0; 1200];
    session.get(plan, rows, &mut bytes).unwrap();
    assert_eq!(f32s(&bytes), vec![250.0; 300]);
    let why = format!("{:?}", session.placement(plan).unwrap());
    assert!(why.contains("OnlyChoice") || why.contains("Only"), "{why}");
}

#[test]
fn what_is_refused_says_the_limit() {
    use orlop_backend::{NodeQuery, Operand};
    use orlop_graph::{Op, TensorDesc};
    let device = narrow();
    let desc = TensorDesc::contiguous(DType::F32, &[1 << 19]).unwrap();
    let operand = Operand { desc: &desc, buffer_type: None };
    let query = NodeQuery { op: &Op::Cont, inputs: &[operand], output: operand };
    let limit = Reason::Limit { limit: "bytes of a tensor", value: 2 * MIB, max: MIB };
    assert_eq!(device.supports(&query), Support::No(limit));
}
