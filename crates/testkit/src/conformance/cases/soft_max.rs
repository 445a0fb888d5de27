//! Softmax with masks and sinks, and diagonal masks.

use orlop_graph::{DType, Op, SoftMax};

use super::unary::one_operand;
use crate::conformance::Tolerance::{Exact, Reduction};
use crate::conformance::case::{Lie, Table, shape};
use crate::fill::Fill;

const PLAIN: SoftMax = SoftMax { scale: 1.0, max_bias: 0.0, mask: false, sinks: false };

pub(super) fn add(table: &mut Table) {
    let fill = Fill::Uniform { low: -3.0, high: 3.0 };
    let hidden = Fill::OneOf(vec![0.0, 0.0, 0.5, -1.0, f64::NEG_INFINITY]);
    one_operand(table, "soft_max", &Op::SoftMax(PLAIN), &fill, Reduction);
    one_operand(table, "soft_max scaled", &Op::SoftMax(SoftMax { scale: 0.125, ..PLAIN }), &fill, Reduction);
    for (detail, values) in [
        ("large scores", vec![1e4, 1e4 - 1.0, -1e4, 9.99e3]),
        ("rows of minus infinity", vec![f64::NEG_INFINITY]),
        ("some minus infinity", vec![f64::NEG_INFINITY, 1.0, 2.0]),
        ("one of all", vec![f64::NEG_INFINITY, f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY]),
    ] {
        table.add("soft_max", detail, Reduction, |d| {
            let x = d.input(DType::F32, &[12, 3], Fill::Values(values));
            d.b.soft_max(x, None, 1.0, 0.0)
        });
    }
    let masks = [
        ([9, 4, 1, 1], [9, 4, 1, 1]),
        ([9, 4, 3, 2], [9, 4, 1, 1]),
        ([9, 4, 4, 2], [9, 4, 2, 1]),
        ([9, 4, 3, 2], [9, 4, 3, 2]),
        ([33, 2, 3, 1], [33, 8, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
    ];
    for dtype in [DType::F32, DType::F16] {
        for (x, mask) in masks {
            for max_bias in [0.0, 8.0] {
                let kind = if max_bias == 0.0 { "soft_max masked" } else { "soft_max alibi" };
                table.add(kind, format!("{} by {} {dtype}", shape(&x), shape(&mask)), Reduction, |d| {
                    let x = d.input(DType::F32, &x, fill.clone());
                    let mask = d.input(dtype, &mask, hidden.clone());
                    d.b.soft_max(x, Some(mask), 0.35, max_bias)
                });
            }
        }
    }
    table.add("soft_max masked", "every row hidden", Reduction, |d| {
        let x = d.input(DType::F32, &[9, 4], fill.clone());
        let mask = d.input(DType::F32, &[9, 4], Fill::Values(vec![f64::NEG_INFINITY]));
        d.b.soft_max(x, Some(mask), 1.0, 0.0)
    });
    for lie in Lie::ROWS {
        table.add("soft_max masked", format!("{lie} with a {lie} mask"), Reduction, |d| {
            let x = d.lying(lie, DType::F32, &[9, 4, 3], fill.clone());
            let mask = d.lying(lie, DType::F16, &[9, 5, 1], hidden.clone());
            d.b.soft_max(x, Some(mask), 1.0, 0.0)
        });
    }
    table.add("soft_max masked", "in place", Reduction, |d| {
        let x = d.input(DType::F32, &[9, 4, 3], fill.clone());
        let made = d.b.scale(x, 0.5);
        let mask = d.input(DType::F32, &[9, 4], hidden.clone());
        d.b.soft_max(made, Some(mask), 1.0, 0.0)
    });
    for (detail, mask, max_bias) in
        [("alone", false, 0.0), ("and a mask", true, 0.0), ("a mask and slopes", true, 4.0)]
    {
        for heads in [1, 5] {
            table.add("soft_max sinks", format!("{detail} {heads} heads"), Reduction, |d| {
                let mut operands = vec![d.input(DType::F32, &[9, 4, heads, 2], fill.clone())];
                if mask {
                    operands.push(d.input(DType::F32, &[9, 4], hidden.clone()));
                }
                operands.push(d.input(DType::F32, &[heads], fill.clone()));
                let params = SoftMax { scale: 0.5, max_bias, mask, sinks: true };
                d.b.node(Op::SoftMax(params), &operands)
            });
        }
    }
    diag_mask(table);
}

fn diag_mask(table: &mut Table) {
    let ops: [fn(u32) -> Op; 2] = [|past| Op::DiagMaskInf { past }, |past| Op::DiagMaskZero { past }];
    for op in ops {
        let kind = op(0).name().to_owned();
        one_operand(table, &kind, &op(1), &Fill::SIGNED, Exact);
        for past in [0, 2, 100] {
            table.add(&kind, format!("{past} kept"), Exact, |d| {
                let x = d.f32(&[9, 5, 2]);
                d.b.node(op(past), &[x])
            });
        }
    }
}
