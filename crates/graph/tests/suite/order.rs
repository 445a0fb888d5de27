//! Orders of execution.

use orlop_graph::{DType, Graph, GraphBuilder, GraphError, NodeId, Order};

/// `n0 = f(x)`, `n1 = f(x)`, `n2 = f(n0)`, `n3 = f(n1, n2)`.
fn diamond() -> Graph {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[16]);
    let n0 = b.sqr(x);
    let n1 = b.relu(x);
    let n2 = b.silu(n0);
    b.add(n1, n2);
    b.build().expect("all nodes fit")
}

fn groups(order: &Order) -> Vec<Vec<usize>> {
    order.groups().map(|group| group.iter().map(|node| node.index()).collect()).collect()
}

fn id(graph: &Graph, index: usize) -> NodeId {
    graph.node_ids().nth(index).expect("a node of the graph")
}

#[test]
fn the_callers_order_has_a_barrier_after_each_node() {
    let graph = diamond();
    assert_eq!(groups(&graph.order()), [[0], [1], [2], [3]]);
    assert_eq!(Order::new(&graph, &[0, -1, 1, -1, 2, -1, 3, -1]), Ok(graph.order()));
    assert_eq!(Order::new(&graph, &[0, -1, 1, -1, 2, -1, 3]), Ok(graph.order()));
}

#[test]
fn barriers_end_groups_and_empty_groups_collapse() {
    let graph = diamond();
    let order = Order::new(&graph, &[-1, -1, 1, 0, 2, -1, -1, 3, -1, -1]).unwrap();
    assert_eq!(groups(&order), [vec![1, 0, 2], vec![3]]);
    assert_eq!(order.nodes().len(), 4);
    assert_eq!(groups(&Order::new(&graph, &[-1, -1]).unwrap()), Vec::<Vec<usize>>::new());
    assert_eq!(groups(&Order::new(&graph, &[]).unwrap()), Vec::<Vec<usize>>::new());
}

#[test]
fn numbers_out_of_range_are_refused() {
    let graph = diamond();
    for wrong in [4, -2, i64::MAX, i64::MIN] {
        let refused = GraphError::NoSuchNode { position: 2, node: wrong, nodes: 4 };
        assert_eq!(Order::new(&graph, &[0, -1, wrong]), Err(refused));
    }
}

#[test]
fn a_node_runs_once() {
    let graph = diamond();
    let refused = GraphError::Repeated { node: id(&graph, 1) };
    assert_eq!(Order::new(&graph, &[0, 1, -1, 1]), Err(refused));
}

#[test]
fn operands_come_first() {
    let graph = diamond();
    let refused = GraphError::TooEarly { node: id(&graph, 2), needs: id(&graph, 0) };
    assert_eq!(Order::new(&graph, &[1, 2, 0, 3]), Err(refused));
}

#[test]
fn nodes_that_no_listed_node_needs_may_be_left_out() {
    let graph = diamond();
    assert_eq!(groups(&Order::new(&graph, &[0, 2, -1]).unwrap()), [[0, 2]]);
    let refused = GraphError::TooEarly { node: id(&graph, 3), needs: id(&graph, 1) };
    assert_eq!(Order::new(&graph, &[0, 2, 3]), Err(refused));
}

/// n0 writes a row of the cache, n1 reads all of it, n2 writes another row, n3 reads all of it.
fn cache() -> Graph {
    let mut b = GraphBuilder::new();
    let cache = b.state("cache", DType::F32, &[4, 8]);
    let x = b.input("x", DType::F32, &[4, 1]);
    let at = b.input("at", DType::I32, &[1]);
    b.set_rows(cache, x, at);
    b.sum_rows(cache);
    b.set_rows(cache, x, at);
    b.mean(cache);
    b.build().expect("all nodes fit")
}

#[test]
fn a_cache_is_written_before_it_is_read_through_another_tensor() {
    let graph = cache();
    assert!(Order::new(&graph, &[0, 1, 2, 3]).is_ok());
    let early = |node, needs| Err(GraphError::TooEarly { node: id(&graph, node), needs: id(&graph, needs) });
    assert_eq!(Order::new(&graph, &[1, 0, 2, 3]), early(1, 0));
    assert_eq!(Order::new(&graph, &[0, 2, 1, 3]), early(2, 1));
    assert_eq!(Order::new(&graph, &[0, 1, 3, 2]), early(3, 2));
}

#[test]
fn earlier_writes_are_needed_and_earlier_readers_are_not() {
    let graph = cache();
    assert!(Order::new(&graph, &[0, 2, 3]).is_ok());
    let refused = GraphError::TooEarly { node: id(&graph, 2), needs: id(&graph, 0) };
    assert_eq!(Order::new(&graph, &[2, 3]), Err(refused));
}
