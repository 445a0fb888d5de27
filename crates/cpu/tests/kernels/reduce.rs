//! Sums, searches and sorts on the CPU device, against the reference.

use crate::compare::Case;
use orlop_graph::{DType, Op, SortDirection, TensorId};

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn ops(length: u64) -> Vec<Op> {
    let mut ops = vec![
        Op::Sum,
        Op::SumRows,
        Op::Mean,
        Op::CumSum,
        Op::ArgSort { direction: SortDirection::Ascending },
        Op::ArgSort { direction: SortDirection::Descending },
        Op::TopK { k: 0 },
        Op::TopK { k: length.min(3) },
        Op::TopK { k: length },
    ];
    if length > 0 {
        ops.push(Op::ArgMax);
    }
    ops
}

fn operands(case: &mut Case, dtype: DType, extents: [u64; 4]) -> [TensorId; 3] {
    [case.noise(dtype, &extents), case.gaps(dtype, extents), case.transposed(dtype, extents)]
}

#[test]
fn all_layouts_and_types() {
    for extents in [[7, 5, 3, 2], [1, 1, 1, 1], [1_500, 3, 1, 1], [1, 9, 1, 2], [0, 3, 2, 1], [3, 0, 1, 1]] {
        for op in ops(extents[0]) {
            for (layout, dtype) in FLOATS.into_iter().enumerate() {
                for layout in [layout, (layout + 1) % 3] {
                    let mut case = Case::new();
                    let x = operands(&mut case, dtype, extents)[layout];
                    let y = case.b.node(op.clone(), &[x]);
                    // Storing F16 and BF16 may round the other way at a tie.
                    let limit = if dtype == DType::F32 { 1e-13 } else { 1e-6 };
                    case.check(y, limit);
                }
            }
        }
    }
}

#[test]
fn in_place() {
    for extents in [[7, 5, 3, 2], [2_500, 3, 1, 1]] {
        let mut case = Case::new();
        let x = case.noise(DType::F32, &extents);
        let y = case.b.cumsum(x);
        case.check(y, 1e-13);
    }
}

#[test]
fn long_sums_keep_their_digits() {
    let mut case = Case::new();
    let mut values = vec![1e-3; 200_000];
    values[0] = 1e6;
    let x = case.values(DType::F32, &[20_000, 10], &values);
    let y = case.b.sum(x);
    case.check(y, 1e-14);
}

#[test]
fn nan_is_smallest_and_equals_keep_their_order() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let rows = [
        [nan, 1.0, nan, -inf, inf, 1.0, 0.0, -0.0],
        [nan; 8],
        [-inf; 8],
        [2.0; 8],
        [0.0, -0.0, 0.0, -0.0, nan, 5.0, 5.0, nan],
    ];
    for dtype in FLOATS {
        for op in ops(8) {
            if matches!(op, Op::Sum | Op::SumRows | Op::Mean | Op::CumSum) {
                continue;
            }
            let mut case = Case::new();
            let x = case.values(dtype, &[8, 5], rows.as_flattened());
            let y = case.b.node(op, &[x]);
            case.check(y, 0.0);
        }
    }
}
