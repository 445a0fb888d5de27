//! Graphs as JSON, and malformed files.

use orlop_graph::{DType, Graph, GraphBuilder, GraphError, Op, OpError};
use proptest::prelude::*;

use crate::dice;

fn small() -> Graph {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.clamp(x, f32::NEG_INFINITY, 0.1);
    b.name(y, "y");
    b.output(y);
    b.build().expect("all nodes fit")
}

fn text() -> String {
    small().to_json().expect("JSON holds every graph")
}

/// The small graph's text with one part exchanged.
fn with(part: &str, by: &str) -> Result<Graph, GraphError> {
    assert_eq!(text().matches(part).count(), 1, "{part} in {}", text());
    Graph::from_json(&text().replace(part, by))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn graphs_survive_a_round_trip(numbers in prop::collection::vec(any::<u64>(), 0..900)) {
        let graph = dice::graph(numbers);
        let text = graph.to_json().unwrap();
        prop_assert_eq!(Graph::from_json(&text), Ok(graph));
    }

    #[test]
    fn every_finite_parameter_survives_a_round_trip(bits in any::<u32>()) {
        let scale = f32::from_bits(bits);
        prop_assume!(scale.is_finite());
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[1]);
        b.scale(x, scale);
        let graph = b.build().unwrap();
        prop_assert_eq!(Graph::from_json(&graph.to_json().unwrap()), Ok(graph));
    }

    #[test]
    fn damaged_text_never_panics(at in 0..1000usize, byte in 0x20..0x7fu8) {
        let mut bytes = text().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = Graph::from_json(&String::from_utf8(bytes).unwrap());
    }
}

#[test]
fn the_text_is_plain() {
    assert_eq!(
        text(),
        r#"{"version":1,"tensors":[{"name":"x","desc":{"dtype":"f32","extents":[4,1,1,1],"strides":[4,16,16,16]},"leaf":"input"},{"name":"y","desc":{"dtype":"f32","extents":[4,1,1,1],"strides":[4,16,16,16]},"op":{"clamp":{"min":"-inf","max":0.1}},"inputs":[0]}],"outputs":[1]}"#
    );
    assert_eq!(Graph::from_json(&text()), Ok(small()));
}

#[test]
fn ops_are_written_under_their_names() {
    for op in dice::one_of_each() {
        let written = match serde_json::to_value(&op).unwrap() {
            serde_json::Value::String(name) => name,
            serde_json::Value::Object(fields) => fields.keys().next().unwrap().clone(),
            other => panic!("{other}"),
        };
        assert_eq!(written, op.info().name);
    }
}

#[test]
fn parameters_may_be_infinite_or_nan() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[1]);
    b.clamp(x, f32::NAN, f32::INFINITY);
    let text = b.build().unwrap().to_json().unwrap();
    let read = Graph::from_json(&text).unwrap();
    let Op::Clamp { min, max } = read.nodes()[0].op else { panic!("a clamp") };
    assert!(min.is_nan() && max == f32::INFINITY);
    for (wrong, says) in [("\"huge\"", "huge"), ("1e60", "1e+60"), ("null", "null"), ("[1]", "sequence")] {
        let error = with("\"-inf\"", wrong).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("a 32-bit number"), "{error}");
    }
    assert!(with("\"-inf\"", "-3").is_ok());
}

#[test]
fn malformed_text_names_line_and_column_once() {
    let error = Graph::from_json("{\n  \"version\": ?").unwrap_err();
    assert_eq!(error, GraphError::Json { line: 2, column: 14, message: "expected value".into() });
    assert_eq!(error.to_string(), "line 2, column 14: expected value");
}

#[test]
fn truncated_text_is_refused_at_every_byte() {
    let text = text();
    for end in 0..text.len() {
        let error = Graph::from_json(&text[..end]).unwrap_err();
        assert!(matches!(error, GraphError::Json { .. }), "{error}");
    }
    assert!(Graph::from_json(&format!("{text} x")).is_err());
}

