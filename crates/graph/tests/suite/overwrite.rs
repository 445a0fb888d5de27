//! Which operands results may overwrite.

use orlop_graph::{Op, may_overwrite};

use crate::dice::one_of_each;

#[test]
fn only_operands_at_the_same_place_may_be_overwritten() {
    let allowed: Vec<(String, Vec<usize>)> = one_of_each()
        .map(|op| (op.name().to_owned(), (0..8).filter(|slot| may_overwrite(&op, *slot)).collect()))
        .filter(|(_, slots): &(_, Vec<_>)| !slots.is_empty())
        .collect();
    for (name, slots) in &allowed {
        match name.as_str() {
            "add" | "sub" | "mul" | "div" | "reglu" => assert_eq!(slots, &[0, 1], "{name}"),
            _ => assert_eq!(slots, &[0], "{name}"),
        }
    }
    let names: Vec<&str> = allowed.iter().map(|(name, _)| name.as_str()).collect();
    for never in ["mul_mat", "get_rows", "copy", "set_rows", "view", "cast", "roll", "concat", "argsort"] {
        assert!(!names.contains(&never), "{never}");
    }
}

#[test]
fn custom_ops_name_what_they_overwrite() {
    let op = Op::Custom {
        name: "mine".into(),
        dtype: orlop_graph::DType::F32,
        extents: [1; 4],
        overwrites: vec![2],
    };
    assert_eq!((0..4).filter(|slot| may_overwrite(&op, *slot)).collect::<Vec<_>>(), [2]);
}
