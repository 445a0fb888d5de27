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
fn delta_scans() {
    for [value, key, heads, tokens, seqs] in [
        [128, 32, 2, 5, 1],
        [65, 7, 3, 40, 2],
        [3, 64, 100, 1, 1],
        [1, 1, 1, 1, 1],
        [0, 4, 2, 3, 1],
        [4, 0, 2, 3, 1],
        [4, 4, 0, 3, 1],
        [4, 4, 2, 0, 2],
        [4, 4, 2, 3, 0],
    ] {
        for (by_key, gaps) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut case = Case::new();
            let mut operand = |extents: [u64; 4]| {
                if gaps { case.gapped(DType::F32, extents, 2, 3) } else { case.noise(DType::F32, &extents) }
            };
            let mut row = |length: u64| operand([length, heads, tokens, seqs]);
            let [r, w, k] = [key, if by_key { key } else { 1 }, key].map(&mut row);
            let [v, a, b] = [value, key, key].map(&mut row);
            let [r, w, k, v, a, b] = [r, w, k, v, a, b].map(|x| case.b.scale(x, 0.1));
            let states = case.noise(DType::F32, &[value, key, heads, 4]);
            let ids: Vec<f64> = (0..seqs).map(|seq| ((seq * 3 + 1) % 4) as f64).collect();
            let ids = case.values(DType::I32, &[1, seqs], &ids);
            let result = case.node(Op::DeltaScan, &[states, r, w, k, v, a, b, ids]);
            case.check_named(&format!("{value} {key} {heads} {tokens} {seqs} {by_key} {gaps}"), result);
        }
    }
}

#[test]
fn delta_scans_in_pieces_give_the_same_bits() {
    let [value, key, heads, tokens] = [70, 24, 3, 11];
    let outputs = |pieces: &[u64]| {
        let mut case = Case::new();
        let mut row = |length: u64| case.noise(DType::F32, &[length, heads, tokens, 1]);
        let [r, w, k, v, a, b] = [key, 1, key, value, key, key].map(&mut row);
        let [r, w, k, v, a, b] = [r, w, k, v, a, b].map(|x| case.b.scale(x, 0.2));
        let mut states = case.noise(DType::F32, &[value, key, heads, 1]);
        let ids = case.values(DType::I32, &[1], &[0.0]);
        let mut first = 0;
        let mut parts = Vec::new();
        for count in pieces {
            let mut part = |x: TensorId| {
                let desc = case.b.desc(x);
                let extents = [desc.extents[0], heads, *count, 1];
                case.b.view(x, extents, desc.strides, first * desc.strides[2])
            };
            let [r, w, k, v, a, b] = [r, w, k, v, a, b].map(&mut part);
            let result = case.b.delta_scan([states, r, w, k, v, a, b, ids]);
            let (outputs, element) = (value * heads * count, 4);
            parts.push(case.b.view(
                result,
                [outputs, 1, 1, 1],
                [4, 4 * outputs, 4 * outputs, 4 * outputs],
                0,
            ));
            let all = value * key * heads;
            let carried =
                case.b.view(result, [all, 1, 1, 1], [4, 4 * all, 4 * all, 4 * all], outputs * element);
            states = case.b.reshape(carried, &[value, key, heads, 1]);
            first += count;
        }
        let joined = case.b.concat(&parts, 0);
        case.results(joined, 2)
    };
    let whole = outputs(&[11]);
    assert_eq!(outputs(&[1, 3, 7]), whole);
    assert_eq!(outputs(&[1; 11]), whole);
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
