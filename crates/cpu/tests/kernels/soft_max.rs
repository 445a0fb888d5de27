//! Soft-max and causal masks on the CPU device, against the reference.

use crate::compare::Case;
use orlop_graph::{DType, Op, SoftMax};

const INF: f64 = f64::INFINITY;

fn params(mask: bool, max_bias: f32, sinks: bool) -> Op {
    Op::SoftMax(SoftMax { scale: 0.7, max_bias, mask, sinks })
}

#[test]
fn rows_of_all_types() {
    for (dtype, limit) in [(DType::F32, 1e-12), (DType::F16, 1e-6), (DType::BF16, 1e-4)] {
        for extents in [[1, 1, 1, 1], [7, 3, 2, 2], [64, 1, 1, 1], [130, 5, 1, 1]] {
            let mut case = Case::new();
            let x = case.noise(dtype, &extents);
            let y = case.b.soft_max(x, None, 1.5, 0.0);
            case.check(y, limit);
        }
    }
}

#[test]
fn masks_slopes_and_sinks() {
    for mask_type in [DType::F32, DType::F16] {
        for (heads, mask_extents) in [(4, [9, 5, 1, 1]), (6, [9, 8, 2, 3]), (7, [9, 5, 7, 1])] {
            for max_bias in [0.0, 8.0] {
                for sinks in [false, true] {
                    let mut case = Case::new();
                    let x = case.gaps(DType::F32, [9, 5, heads, 3]);
                    let mut values = case.numbers(mask_extents.iter().product());
                    values.iter_mut().step_by(4).for_each(|x| *x = -INF);
                    values[..9].fill(-INF);
                    let mask = case.values(mask_type, &mask_extents, &values);
                    let sink = case.noise(DType::F32, &[heads]);
                    let operands = [x, mask, sink];
                    let op = params(true, max_bias, sinks);
                    let y = case.b.node(op, &operands[..2 + usize::from(sinks)]);
                    case.check(y, 1e-12);
                }
            }
        }
    }
}

#[test]
fn sinks_without_a_mask_on_a_permuted_operand() {
    let mut case = Case::new();
    let x = case.transposed(DType::F32, [11, 4, 3, 1]);
    let sinks = case.noise(DType::F32, &[1, 3]);
    let y = case.b.node(params(false, 0.0, true), &[x, sinks]);
    case.check(y, 1e-12);
}

#[test]
fn in_place_with_a_mask() {
    let mut case = Case::new();
    let x = case.noise(DType::F32, &[13, 7, 2, 1]);
    let mask = case.noise(DType::F16, &[13, 7]);
    let y = case.b.soft_max(x, Some(mask), 0.5, 4.0);
    case.check(y, 1e-12);
}

#[test]
fn large_scores_and_what_is_no_number() {
    let nan = f64::NAN;
    for row in [[3e4, 3e4 + 1.0, 0.0], [-INF, -INF, -INF], [nan, 1.0, 2.0], [1.0, nan, INF], [INF, 1.0, -INF]]
    {
        let mut case = Case::new();
        let x = case.values(DType::F32, &[3], &row);
        let y = case.b.soft_max(x, None, 1.0, 0.0);
        case.check(y, 1e-12);
    }
}

#[test]
fn causal_masks() {
    for past in [0, 2, u32::MAX] {
        for op in [Op::DiagMaskInf { past }, Op::DiagMaskZero { past }] {
            for (dtype, extents) in
                [(DType::F32, [7, 5, 2, 2]), (DType::F16, [3, 9, 1, 1]), (DType::BF16, [1; 4])]
            {
                let mut case = Case::new();
                let x = case.noise(dtype, &extents);
                let y = case.b.node(op.clone(), &[x]);
                case.check(y, 0.0);
            }
            let mut case = Case::new();
            let x = case.transposed(DType::F32, [6, 4, 2, 1]);
            let y = case.b.node(op, &[x]);
            case.check(y, 0.0);
        }
    }
}

#[test]
fn nothing_gives_nothing() {
    for extents in [[0, 3, 2, 1], [4, 0, 2, 1]] {
        for op in [params(false, 0.0, false), Op::DiagMaskInf { past: 0 }] {
            let mut case = Case::new();
            let x = case.noise(DType::F32, &extents);
            let y = case.b.node(op, &[x]);
            case.check(y, 0.0);
        }
    }
}
