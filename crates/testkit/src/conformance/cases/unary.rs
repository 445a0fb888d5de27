//! Functions of one element, and gates.

use orlop_graph::{DType, Glu, Op, Unary};

use super::HALVES;
use crate::conformance::Tolerance::{self, Elementwise};
use crate::conformance::case::{Lie, Table, shape};
use crate::fill::Fill;

pub(super) fn add(table: &mut Table) {
    for function in Unary::ALL {
        let op = Op::Unary(function);
        let fill = match function {
            Unary::Sqrt | Unary::Log => Fill::Uniform { low: 0.01, high: 4.0 },
            _ => Fill::Uniform { low: -4.0, high: 4.0 },
        };
        one_operand(table, op.name(), &op, &fill, Elementwise);
        extremes(table, function);
    }
    one_operand(table, "leaky_relu", &Op::LeakyRelu { slope: 0.125 }, &Fill::SIGNED, Elementwise);
    for gate in [Glu::Relu, Glu::Gelu, Glu::GeluErf, Glu::GeluQuick, Glu::Silu] {
        gated(table, gate);
    }
}

/// The cases that every op of one operand whose result has its shape shares.
pub(super) fn one_operand(table: &mut Table, kind: &str, op: &Op, fill: &Fill, tolerance: Tolerance) {
    for extents in [&[1][..], &[7], &[64], &[33, 3], &[5, 3, 2, 2], &[9, 0, 2]] {
        table.add(kind, shape(extents), tolerance, |d| {
            let x = d.input(DType::F32, extents, fill.clone());
            d.b.node(op.clone(), &[x])
        });
    }
    for dtype in HALVES {
        table.add(kind, dtype, tolerance, |d| {
            let x = d.input(dtype, &[17, 3], fill.clone());
            d.b.node(op.clone(), &[x])
        });
    }
    for lie in Lie::ODD {
        table.add(kind, lie, tolerance, |d| {
            let x = d.lying(lie, DType::F32, &[6, 5, 3, 2], fill.clone());
            d.b.node(op.clone(), &[x])
        });
    }
    table.add(kind, "in place", tolerance, |d| {
        let x = d.input(DType::F32, &[13, 3], fill.clone());
        let made = d.b.scale(x, 0.75);
        d.b.node(op.clone(), &[made])
    });
}

/// Zeros of both signs and numbers at which exponentials leave their range, for what must survive them. An error is
/// relative to a case's largest result, so numbers of each size have a case of their own.
fn extremes(table: &mut Table, function: Unary) {
    let survives = matches!(
        function,
        Unary::Neg
            | Unary::Abs
            | Unary::Sgn
            | Unary::Step
            | Unary::Relu
            | Unary::Gelu
            | Unary::GeluErf
            | Unary::GeluQuick
            | Unary::Silu
            | Unary::Sigmoid
            | Unary::Tanh
            | Unary::Elu
            | Unary::HardSwish
            | Unary::HardSigmoid
            | Unary::Softplus
    );
    if survives {
        for (detail, values) in [
            ("extremes to 20", vec![0.0, -0.0, 1e-4, -1e-4, 3.0, -3.0, 20.0, -20.0]),
            ("extremes to 120", vec![88.0, -88.0, 120.0, -120.0]),
            ("extremes to 10000", vec![1e4, -1e4]),
        ] {
            table.add(Op::Unary(function).name(), detail, Elementwise, |d| {
                let x = d.input(DType::F32, &[values.len() as u64], Fill::Values(values));
                d.b.unary(function, x)
            });
        }
    }
}

fn gated(table: &mut Table, gate: Glu) {
    let fill = Fill::Uniform { low: -3.0, high: 3.0 };
    let op = Op::Gated { gate, swapped: false };
    let kind = op.name().to_owned();
    for extents in [&[1][..], &[8], &[7, 3], &[5, 2, 3, 2], &[4, 0]] {
        table.add(&kind, shape(extents), Elementwise, |d| {
            let operands = [0, 1].map(|_| d.input(DType::F32, extents, fill.clone()));
            d.b.gated(gate, operands[0], operands[1])
        });
    }
    for dtype in HALVES {
        table.add(&kind, dtype, Elementwise, |d| {
            let operands = [0, 1].map(|_| d.input(dtype, &[7, 3], fill.clone()));
            d.b.gated(gate, operands[0], operands[1])
        });
    }
    for lie in Lie::ODD {
        table.add(&kind, lie, Elementwise, |d| {
            let a = d.lying(lie, DType::F32, &[6, 5, 2], fill.clone());
            let b = d.lying(Lie::Padded, DType::F32, &[6, 5, 2], fill.clone());
            d.b.gated(gate, a, b)
        });
    }
    table.add(&kind, "in place", Elementwise, |d| {
        let operands = [0, 1].map(|_| d.input(DType::F32, &[7, 3], fill.clone()));
        let made = operands.map(|x| d.b.scale(x, 0.5));
        d.b.gated(gate, made[0], made[1])
    });
    let fused = format!("{kind} fused");
    for (extents, swapped) in [(&[2][..], false), (&[16, 3], false), (&[14, 3, 2], true), (&[66, 2], true)] {
        let order = if swapped { "swapped" } else { "in order" };
        table.add(&fused, format!("{} {order}", shape(extents)), Elementwise, |d| {
            let x = d.input(DType::F32, extents, fill.clone());
            d.b.gated_fused(gate, x, swapped)
        });
    }
    for (lie, dtype) in [(Lie::Window, DType::F32), (Lie::Permuted, DType::F16), (Lie::Padded, DType::BF16)] {
        table.add(&fused, format!("{lie} {dtype}"), Elementwise, |d| {
            let x = d.lying(lie, dtype, &[12, 3, 2], fill.clone());
            d.b.gated_fused(gate, x, false)
        });
    }
}
