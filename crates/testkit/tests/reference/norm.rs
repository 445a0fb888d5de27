//! Values of the `norm` ops, computed by hand.

use orlop_graph::{DType, Op, SoftMax};

use crate::support::{Bench, assert_close, f32, result};

const INF: f64 = f64::INFINITY;

#[test]
fn norm_divides_by_the_deviation_of_all_elements() {
    // Mean 3, variance (4 + 0 + 4) / 3 - not / 2.
    let x = f32(&[3], &[1.0, 3.0, 5.0]);
    assert_close(&result(Op::Norm { eps: 0.0 }, &[x]), &[-1.224744871, 0.0, 1.224744871]);
    // Variance 1 and eps 3.
    assert_close(&result(Op::Norm { eps: 3.0 }, &[f32(&[2], &[4.0, 6.0])]), &[-0.5, 0.5]);
}

#[test]
fn rms_norm_divides_by_the_root_mean_square() {
    // (1 + 49) / 2 = 25.
    assert_close(&result(Op::RmsNorm { eps: 0.0 }, &[f32(&[2], &[1.0, 7.0])]), &[0.2, 1.4]);
    assert_close(&result(Op::RmsNorm { eps: 11.0 }, &[f32(&[2], &[1.0, 7.0])]), &[1.0 / 6.0, 7.0 / 6.0]);
}

#[test]
fn l2_norm_divides_by_the_length_but_not_by_less_than_eps() {
    let x = f32(&[2, 2], &[3.0, 4.0, 0.0, 0.5]);
    assert_close(&result(Op::L2Norm { eps: 2.0 }, &[x]), &[0.6, 0.8, 0.0, 0.25]);
}

#[test]
fn group_norm_takes_channels_together() {
    // Two pictures of one column, three channels, two groups: channels 0 and 1, and channel 2.
    let x = f32(&[2, 1, 3, 2], &[1.0, 1.0, 3.0, 3.0, 7.0, 9.0, 0.0, 0.0, 4.0, 4.0, 5.0, 5.0]);
    let expected = [-1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 0.0, 0.0];
    assert_close(&result(Op::GroupNorm { groups: 2, eps: 1e-12 }, &[x]), &expected);
}

#[test]
fn norms_work_on_the_rows_of_permuted_operands() {
    let mut bench = Bench::new();
    let x = bench.f32(&[2, 2], &[3.0, 0.0, 4.0, 2.0]);
    let transposed = bench.b.transpose(x);
    let y = bench.b.l2_norm(transposed, 0.0);
    assert_close(&bench.read(y), &[0.6, 0.8, 0.0, 1.0]);
}

fn plain(scale: f32) -> SoftMax {
    SoftMax { scale, max_bias: 0.0, mask: false, sinks: false }
}

#[test]
fn soft_max_of_rows() {
    let x = f32(&[2, 2], &[0.0, 2.0, 1000.0, 1000.0]);
    assert_close(&result(Op::SoftMax(plain(0.5)), &[x]), &[0.268941421, 0.731058579, 0.5, 0.5]);
}

#[test]
fn soft_max_of_nothing_but_minus_infinity_is_zero() {
    let x = f32(&[2, 2], &[-INF, -INF, -INF, 3.0]);
    assert_eq!(result(Op::SoftMax(plain(1.0)), &[x]), [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn soft_max_adds_a_mask_repeated_over_heads_and_sequences() {
    let params = SoftMax { mask: true, ..plain(1.0) };
    // One row a head, two heads, two sequences; a mask of one head and two sequences, with a spare row.
    let x = f32(&[2, 1, 2, 2], &[0.0; 8]);
    let mask = (DType::F16, &[2, 2, 1, 2][..], &[0.0, -INF, 9.0, 9.0, -1.0, 0.0, 9.0, 9.0][..]);
    let expected = [1.0, 0.0, 1.0, 0.0, 0.268941421, 0.731058579, 0.268941421, 0.731058579];
    assert_close(&result(Op::SoftMax(params), &[x, mask]), &expected);
}

#[test]
fn soft_max_scales_the_mask_by_each_heads_slope() {
    // Three heads and a bias of 8: slopes 2^-4, 2^-8, and 2^-2 for the head beyond the power of two.
    let params = SoftMax { mask: true, max_bias: 8.0, ..plain(1.0) };
    let x = f32(&[2, 1, 3], &[0.0; 6]);
    let mask = f32(&[2, 1], &[0.0, -16.0]);
    let expected = [0.731058579, 0.268941421, 0.515619916, 0.484380084, 0.982013790, 0.017986210];
    assert_close(&result(Op::SoftMax(params), &[x, mask]), &expected);
}

#[test]
fn soft_max_with_sinks_sums_up_to_less_than_one() {
    let params = SoftMax { sinks: true, ..plain(1.0) };
    let x = f32(&[2, 1, 2], &[0.0, 0.0, -INF, -INF]);
    let sinks = f32(&[2], &[std::f64::consts::LN_2, 0.0]);
    assert_close(&result(Op::SoftMax(params), &[x, sinks]), &[0.25, 0.25, 0.0, 0.0]);
}

#[test]
fn diagonal_masks_hide_what_comes_later() {
    let x = f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(result(Op::DiagMaskInf { past: 0 }, &[x]), [1.0, -INF, -INF, 4.0, 5.0, -INF]);
    assert_eq!(result(Op::DiagMaskZero { past: 1 }, &[x]), [1.0, 2.0, 0.0, 4.0, 5.0, 6.0]);
}
