//! Rotary position embedding on the CPU device, against the reference.

use crate::compare::Case;
use orlop_graph::{DType, Rope, RopeMode};

const MODES: [RopeMode; 4] =
    [RopeMode::Normal, RopeMode::Neox, RopeMode::Sections([2, 1, 3, 0]), RopeMode::Sections([1, 0, 1, 2])];

fn streams(mode: RopeMode) -> usize {
    if let RopeMode::Sections(_) = mode { 4 } else { 1 }
}

/// Positions of three tokens a stream, some far away.
fn positions(mode: RopeMode) -> Vec<f64> {
    let all = [0.0, 5.0, 200_000.0, 1.0, 77.0, -3.0, 9.0, 12_345.0, 8.0, 2.0, 4.0, 1_000_000.0];
    all[..3 * streams(mode)].to_vec()
}

fn variants(mode: RopeMode) -> [Rope; 4] {
    let plain = Rope { mode, dims: 16, ..Rope::default() };
    let linear = Rope { freq_scale: 0.25, freq_base: 500_000.0, attn_factor: 1.2, ..plain };
    let yarn = Rope { ext_factor: 1.0, original_context: 4096, ..linear };
    [plain, linear, yarn, Rope { ext_factor: 0.5, freq_scale: 0.1, freq_base: 10_000.0, ..yarn }]
}

#[test]
fn modes_and_scalings() {
    for mode in MODES {
        for params in variants(mode) {
            for length in [16, 21] {
                for factors in [false, true] {
                    let mut case = Case::new();
                    let x = case.noise(DType::F32, &[length, 2, 3, 2]);
                    let at = positions(mode);
                    let at = case.values(DType::I32, &[at.len() as u64], &at);
                    let values: Vec<f64> = (0..9).map(|i| 1.0 + f64::from(i) / 2.0).collect();
                    let factors = factors.then(|| case.values(DType::F32, &[9], &values));
                    let y = case.b.rope(x, at, factors, params);
                    case.check(y, 1e-12);
                }
            }
        }
    }
}

#[test]
fn all_types_and_strides() {
    for (dtype, limit) in [(DType::F32, 1e-12), (DType::F16, 1e-6), (DType::BF16, 1e-4)] {
        for mode in MODES {
            let params = Rope { mode, dims: 8, ..Rope::default() };
            for shape in 0..3 {
                let mut case = Case::new();
                let at = positions(mode);
                let at = case.values(DType::I32, &[3, at.len() as u64 / 3], &at);
                let x = match shape {
                    0 => case.noise(dtype, &[10, 4, 3, 1]),
                    1 => case.gaps(dtype, [10, 4, 3, 2]),
                    _ => case.transposed(dtype, [9, 5, 3, 1]),
                };
                let y = case.b.rope(x, at, None, params);
                case.check(y, limit);
            }
        }
    }
}

#[test]
fn positions_with_gaps() {
    let mut case = Case::new();
    let x = case.noise(DType::F32, &[8, 1, 3, 1]);
    let all = case.values(DType::I32, &[2, 3], &[4.0, 0.0, 5.0, 0.0, 6.0, 0.0]);
    let at = case.b.view(all, [3, 1, 1, 1], [8, 24, 24, 24], 0);
    let y = case.b.rope(x, at, None, Rope { dims: 8, ..Rope::default() });
    case.check(y, 1e-12);
}

#[test]
fn nothing_gives_nothing() {
    let mut case = Case::new();
    let x = case.noise(DType::F32, &[8, 2, 0, 1]);
    let at = case.values(DType::I32, &[0], &[]);
    let y = case.b.rope(x, at, None, Rope { dims: 8, ..Rope::default() });
    case.check(y, 0.0);
}
