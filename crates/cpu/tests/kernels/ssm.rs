//! State-space ops against the reference device.

use crate::compare::Case;
use orlop_backend::DeviceError;
use orlop_graph::{DType, Op, TensorId};

#[test]
fn convolution() {
    for [kernel, tokens, channels, seqs] in [
        [4, 1, 200, 1],
        [4, 70, 65, 2],
        [1, 3, 64, 3],
        [2, 129, 1, 1],
        [3, 0, 5, 1],
        [3, 4, 0, 1],
        [9, 2, 3, 0],
    ] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let name = format!("{kernel} {tokens} {channels} {seqs} {dtype}");
            let mut case = Case::new();
            let x = case.noise(dtype, &[kernel - 1 + tokens, channels, seqs]);
            let weights = case.noise(DType::F32, &[kernel, channels]);
            let result = case.node(Op::SsmConv, &[x, weights]);
            case.check_named(&name, result);

            let mut case = Case::new();
            let x = case.gapped(dtype, [channels, kernel - 1 + tokens, seqs, 1], 2, 3);
            let x = case.b.transpose(x);
            let weights = case.gapped(dtype, [kernel, channels, 1, 1], 1, 1);
            let result = case.node(Op::SsmConv, &[x, weights]);
            case.check_named(&format!("{name} transposed"), result);
        }
    }
}

struct Scan {
    size: u64,
    inner: u64,
    heads: u64,
    groups: u64,
    decays: u64,
    tokens: u64,
    seqs: u64,
    states: u64,
}

/// The scan's operands but the first: contiguous, or as views with gaps and permuted dimensions.
fn operands(case: &mut Case, scan: &Scan, gaps: bool) -> Vec<TensorId> {
    let Scan { size, inner, heads, groups, decays, tokens, seqs, states } = *scan;
    let mut operand = |extents: [u64; 4]| {
        if gaps { case.gapped(DType::F32, extents, 2, 3) } else { case.noise(DType::F32, &extents) }
    };
    let b = operand([size, groups, tokens, seqs]);
    let operands = [
        operand([size, inner, heads, states]),
        operand([inner, heads, tokens, seqs]),
        operand([heads, tokens, seqs, 1]),
        operand([decays, heads, 1, 1]),
        b,
        operand([size, groups, tokens, seqs]),
    ];
    operands.to_vec()
}

#[test]
fn scans() {
    let plain = Scan { size: 16, inner: 4, heads: 6, groups: 2, decays: 1, tokens: 5, seqs: 3, states: 4 };
    for scan in [
        Scan { decays: 16, ..plain },
        Scan { size: 7, decays: 7, groups: 6, ..plain },
        Scan { inner: 70, heads: 2, groups: 1, ..plain },
        Scan { inner: 1, heads: 100, groups: 1, decays: 16, tokens: 1, ..plain },
        Scan { size: 1, inner: 1, heads: 1, groups: 1, tokens: 1, seqs: 1, ..plain },
        Scan { size: 0, decays: 0, ..plain },
        Scan { size: 0, ..plain },
        Scan { tokens: 0, ..plain },
        Scan { inner: 0, ..plain },
        Scan { heads: 0, groups: 0, ..plain },
        Scan { seqs: 0, ..plain },
        Scan { tokens: 40, ..plain },
        plain,
    ] {
        let Scan { size, inner, heads, decays, tokens, seqs, .. } = scan;
        for gaps in [false, true] {
            let mut case = Case::new();
            let mut operands = operands(&mut case, &scan, gaps);
            let ids: Vec<f64> = (0..seqs).map(|seq| ((seq * 3 + 1) % scan.states) as f64).collect();
            operands.push(case.values(DType::I32, &[1, seqs], &ids));
            let result = case.node(Op::SsmScan, &operands);
            case.check_named(&format!("{size} {inner} {heads} {decays} {tokens} {seqs} {gaps}"), result);
        }
    }
}

#[test]
fn sequences_begin_with_states_that_exist() {
    let scan = Scan { size: 2, inner: 1, heads: 1, groups: 1, decays: 1, tokens: 1, seqs: 3, states: 4 };
    for (ids, bad) in [([0.0, 4.0, -1.0], 4), ([0.0, 3.0, -1.0], -1)] {
        let mut case = Case::new();
        let mut operands = operands(&mut case, &scan, false);
        operands.push(case.values(DType::I32, &[3], &ids));
        case.node(Op::SsmScan, &operands);
        let error = case.error();
        assert!(matches!(error, DeviceError::BadIndex { index, rows: 4, .. } if index == bad), "{error}");
    }
}
