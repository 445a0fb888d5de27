//! Graphs that an allocator has placed, run where they lie.

use std::sync::Arc;

use orlop_alloc::{Allocation, Error, Externals, GraphAllocator, SetTensor, TensorSet};
use orlop_backend::{Device, DeviceError, Role, StoredTensor};
use orlop_graph::{DType, Graph, GraphBuilder, Leaf, TensorId};
use orlop_testkit::{ReferenceDevice, generate};

use crate::graphs::unplanned;
use crate::{device, isas, run};

fn stored(graph: &Graph, allocation: &Allocation, id: TensorId) -> StoredTensor {
    let slot = allocation.slot(id).expect("a place").clone();
    StoredTensor::new("x", graph.tensor(id).desc, slot).unwrap()
}

#[test]
fn a_placed_graph_runs_in_one_call() {
    let isas: Vec<_> = isas().collect();
    let mut runs = 0;
    for seed in 0..120 {
        let device: Arc<dyn Device> = device(isas[seed as usize % isas.len()]);
        let (graph, feeds) = generate::graph(seed, &generate::Size::default());
        let memory = &device.buffer_types(Role::Arena)[0];
        let external = |id: TensorId| graph.root_leaf(id).is_some_and(|leaf| leaf.is_external());
        let leaves: Vec<TensorId> =
            graph.leaves().filter(|(id, _)| external(*id)).map(|(id, _)| id).collect();
        let tensors: Vec<_> = leaves.iter().map(|id| SetTensor::new("w", graph.tensor(*id).desc)).collect();
        let set = TensorSet::allocate(memory, &tensors).unwrap();
        let mut externals = Externals::new();
        for (id, tensor) in leaves.iter().zip(set.tensors()) {
            tensor.memset(0, tensor.desc().bytes(), 0).unwrap();
            externals.insert(*id, tensor.clone());
        }
        let mut allocator = GraphAllocator::new([Arc::clone(memory)]).unwrap();
        let allocation = allocator.alloc(&graph, &externals).unwrap();
        for (id, bytes) in &feeds {
            stored(&graph, &allocation, *id).set(0, bytes).unwrap();
        }
        match allocation.run(&*device, &run(1 + seed as usize % 3)) {
            Ok(()) => runs += 1,
            // The plan takes every place that an op may overwrite; a kernel may want more room.
            Err(Error::NotAsPlaced { .. }) => continue,
            Err(error) => panic!("graph {seed}: {error}"),
        }
        let contiguous = |(id, _): &(TensorId, Vec<u8>)| graph.tensor(*id).desc.is_contiguous();
        for (id, expected) in unplanned(&device, &graph, &feeds).into_iter().filter(contiguous) {
            let mut bytes = vec![0; expected.len()];
            stored(&graph, &allocation, id).get(0, &mut bytes).unwrap();
            assert!(bytes == expected, "graph {seed}, {}", graph.tensor(id).name);
        }
    }
    assert!(runs > 100, "{runs} of 120 graphs ran");
}

#[test]
fn a_placed_graph_without_its_weights_is_refused() {
    let mut b = GraphBuilder::new();
    let w = b.weight("w", DType::F32, &[4]);
    let y = b.sqr(w);
    b.output(y);
    let graph = b.build().unwrap();
    assert_eq!(graph.root_leaf(w), Some(Leaf::Weight));
    let device = ReferenceDevice::named("r");
    let mut allocator = GraphAllocator::new([Arc::clone(&device.buffer_types(Role::Arena)[0])]).unwrap();
    let allocation = allocator.alloc(&graph, &Externals::new()).unwrap();
    let refused = allocation.run(&*device, &run(1)).unwrap_err();
    assert!(
        matches!(refused, Error::Device(DeviceError::Unbound { ref value }) if value == "w"),
        "{refused}"
    );
}
