//! Sums of rows.

use orlop_graph::{DType, Op};

use super::HALVES;
use super::unary::one_operand;
use crate::conformance::Tolerance::Reduction;
use crate::conformance::case::{Lie, Table, shape};
use crate::fill::Fill;

pub(super) fn add(table: &mut Table) {
    // Positive on the whole: the error of a sum near 0 says little.
    let fill = Fill::Uniform { low: -0.5, high: 1.5 };
    for op in [Op::Sum, Op::SumRows, Op::Mean] {
        for extents in [&[1][..], &[7], &[64, 3], &[257, 2], &[5, 3, 2, 2], &[1, 9], &[9, 0, 2]] {
            table.add(op.name(), shape(extents), Reduction, |d| {
                let x = d.input(DType::F32, extents, fill.clone());
                d.b.node(op.clone(), &[x])
            });
        }
        for dtype in HALVES {
            table.add(op.name(), dtype, Reduction, |d| {
                let x = d.input(dtype, &[17, 3], fill.clone());
                d.b.node(op.clone(), &[x])
            });
        }
        for lie in Lie::ODD {
            table.add(op.name(), lie, Reduction, |d| {
                let x = d.lying(lie, DType::F32, &[6, 5, 3, 2], fill.clone());
                d.b.node(op.clone(), &[x])
            });
        }
    }
    one_operand(table, "cumsum", &Op::CumSum, &fill, Reduction);
}
