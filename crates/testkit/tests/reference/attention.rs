//! Values of the `attention` ops, computed by hand.

use orlop_backend::DeviceError;
use orlop_graph::{DType, FlashAttention, Op};

use crate::support::{Bench, Given, assert_close, f32, i32, result, try_result};

const PLAIN: FlashAttention = FlashAttention::scaled(1.0);
const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn attend(params: FlashAttention, operands: &[Given<'_>]) -> Vec<f64> {
    result(Op::FlashAttention(params), operands)
}

#[test]
fn equal_scores_give_the_mean_of_the_values() {
    let q = f32(&[1, 1, 1], &[0.0]);
    let k = f32(&[1, 3, 1], &[1.0, 2.0, 3.0]);
    let v = f32(&[2, 3, 1], &[1.0, 10.0, 2.0, 20.0, 6.0, 60.0]);
    assert_close(&attend(PLAIN, &[q, k, v]), &[3.0, 30.0]);
}

#[test]
fn scores_are_scaled_products() {
    let q = f32(&[2, 1, 1], &[1.0, 1.0]);
    let k = f32(&[2, 2, 1], &[0.0, 0.0, 1.0, 3.0]);
    let v = f32(&[1, 2, 1], &[0.0, 1.0]);
    // Scores 0 and 4 · 0.25.
    assert_close(&attend(FlashAttention { scale: 0.25, ..PLAIN }, &[q, k, v]), &[0.731058579]);
}

#[test]
fn query_heads_share_kv_heads_and_results_have_heads_before_tokens() {
    // Four heads, two tokens, two KV heads of one row.
    let q = f32(&[1, 2, 4], &[0.0; 8]);
    let k = f32(&[1, 1, 2], &[0.0, 0.0]);
    let v = f32(&[1, 1, 2], &[5.0, 7.0]);
    assert_close(&attend(PLAIN, &[q, k, v]), &[5.0, 5.0, 7.0, 7.0, 5.0, 5.0, 7.0, 7.0]);
}

#[test]
fn sequences_have_their_own_rows() {
    let q = f32(&[1, 1, 1, 2], &[0.0, 0.0]);
    let k = f32(&[1, 1, 1, 2], &[0.0, 0.0]);
    let v = f32(&[1, 1, 1, 2], &[5.0, 7.0]);
    assert_close(&attend(PLAIN, &[q, k, v]), &[5.0, 7.0]);
}

#[test]
fn each_query_sees_the_rows_below_its_length() {
    let params = FlashAttention { kv_len: true, ..PLAIN };
    let q = f32(&[1, 3, 1], &[0.0; 3]);
    let k = f32(&[1, 4, 1], &[0.0, 0.0, NAN, NAN]);
    let v = f32(&[1, 4, 1], &[2.0, 4.0, NAN, NAN]);
    // What lies beyond may be anything; a query that sees nothing yields 0.
    assert_close(&attend(params, &[q, k, v, i32(&[3], &[1.0, 2.0, 0.0])]), &[2.0, 3.0, 0.0]);
}

#[test]
fn lengths_beyond_the_rows_are_refused() {
    let params = FlashAttention { kv_len: true, ..PLAIN };
    let x = f32(&[1, 1, 1], &[0.0]);
    for index in [-1, 2] {
        let lengths = [f64::from(index)];
        let operands = [x, x, x, i32(&[1], &lengths)];
        let error = try_result(Op::FlashAttention(params), &operands).unwrap_err();
        let (op, tensor) = ("flash_attention".to_owned(), "y".to_owned());
        assert_eq!(error, DeviceError::BadIndex { op, tensor, index: index.into(), rows: 1 });
    }
}

#[test]
fn masks_hide_rows_and_shift_scores() {
    let params = FlashAttention { mask: true, ..PLAIN };
    let q = f32(&[1, 2, 1], &[0.0, 0.0]);
    let k = f32(&[1, 3, 1], &[0.0, 0.0, NAN]);
    let v = f32(&[1, 3, 1], &[0.0, 1.0, NAN]);
    let mask = (DType::F16, &[3, 2][..], &[0.0, 1.0, -INF, -INF, -INF, -INF][..]);
    // The second token sees nothing at all.
    assert_close(&attend(params, &[q, k, v, mask]), &[0.731058579, 0.0]);
}

#[test]
fn a_window_leaves_the_last_of_the_rows() {
    let params = FlashAttention { kv_len: true, window: 2, ..PLAIN };
    let q = f32(&[1, 3, 1], &[0.0; 3]);
    let k = f32(&[1, 4, 1], &[f64::NAN, 0.0, 0.0, 0.0]);
    let v = f32(&[1, 4, 1], &[f64::NAN, 1.0, 3.0, 9.0]);
    let lengths = i32(&[3], &[3.0, 4.0, 0.0]);
    assert_close(&attend(params, &[q, k, v, lengths]), &[2.0, 6.0, 0.0]);
}

#[test]
fn rows_before_the_first_are_not_seen() {
    let params = FlashAttention { kv_len: true, kv_first: true, ..PLAIN };
    let q = f32(&[1, 3, 1], &[0.0; 3]);
    let k = f32(&[1, 4, 1], &[f64::NAN, 0.0, 0.0, 0.0]);
    let v = f32(&[1, 4, 1], &[f64::NAN, 1.0, 3.0, 9.0]);
    let (ends, firsts) = (i32(&[3], &[3.0, 4.0, 2.0]), i32(&[3], &[1.0, 3.0, 2.0]));
    assert_close(&attend(params, &[q, k, v, ends, firsts]), &[2.0, 9.0, 0.0]);
}

#[test]
fn masks_follow_lengths_and_are_scaled_by_slopes() {
    let params = FlashAttention { kv_len: true, mask: true, max_bias: 8.0, ..PLAIN };
    // Two heads: slopes 2^-4 and 2^-8.
    let q = f32(&[1, 1, 2], &[0.0, 0.0]);
    let k = f32(&[1, 3, 1], &[0.0; 3]);
    let v = f32(&[1, 3, 1], &[1.0, 0.0, 100.0]);
    let mask = f32(&[3, 1], &[0.0, -16.0, 0.0]);
    assert_close(&attend(params, &[q, k, v, i32(&[1], &[2.0]), mask]), &[0.731058579, 0.515619916]);
}

#[test]
fn scores_are_capped_before_the_mask() {
    let params = FlashAttention { soft_cap: 2.0, mask: true, ..PLAIN };
    let q = f32(&[1, 1, 1], &[1000.0]);
    let k = f32(&[1, 2, 1], &[0.0, 1.0]);
    let v = f32(&[1, 2, 1], &[0.0, 1.0]);
    // 2 tanh(500) is 2; the mask takes 1 of it.
    assert_close(&attend(params, &[q, k, v, f32(&[2, 1], &[0.0, -1.0])]), &[0.731058579]);
}

#[test]
fn sinks_take_their_share() {
    let params = FlashAttention { sinks: true, ..PLAIN };
    let q = f32(&[1, 1, 2], &[0.0, 0.0]);
    let k = f32(&[1, 1, 1], &[0.0]);
    let v = f32(&[1, 1, 1], &[8.0]);
    let sinks = f32(&[2], &[0.0, 1.098612289]);
    assert_close(&attend(params, &[q, k, v, sinks]), &[4.0, 2.0]);
}

#[test]
fn caches_may_be_views_of_other_types() {
    let params = FlashAttention { kv_len: true, ..PLAIN };
    let mut bench = Bench::new();
    let q = bench.f32(&[1, 1, 2], &[0.0, 0.0]);
    // Rows of two heads beside each other: [dim, heads, rows], read as [dim, rows, heads].
    let cache = bench.leaf(DType::F16, &[1, 2, 3], &[1.0, 10.0, 3.0, 30.0, 9.0, 90.0]);
    let kv = bench.b.permute(cache, [0, 2, 1, 3]);
    let length = bench.i32(&[1], &[2.0]);
    let y = bench.b.flash_attention([q, kv, kv], Some(length), None, None, params);
    assert_close(&bench.read(y), &[2.0, 20.0]);
}

#[test]
fn rows_lie_in_the_pages_of_their_sequence() {
    let params = FlashAttention { kv_len: true, page_rows: 2, ..PLAIN };
    let q = f32(&[1, 3, 1], &[0.0; 3]);
    let k = f32(&[1, 6, 1], &[0.0; 6]);
    let v = f32(&[1, 6, 1], &[1.0, 2.0, 10.0, 20.0, 100.0, 200.0]);
    let (lengths, sequences) = (i32(&[3], &[3.0, 1.0, 2.0]), i32(&[3], &[0.0, 1.0, 1.0]));
    let pages = i32(&[2, 2], &[2.0, 0.0, 1.0, -1.0]);
    let operands = [q, k, v, lengths, pages, sequences];
    // Rows 4, 5 and 0; row 2; rows 2 and 3.
    assert_close(&attend(params, &operands), &[301.0 / 3.0, 10.0, 15.0]);

    for (slot, bad) in [(3, i32(&[3], &[3.0, 3.0, 2.0])), (5, i32(&[3], &[0.0, 2.0, 1.0]))] {
        let mut operands = operands;
        operands[slot] = bad;
        let error = try_result(Op::FlashAttention(params), &operands).unwrap_err();
        assert!(matches!(error, DeviceError::BadIndex { .. }), "{error}");
    }
}
