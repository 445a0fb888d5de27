//! Building graphs: errors, names, storage.

use orlop_graph::{
    DType, DescError, GraphBuilder, GraphError, Leaf, Op, OpError, Origin, Storage, TensorDesc, TensorId,
    Unary,
};

#[test]
fn the_first_error_wins_and_names_op_tensor_and_numbers() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 2]);
    let w = b.weight("w", DType::F32, &[63, 32]);
    let y = b.mul_mat(w, x);
    b.name(y, "logits");
    b.reshape(x, &[5]);
    b.input("late", DType::Q4_0, &[1]);
    let error = b.build().unwrap_err();
    assert_eq!(error.to_string(), "mul_mat for `logits` (n0)");
    let GraphError::Op { source: OpError::Extents { operand, extents, .. }, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!((operand, extents), (1, [64, 2, 1, 1]));
}

#[test]
fn refused_leaves_are_named() {
    let mut b = GraphBuilder::new();
    b.weight("blocks", DType::Q4_0, &[33]);
    let refused = DescError::PartialBlock { dtype: DType::Q4_0, extent: 33 };
    assert_eq!(b.build(), Err(GraphError::Leaf { name: "blocks".into(), source: refused.into() }));
}

#[test]
fn what_follows_a_refused_call_is_passed_over() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let wrong = b.reshape(x, &[5]);
    assert!(b.desc(wrong).is_empty());
    let view = b.view(wrong, [9, 9, 9, 9], [1; 4], 77);
    let sum = b.add(view, x);
    b.output(sum);
    assert!(matches!(b.build(), Err(GraphError::Op { op, .. }) if op == "reshape"));
}

#[test]
fn ids_of_larger_graphs_are_refused() {
    let mut large = GraphBuilder::new();
    let foreign = (0..9).map(|_| large.input("x", DType::F32, &[1])).last().unwrap();
    let refused = GraphError::ForeignTensor { tensor: foreign, tensors: 1 };
    type Call = fn(&mut GraphBuilder, TensorId) -> TensorId;
    let calls: [Call; 3] =
        [|b, id| b.unary(Unary::Abs, id), |b, id| b.output(id), |b, id| b.name(id, "name")];
    for call in calls {
        let mut b = GraphBuilder::new();
        b.input("x", DType::F32, &[1]);
        assert!(b.desc(foreign).is_empty());
        call(&mut b, foreign);
        assert_eq!(b.build(), Err(refused.clone()));
    }
}

#[test]
fn more_than_four_dimensions_are_refused_everywhere() {
    let five = [2, 1, 1, 1, 1];
    let refused = OpError::Desc(DescError::TooManyDimensions(5));
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[2]);
    b.reshape(x, &five);
    assert!(matches!(b.build(), Err(GraphError::Op { source, .. }) if source == refused));
    let mut b = GraphBuilder::new();
    b.custom("mine", &[], DType::F32, &five, &[]);
    assert!(matches!(b.build(), Err(GraphError::Op { source, .. }) if source == refused));
    let mut b = GraphBuilder::new();
    b.input("x", DType::F32, &five);
    assert!(matches!(b.build(), Err(GraphError::Leaf { source, .. }) if source == refused));
}

#[test]
fn weights_are_only_read() {
    for leaf in [Leaf::Weight, Leaf::State, Leaf::Persistent, Leaf::Input] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[4]);
        let into = b.leaf(leaf, "into", TensorDesc::contiguous(DType::F16, &[8]));
        let half = b.view(into, [4, 1, 1, 1], [2, 8, 8, 8], 8);
        b.copy(x, half);
        let built = b.build();
        if leaf == Leaf::Weight {
            assert_eq!(
                built.unwrap_err().to_string(),
                "copy (n1) writes into the weight `into`; declare it as a state"
            );
        } else {
            assert!(built.is_ok());
        }
    }
}

