//! Pooling, scaling and time steps against the reference device.

use crate::compare::Case;
use orlop_graph::{DType, Interpolation, Op, Pool, PoolKind};

const KINDS: [PoolKind; 2] = [PoolKind::Max, PoolKind::Mean];
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[test]
fn pooling() {
    for kind in KINDS {
        for (kernel, stride, padding) in [
            ([2, 2], [2, 2], [0, 0]),
            ([3, 2], [1, 2], [1, 3]),
            ([1, 1], [3, 1], [0, 0]),
            ([3, 3], [1, 1], [9, 4]),
            ([7, 5], [1, 1], [0, 0]),
        ] {
            let pool = Pool { kind, kernel, stride, padding };
            for (op, dtype) in [Op::Pool1d(pool), Op::Pool2d(pool)].iter().zip(FLOATS.iter().cycle()) {
                for extents in [[9, 7, 3, 2], [20, 8, 1, 1]] {
                    let mut case = Case::new();
                    let x = case.noise(*dtype, &extents);
                    let result = case.node(op.clone(), &[x]);
                    case.check_named(&format!("{op:?} {extents:?}"), result);

                    let mut case = Case::new();
                    let x = case.gapped(*dtype, extents, 2, 5);
                    let result = case.node(op.clone(), &[x]);
                    case.check_named(&format!("{op:?} {extents:?} gaps"), result);
                }
            }
        }
    }
}

#[test]
fn pooling_of_special_values() {
    let [nan, inf] = [f64::NAN, f64::INFINITY];
    for kind in KINDS {
        let pool = Pool { kind, kernel: [2, 2], stride: [1, 1], padding: [1, 1] };
        for op in [Op::Pool1d(pool), Op::Pool2d(pool)] {
            let mut case = Case::new();
            let values = [1.0, nan, 2.0, inf, -inf, -inf, -inf, 0.0, 3e38, 3e38, 3e38, 3e38];
            let x = case.values(DType::F32, &[4, 3], &values);
            let result = case.node(op.clone(), &[x]);
            case.check_named(&format!("{op:?}"), result);
            for extents in [[0, 3, 2, 1], [3, 0, 2, 1], [0, 0, 1, 1]] {
                let mut case = Case::new();
                let x = case.noise(DType::F32, &extents);
                let result = case.node(op.clone(), &[x]);
                case.check_named(&format!("{op:?} {extents:?}"), result);
            }
        }
    }
}

#[test]
fn scaling() {
    for mode in [Interpolation::Nearest, Interpolation::Bilinear] {
        for extents in [[8, 6, 3, 2], [7, 11, 5, 1], [1, 1, 1, 1], [3, 2, 2, 4], [4, 0, 3, 2], [40, 9, 6, 4]]
        {
            for dtype in FLOATS {
                let op = Op::Upscale { extents, mode };
                let mut case = Case::new();
                let x = case.noise(dtype, &[4, 3, 3, 2]);
                let result = case.node(op.clone(), &[x]);
                case.check_named(&format!("{op:?} {dtype}"), result);

                let mut case = Case::new();
                let x = case.gapped(dtype, [3, 4, 2, 3], 3, 2);
                let x = case.b.permute(x, [1, 0, 3, 2]);
                let result = case.node(op.clone(), &[x]);
                case.check_named(&format!("{op:?} {dtype} permuted"), result);
            }
        }
        let mut case = Case::new();
        let x = case.values(DType::F32, &[3, 2], &[f64::INFINITY, 1.0, 2.0, f64::NAN, -1.0, 4.0]);
        let result = case.node(Op::Upscale { extents: [7, 4, 1, 1], mode }, &[x]);
        case.check_named(&format!("{mode:?} of special values"), result);
        let mut case = Case::new();
        let x = case.noise(DType::F32, &[0, 2]);
        let result = case.node(Op::Upscale { extents: [0, 4, 1, 1], mode }, &[x]);
        case.check_named(&format!("{mode:?} of nothing"), result);
    }
}

#[test]
fn time_steps() {
    for dim in [1, 2, 7, 320] {
        for max_period in [1, 10_000] {
            let op = Op::TimestepEmbedding { dim, max_period };
            let mut case = Case::new();
            let times = case.values(DType::F32, &[7], &[0.0, 1.0, 999.0, 0.25, -3.0, 500.5, 12_345.0]);
            let result = case.node(op.clone(), &[times]);
            case.check_named(&format!("{op:?}"), result);

            let mut case = Case::new();
            let times = case.gapped(DType::F16, [5, 1, 1, 1], 3, 0);
            let result = case.node(op.clone(), &[times]);
            case.check_named(&format!("{op:?} gaps"), result);

            let mut case = Case::new();
            let times = case.noise(DType::BF16, &[0]);
            let result = case.node(op.clone(), &[times]);
            case.check_named(&format!("{op:?} never"), result);
        }
    }
}
