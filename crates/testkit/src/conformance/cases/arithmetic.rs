//! Arithmetic with broadcasting.

use orlop_graph::{DType, Op};

use super::HALVES;
use super::unary::one_operand;
use crate::conformance::Tolerance::Elementwise;
use crate::conformance::case::{Lie, Table, shape};
use crate::fill::Fill;

/// Extents of both operands: equal, one of size one, repeated along each dimension, in parts, empty.
const BROADCASTS: [[[u64; 4]; 2]; 20] = [
    [[1, 1, 1, 1], [1, 1, 1, 1]],
    [[7, 1, 1, 1], [7, 1, 1, 1]],
    [[64, 1, 1, 1], [64, 1, 1, 1]],
    [[33, 5, 3, 2], [33, 5, 3, 2]],
    [[16, 4, 2, 2], [16, 4, 2, 2]],
    [[5, 3, 1, 1], [1, 1, 1, 1]],
    [[5, 3, 1, 1], [1, 3, 1, 1]],
    [[5, 3, 1, 1], [5, 1, 1, 1]],
    [[4, 3, 2, 1], [4, 1, 2, 1]],
    [[4, 3, 2, 1], [4, 3, 1, 1]],
    [[3, 2, 2, 3], [3, 2, 1, 3]],
    [[3, 2, 2, 3], [3, 2, 2, 1]],
    [[3, 2, 2, 3], [1, 1, 1, 3]],
    [[3, 2, 4, 3], [3, 1, 4, 1]],
    [[6, 4, 1, 1], [3, 2, 1, 1]],
    [[6, 4, 2, 2], [2, 4, 1, 2]],
    [[4, 3, 6, 4], [4, 3, 2, 2]],
    [[0, 3, 1, 1], [0, 3, 1, 1]],
    [[5, 0, 2, 1], [5, 0, 1, 1]],
    [[1, 9, 1, 1], [1, 1, 1, 1]],
];

pub(super) fn add(table: &mut Table) {
    for op in [Op::Add, Op::Sub, Op::Mul, Op::Div] {
        binary(table, &op);
    }
    add1(table);
    for (kind, scale, bias) in [("scale", 0.37, 0.0), ("scale bias", -2.5, 1.25)] {
        one_operand(table, kind, &Op::Scale { scale, bias }, &Fill::SIGNED, Elementwise);
    }
    for (kind, min, max) in [("clamp", -0.5, 0.25), ("clamp above", -1.0e30, 0.1)] {
        one_operand(table, kind, &Op::Clamp { min, max }, &Fill::SIGNED, Elementwise);
    }
}

fn binary(table: &mut Table, op: &Op) {
    let kind = op.name();
    // Quotients stay of the operands' size.
    let second = match op {
        Op::Div => Fill::Uniform { low: 0.5, high: 2.0 },
        _ => Fill::SIGNED,
    };
    for [a, b] in BROADCASTS {
        table.add(kind, format!("{} by {}", shape(&a), shape(&b)), Elementwise, |d| {
            let operands = [d.input(DType::F32, &a, Fill::SIGNED), d.input(DType::F32, &b, second.clone())];
            d.b.node(op.clone(), &operands)
        });
    }
    let half = DType::F16;
    let wide = DType::F32;
    let short = DType::BF16;
    for (a, b) in [(half, half), (short, short), (wide, half), (half, wide), (wide, short), (short, wide)] {
        for repeated in [[9, 3], [9, 1]] {
            table.add(kind, format!("{a} by {b} of {}", shape(&repeated)), Elementwise, |d| {
                let operands = [d.input(a, &[9, 3], Fill::SIGNED), d.input(b, &repeated, second.clone())];
                d.b.node(op.clone(), &operands)
            });
        }
    }
    let pairs = Lie::ODD.into_iter().flat_map(|lie| [(lie, Lie::Plain), (Lie::Plain, lie), (lie, lie)]);
    for (first, other) in pairs {
        table.add(kind, format!("{first} by {other}"), Elementwise, |d| {
            let a = d.lying(first, DType::F32, &[6, 5, 3, 2], Fill::SIGNED);
            let b = d.lying(other, DType::F32, &[6, 5, 3, 2], second.clone());
            d.b.node(op.clone(), &[a, b])
        });
    }
    table.add(kind, "permuted, repeated", Elementwise, |d| {
        let a = d.lying(Lie::Permuted, DType::F32, &[6, 4, 3, 2], Fill::SIGNED);
        let b = d.lying(Lie::Permuted, DType::F32, &[6, 1, 3, 1], second.clone());
        d.b.node(op.clone(), &[a, b])
    });
    for (place, order) in [("first", [0, 1]), ("second", [1, 0]), ("both", [0, 0])] {
        table.add(kind, format!("in place of the {place}"), Elementwise, |d| {
            let x = d.input(DType::F32, &[13, 3], second.clone());
            let y = d.input(DType::F32, &[13, 3], second.clone());
            // Results of a node are free to be overwritten, and `y` is kept by its second reader.
            let made = d.b.scale(x, 1.5);
            let operands = order.map(|which| [made, y][which]);
            let result = d.b.node(op.clone(), &operands);
            d.b.add(result, y)
        });
    }
}

fn add1(table: &mut Table) {
    for extents in [&[1][..], &[7], &[5, 3], &[4, 3, 2, 2], &[0, 2]] {
        table.add("add1", shape(extents), Elementwise, |d| {
            let operands = [d.f32(extents), d.f32(&[1])];
            d.b.add1(operands[0], operands[1])
        });
    }
    for dtype in HALVES {
        table.add("add1", dtype, Elementwise, |d| {
            let operands = [d.input(dtype, &[7, 2], Fill::SIGNED), d.input(dtype, &[1], Fill::SIGNED)];
            d.b.add1(operands[0], operands[1])
        });
    }
    for lie in Lie::ODD {
        table.add("add1", lie, Elementwise, |d| {
            let operands = [d.lying(lie, DType::F32, &[6, 5, 2], Fill::SIGNED), d.f32(&[1])];
            d.b.add1(operands[0], operands[1])
        });
    }
}
