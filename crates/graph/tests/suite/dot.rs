//! Graphs in Graphviz's language.

use orlop_graph::{DType, GraphBuilder};

#[test]
fn pictures_mark_outputs_and_escape_names() {
    let mut b = GraphBuilder::new();
    let x = b.weight("a \"b\"\\c\nd", DType::F32, &[4]);
    let y = b.sqr(x);
    b.output(y);
    let dot = b.build().unwrap().to_dot();
    assert_eq!(
        dot,
        "digraph orlop {\n  rankdir=TB;\n  \
         t0 [shape=box, label=\"a \\\"b\\\"\\\\c\\nd\\nweight f32[4 1 1 1]\"];\n  \
         t1 [shape=ellipse, peripheries=2, label=\"t1\\nsqr f32[4 1 1 1]\"];\n  \
         t0 -> t1 [label=\"0\"];\n}\n"
    );
}

#[test]
fn storage_edges_are_dashed_where_no_operand_shows_them() {
    let mut b = GraphBuilder::new();
    let cache = b.state("cache", DType::F32, &[4]);
    let x = b.input("x", DType::F32, &[4]);
    let written = b.copy(x, cache);
    let hidden = b.sqr(cache);
    let shown = b.sqr(written);
    let dot = b.build().unwrap().to_dot();
    assert!(dot.contains(&format!("  {written} -> {hidden} [style=dashed];")));
    assert!(!dot.contains(&format!("  {written} -> {shown} [style=dashed];")));
}