#[test]
fn what_the_format_does_not_know_is_refused() {
    for (part, by, says) in [
        ("\"clamp\"", "\"clomp\"", "unknown variant `clomp`"),
        ("\"min\"", "\"low\"", "unknown field `low`"),
        ("\"leaf\":\"input\"", "\"leaf\":\"output\"", "unknown variant `output`"),
        ("\"outputs\"", "\"results\"", "unknown field `results`"),
        ("\"inputs\":[0]", "\"inputs\":[-1]", "-1"),
        ("\"inputs\":[0]", "\"inputs\":[4294967296]", "4294967296"),
        ("\"inputs\":[0]", "\"inputs\":[0.5]", "0.5"),
        (",\"leaf\"", ",\"more\":1,\"leaf\"", "unknown field `more`"),
    ] {
        let error = with(part, by).unwrap_err();
        assert!(matches!(&error, GraphError::Json { message, .. } if message.contains(says)), "{error}");
    }
    let unknown = text().replacen("f32", "f33", 1);
    let error = Graph::from_json(&unknown).unwrap_err();
    assert!(error.to_string().contains("unknown element type `f33`"), "{error}");
    for wrong in ["-4", "18446744073709551616", "4.5", "\"4\""] {
        let text = text().replacen("[4,1,1,1]", &format!("[{wrong},1,1,1]"), 1);
        assert!(matches!(Graph::from_json(&text), Err(GraphError::Json { .. })), "{wrong}");
    }
    let five = text().replacen("[4,1,1,1]", "[4,1,1,1,1]", 1);
    assert!(matches!(Graph::from_json(&five), Err(GraphError::Json { .. })));
}

#[test]
fn other_versions_are_refused() {
    assert_eq!(with("\"version\":1", "\"version\":2"), Err(GraphError::Version { found: 2, expected: 1 }));
}

#[test]
fn references_lead_backwards() {
    for (part, by, tensors) in [
        ("\"inputs\":[0]", "\"inputs\":[1]", 1),
        ("\"inputs\":[0]", "\"inputs\":[7]", 1),
        ("\"outputs\":[1]", "\"outputs\":[2]", 2),
    ] {
        let refused = with(part, by);
        assert!(
            matches!(refused, Err(GraphError::ForeignTensor { tensors: found, .. }) if found == tensors),
            "{refused:?}"
        );
    }
}

#[test]
fn a_tensor_is_a_leaf_or_a_result() {
    for (part, by, index) in [
        (",\"leaf\":\"input\"", "", 0),
        ("\"leaf\":\"input\"", "\"leaf\":\"input\",\"inputs\":[0]", 0),
        ("\"op\":{", "\"leaf\":\"state\",\"op\":{", 1),
    ] {
        let refused = with(part, by);
        assert!(
            matches!(refused, Err(GraphError::NeitherLeafNorNode { index: found, .. }) if found == index),
            "{refused:?}"
        );
    }
}

#[test]
fn descriptions_must_agree_with_what_nodes_compute() {
    let at = text().rfind("[4,1,1,1]").unwrap();
    for (written, shown) in
        [("[3,1,1,1]", "f32[3 1 1 1]"), ("[18446744073709551615,0,1,1]", "f32[18446744073709551615 0 1 1]")]
    {
        let text = format!("{}{written}{}", &text()[..at], &text()[at + 9..]);
        let error = Graph::from_json(&text).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("tensor t1 (`y`) is written as {shown}, its node computes f32[4 1 1 1]")
        );
    }
}

#[test]
fn refused_nodes_keep_the_name_of_the_file() {
    let text = text().replace("{\"clamp\":{\"min\":\"-inf\",\"max\":0.1}}", "\"add\"");
    let error = Graph::from_json(&text).unwrap_err();
    assert_eq!(error.to_string(), "add for `y` (n0)");
    assert!(matches!(error, GraphError::Op { source: OpError::Operands { given: 1, .. }, .. }));
}

#[test]
fn absurd_sizes_in_a_file_are_errors() {
    for extents in ["[18446744073709551615,2,1,1]", "[1099511627776,1099511627776,0,1]"] {
        let text = text().replacen("[4,1,1,1]", extents, 1);
        assert!(matches!(Graph::from_json(&text), Err(GraphError::Leaf { .. })));
    }
}
