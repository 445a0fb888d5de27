//! Normalisation on the CPU device, against the reference.

use crate::compare::Case;
use orlop_graph::{DType, Op};

const EPS: f32 = 1e-5;

fn all() -> [Op; 5] {
    [
        Op::Norm { eps: EPS },
        Op::RmsNorm { eps: EPS },
        Op::L2Norm { eps: EPS },
        Op::GroupNorm { groups: 1, eps: EPS },
        Op::GroupNorm { groups: 2, eps: EPS },
    ]
}

/// What rounding to a type alone may cost.
fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-12,
        // Neighbouring values where the exact one lies between the two.
        DType::F16 => 1e-7,
        _ => 1e-5,
    }
}

#[test]
fn rows_and_groups_of_all_types() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for extents in [[1, 1, 2, 1], [64, 3, 4, 2], [33, 1, 5, 1], [257, 2, 3, 2]] {
            for op in all() {
                let mut case = Case::new();
                let x = case.noise(dtype, &extents);
                let y = case.b.node(op, &[x]);
                // A row of one element is its own mean: what remains of it is 0 on both sides.
                case.check(y, limit(dtype));
            }
        }
    }
}

#[test]
fn gaps_and_permuted_operands() {
    for op in all() {
        let mut case = Case::new();
        let x = case.gaps(DType::F32, [19, 3, 4, 2]);
        let y = case.b.node(op.clone(), &[x]);
        case.check(y, 1e-12);

        let mut case = Case::new();
        let x = case.transposed(DType::F16, [19, 6, 4, 1]);
        let y = case.b.node(op, &[x]);
        case.check(y, 1e-7);
    }
}

#[test]
fn groups_that_do_not_divide_the_channels() {
    for (channels, groups) in [(5, 2), (7, 4), (5, 5), (9, 6)] {
        let mut case = Case::new();
        let x = case.noise(DType::F32, &[3, 5, channels, 2]);
        let y = case.b.group_norm(x, groups, EPS);
        case.check(y, 1e-12);
    }
}

#[test]
fn a_large_mean_costs_no_digits() {
    let mut case = Case::new();
    let values: Vec<f64> = case.numbers(500).iter().map(|x| f64::from((1000.0 + x) as f32)).collect();
    let x = case.values(DType::F32, &[500], &values);
    let y = case.b.norm(x, EPS);
    case.check(y, 1e-12);
}

#[test]
fn zeros_and_what_is_no_number() {
    for op in all() {
        let mut case = Case::new();
        let mut values = vec![0.0; 8];
        values.extend(case.numbers(16));
        values[9] = f64::NAN;
        values[18] = f64::INFINITY;
        let x = case.values(DType::F32, &[8, 3, 2, 1], &[&values[..], &values[..]].concat());
        let y = case.b.node(op, &[x]);
        case.check(y, 1e-12);
    }
}

#[test]
fn nothing_gives_nothing() {
    for op in all() {
        for extents in [[0, 3, 2, 1], [4, 0, 2, 1], [4, 2, 2, 0]] {
            let mut case = Case::new();
            let x = case.noise(DType::F32, &extents);
            let y = case.b.node(op.clone(), &[x]);
            case.check(y, 0.0);
        }
    }
}
