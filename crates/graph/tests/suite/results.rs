//! Outputs of a graph.

use orlop_graph::{DType, GraphBuilder};

#[test]
fn unread_results_are_results_only_without_outputs() {
    let build = |declare: bool| {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[4]);
        b.input("unused", DType::F32, &[4]);
        let y = b.sqr(x);
        let z = b.relu(y);
        let u = b.silu(x);
        if declare {
            b.output(y);
            b.output(y);
        }
        (b.build().unwrap(), y, z, u)
    };
    let (graph, _, z, u) = build(false);
    assert_eq!(graph.results(), [z, u]);
    let (graph, y, ..) = build(true);
    assert_eq!((graph.results(), graph.outputs()), (vec![y], &[y][..]));
}
