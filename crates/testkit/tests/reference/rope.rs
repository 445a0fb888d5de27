//! Values of the `rope` ops, computed by hand.

use std::f32::consts::{FRAC_PI_2, PI};

use orlop_graph::{Op, Rope, RopeMode};

use crate::support::{Bench, assert_close, f32, i32, result};

/// Base 4 and four dimensions: the second pair turns half as fast as the first. At position 1, angles are π
/// and π/2.
const HALF_TURN: Rope = Rope {
    mode: RopeMode::Normal,
    dims: 4,
    freq_base: 4.0,
    freq_scale: PI,
    ext_factor: 0.0,
    attn_factor: 1.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    original_context: 0,
};

#[test]
fn neighbours_turn_in_normal_mode() {
    let x = f32(&[5, 1, 1], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let y = result(Op::Rope(HALF_TURN), &[x, i32(&[1], &[1.0])]);
    // The fifth element is not rotated.
    assert_close(&y, &[-1.0, -2.0, -4.0, 3.0, 5.0]);
}

#[test]
fn halves_turn_in_neox_mode() {
    let rope = Rope { mode: RopeMode::Neox, ..HALF_TURN };
    let x = f32(&[5, 1, 1], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_close(&result(Op::Rope(rope), &[x, i32(&[1], &[1.0])]), &[-1.0, -4.0, -3.0, 2.0, 5.0]);
}

#[test]
fn every_token_has_its_position_in_all_heads_and_batches() {
    let rope = Rope { dims: 2, freq_scale: FRAC_PI_2, ..HALF_TURN };
    // Two heads, two tokens, two batches, all [1, 0].
    let x = [1.0, 0.0].repeat(8);
    let y = result(Op::Rope(rope), &[f32(&[2, 2, 2, 2], &x), i32(&[2], &[1.0, 2.0])]);
    let batch = [0.0, 1.0, 0.0, 1.0, -1.0, 0.0, -1.0, 0.0];
    assert_close(&y, &[batch, batch].concat());
}

#[test]
fn frequency_factors_slow_a_pair_down_and_attention_factors_stretch() {
    let rope = Rope { dims: 4, freq_base: 1.0, attn_factor: 2.0, ..HALF_TURN };
    let x = f32(&[4, 1, 1], &[1.0, 0.0, 1.0, 0.0]);
    let factors = f32(&[2], &[1.0, 2.0]);
    assert_close(&result(Op::Rope(rope), &[x, i32(&[1], &[1.0]), factors]), &[-2.0, 0.0, 0.0, 2.0]);
}

#[test]
fn sections_take_their_positions_from_four_streams() {
    // Five pairs in sections of 1, 1, 2 and 1; every pair turns by a right angle a position.
    let rope = Rope {
        mode: RopeMode::Sections([1, 1, 2, 1]),
        dims: 10,
        freq_base: 1.0,
        freq_scale: FRAC_PI_2,
        ..HALF_TURN
    };
    let x = f32(&[10, 1, 1], &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let positions = i32(&[4], &[0.0, 1.0, 2.0, 3.0]);
    let expected = [1.0, 0.0, -1.0, -1.0, 0.0, 0.0, 1.0, 0.0, 0.0, -1.0];
    assert_close(&result(Op::Rope(rope), &[x, positions]), &expected);
}

#[test]
fn sections_repeat_when_pairs_are_left() {
    let rope = Rope {
        mode: RopeMode::Sections([1, 1, 0, 0]),
        dims: 6,
        freq_base: 1.0,
        freq_scale: FRAC_PI_2,
        ..HALF_TURN
    };
    let x = f32(&[6, 1, 1], &[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    let positions = i32(&[4], &[1.0, 2.0, 0.0, 0.0]);
    assert_close(&result(Op::Rope(rope), &[x, positions]), &[0.0, -1.0, 0.0, 1.0, 0.0, 1.0]);
}

#[test]
fn yarn_mixes_interpolated_and_plain_angles() {
    // ln(base) is 4, so pair j turns exp(-j) a position, and the ramp falls from 1 at pair 0 to 0 at pair 2:
    // ln(628 / 2π / 60) is 0.51, ln(628 / 2π / 22) is 1.51. Angles: 1, 0.75 / e, 0.5 / e², 0.5 / e³; lengths
    // are 1 + 0.1 ln 2.
    let rope = Rope {
        dims: 8,
        freq_base: 54.598_15,
        freq_scale: 0.5,
        ext_factor: 1.0,
        beta_fast: 60.0,
        beta_slow: 22.0,
        original_context: 628,
        ..HALF_TURN
    };
    let x = f32(&[8, 1, 1], &[1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let expected = [
        0.577753208,
        0.899797309,
        1.028870889,
        0.291305098,
        1.066867504,
        0.072302798,
        1.068983414,
        0.026616273,
    ];
    assert_close(&result(Op::Rope(rope), &[x, i32(&[1], &[1.0])]), &expected);
}

#[test]
fn permuted_operands_turn_too() {
    let mut bench = Bench::new();
    // Rows [1 3] and [2 4] after the transposition.
    let x = bench.f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let transposed = bench.b.transpose(x);
    let at = bench.i32(&[1], &[1.0]);
    let y = bench.b.rope(transposed, at, None, Rope { dims: 2, ..HALF_TURN });
    assert_close(&bench.read(y), &[-1.0, -3.0, -2.0, -4.0]);
}