#[test]
fn writes_are_their_destination() {
    let mut b = GraphBuilder::new();
    let cache = b.state("cache", DType::F16, &[8, 32]);
    let rows = b.input("rows", DType::F32, &[8, 2]);
    let at = b.input("at", DType::I32, &[2]);
    let written = b.set_rows(cache, rows, at);
    let graph = b.build().unwrap();
    assert_eq!(graph.tensor(written).desc, graph.tensor(cache).desc);
    assert_eq!(graph.tensor(written).storage, Storage { root: cache, offset: 0 });
    assert_eq!(graph.root_leaf(written), Some(Leaf::State));
    assert!(graph.is_view(written));
}

#[test]
fn views_of_views_lie_in_the_root_at_summed_offsets() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[8, 8]);
    let y = b.sqr(x);
    let a = b.view(y, [4, 8, 1, 1], [4, 32, 256, 256], 16);
    let c = b.view(a, [2, 4, 1, 1], [4, 32, 128, 128], 72);
    let d = b.transpose(c);
    let e = b.view(d, [1, 2, 1, 1], [32, 4, 8, 8], 96);
    let graph = b.build().unwrap();
    for (id, offset) in [(y, 0), (a, 16), (c, 88), (d, 88), (e, 184)] {
        assert_eq!(graph.tensor(id).storage, Storage { root: y, offset });
    }
    assert_eq!(graph.root_leaf(e), None);
}

#[test]
fn a_view_stays_within_its_operand_not_only_within_the_root() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[8]);
    let a = b.view(x, [4, 1, 1, 1], [4, 16, 16, 16], 0);
    b.view(a, [4, 1, 1, 1], [4, 16, 16, 16], 4);
    let outside = OpError::OutsideStorage { end: 20, bytes: 16 };
    assert!(matches!(b.build(), Err(GraphError::Op { source, .. }) if source == outside));
}

#[test]
fn empty_tensors_are_tensors() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 0]);
    let w = b.weight("w", DType::F32, &[64, 32]);
    let y = b.mul_mat(w, x);
    let z = b.reshape(y, &[0, 7]);
    let graph = b.build().unwrap();
    assert_eq!(graph.tensor(z).desc.bytes(), 0);
    assert_eq!(graph.storage_edges(), []);
}

#[test]
fn absurd_sizes_are_errors() {
    for extents in [&[u64::MAX][..], &[1 << 32, 1 << 32], &[1 << 62], &[1 << 40, 1 << 40, 0]] {
        let mut b = GraphBuilder::new();
        b.input("x", DType::F32, extents);
        let refused = b.build();
        assert!(matches!(
            refused,
            Err(GraphError::Leaf { source: OpError::Desc(DescError::TooLarge { .. }), .. })
        ));
    }
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[1 << 40]);
    b.node(Op::Repeat { extents: [1 << 40, 1 << 40, 1, 1] }, &[x]);
    assert!(matches!(b.build(), Err(GraphError::Op { op, .. }) if op == "repeat"));
}

#[test]
fn leaves_made_by_hand_are_checked() {
    let wrong = TensorDesc { dtype: DType::F32, extents: [u64::MAX, 2, 1, 1], strides: [4; 4] };
    let mut b = GraphBuilder::new();
    b.leaf(Leaf::Input, "x", Ok(wrong));
    assert!(matches!(b.build(), Err(GraphError::Leaf { .. })));
    let padded = TensorDesc::strided(DType::F32, [3, 2, 1, 1], [4, 64, 128, 128]);
    let mut b = GraphBuilder::new();
    let x = b.leaf(Leaf::Input, "x", padded.clone());
    assert_eq!(b.build().unwrap().tensor(x).desc, padded.unwrap());
}

#[test]
fn names_are_ids_until_given() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    let z = b.sqr(y);
    b.name(z, "result");
    let graph = b.build().unwrap();
    assert_eq!(graph.tensor(y).name, "t1");
    assert_eq!((graph.find("result"), graph.find("nothing")), (Some(z), None));
    let Origin::Node(node) = graph.tensor(z).origin else { panic!("a result") };
    assert_eq!(graph.node(node).inputs, [y]);
    assert_eq!(graph.leaves().collect::<Vec<_>>(), [(x, Leaf::Input)]);
}
