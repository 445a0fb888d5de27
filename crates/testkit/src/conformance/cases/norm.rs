//! Normalization of rows and of groups of channels.

use orlop_graph::{DType, Op};

use super::HALVES;
use super::unary::one_operand;
use crate::conformance::Tolerance::Reduction;
use crate::conformance::case::{Lie, Table, shape};
use crate::fill::Fill;

pub(super) fn add(table: &mut Table) {
    let ops: [fn(f32) -> Op; 3] =
        [|eps| Op::Norm { eps }, |eps| Op::RmsNorm { eps }, |eps| Op::L2Norm { eps }];
    let fill = Fill::Uniform { low: -1.0, high: 2.0 };
    for op in ops {
        let kind = op(0.0).name().to_owned();
        one_operand(table, &kind, &op(1e-5), &fill, Reduction);
        for eps in [1e-12, 1e-2, 1.0] {
            table.add(&kind, format!("eps {eps:e}"), Reduction, |d| {
                let x = d.input(DType::F32, &[40, 3], fill.clone());
                d.b.node(op(eps), &[x])
            });
        }
        table.add(&kind, "rows of zeros", Reduction, |d| {
            let x = d.input(DType::F32, &[8, 3], Fill::Values(vec![0.0]));
            d.b.node(op(1e-5), &[x])
        });
        table.add(&kind, "small numbers", Reduction, |d| {
            let x = d.input(DType::F32, &[50, 2], Fill::Uniform { low: -1e-6, high: 1e-6 });
            d.b.node(op(1e-12), &[x])
        });
        table.add(&kind, "long rows", Reduction, |d| {
            let x = d.input(DType::F32, &[1025, 2], fill.clone());
            d.b.node(op(1e-6), &[x])
        });
    }
    table.add("rms_norm", "then times a weight", Reduction, |d| {
        let x = d.input(DType::F32, &[48, 3], fill.clone());
        let weight = d.weight(DType::F32, &[48], Fill::SIGNED);
        let normed = d.b.rms_norm(x, 1e-5);
        d.b.mul(normed, weight)
    });
    table.add("norm", "then times a weight plus another", Reduction, |d| {
        let x = d.input(DType::F32, &[48, 3], fill.clone());
        let [weight, bias] = [0, 1].map(|_| d.weight(DType::F32, &[48], Fill::SIGNED));
        let normed = d.b.norm(x, 1e-5);
        let scaled = d.b.mul(normed, weight);
        d.b.add(scaled, bias)
    });
    group_norm(table, &fill);
}

fn group_norm(table: &mut Table, fill: &Fill) {
    let cases = [
        ([4, 3, 6, 2], 1),
        ([4, 3, 6, 2], 2),
        ([4, 3, 6, 2], 3),
        ([4, 3, 6, 2], 6),
        ([5, 1, 8, 1], 4),
        ([3, 2, 5, 1], 2),
        ([1, 1, 1, 1], 1),
        ([4, 3, 7, 0], 2),
    ];
    for (extents, groups) in cases {
        table.add("group_norm", format!("{} in {groups}", shape(&extents)), Reduction, |d| {
            let x = d.input(DType::F32, &extents, fill.clone());
            d.b.group_norm(x, groups, 1e-5)
        });
    }
    for dtype in HALVES {
        table.add("group_norm", dtype, Reduction, |d| {
            let x = d.input(dtype, &[4, 3, 4], fill.clone());
            d.b.group_norm(x, 2, 1e-5)
        });
    }
    for lie in Lie::ODD {
        table.add("group_norm", lie, Reduction, |d| {
            let x = d.lying(lie, DType::F32, &[4, 3, 4, 2], fill.clone());
            d.b.group_norm(x, 2, 1e-5)
        });
    }
    table.add("group_norm", "in place", Reduction, |d| {
        let x = d.input(DType::F32, &[4, 3, 4, 2], fill.clone());
        let made = d.b.scale(x, 3.0);
        d.b.group_norm(made, 4, 1e-5)
    });
}
