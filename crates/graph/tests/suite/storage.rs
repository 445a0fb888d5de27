//! Where tensors of random graphs lie.

use orlop_graph::Order;
use proptest::prelude::*;

use crate::dice;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_tensor_lies_inside_a_root_that_is_no_view(numbers in prop::collection::vec(any::<u64>(), 0..900)) {
        let graph = dice::graph(numbers);
        for tensor in graph.tensors() {
            let root = graph.tensor(tensor.storage.root);
            prop_assert_eq!(root.storage.root, tensor.storage.root);
            prop_assert!(tensor.storage.offset + tensor.desc.bytes() <= root.desc.bytes());
        }
    }

    #[test]
    fn runs_cover_as_many_bytes_as_there_are_elements(numbers in prop::collection::vec(any::<u64>(), 0..900)) {
        for tensor in dice::graph(numbers).tensors() {
            let (desc, runs) = (tensor.desc, tensor.desc.runs());
            if desc.elements() > 10_000 {
                continue;
            }
            let run = runs.run_bytes();
            let blocks = desc.elements() / desc.dtype.block_elements();
            let ends: Vec<u64> = runs.map(|start| start + run).collect();
            prop_assert_eq!(ends.len() as u64 * run, blocks * desc.dtype.block_bytes());
            prop_assert_eq!(ends.into_iter().max().unwrap_or(0), desc.bytes());
        }
    }

    #[test]
    fn the_callers_order_is_legal(numbers in prop::collection::vec(any::<u64>(), 0..900)) {
        let graph = dice::graph(numbers);
        let sequence: Vec<i64> = (0..graph.nodes().len() as i64).flat_map(|node| [node, -1]).collect();
        prop_assert_eq!(Order::new(&graph, &sequence), Ok(graph.order()));
    }
}
