//! Values of the `ssm` ops, computed by hand.

use orlop_backend::DeviceError;
use orlop_graph::Op;

use crate::support::{assert_close, f32, i32, result, try_result};

/// `softplus(UNIT)` is 1.
const UNIT: f64 = 0.541324854612918;
const LN_2: f64 = std::f64::consts::LN_2;

#[test]
fn ssm_conv_slides_each_channels_kernel() {
    // Kernels of 2, two tokens, two channels.
    let x = f32(&[3, 2], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    let kernel = f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(result(Op::SsmConv, &[x, kernel]), [5.0, 110.0, 8.0, 180.0]);
}

#[test]
fn states_decay_and_take_up_the_input() {
    // One state, one channel, one head, two tokens; the decay halves the state.
    let y = result(
        Op::SsmScan,
        &[
            f32(&[1, 1, 1, 1], &[8.0]),
            f32(&[1, 1, 2, 1], &[3.0, 5.0]),
            f32(&[1, 2, 1], &[UNIT, UNIT]),
            f32(&[1, 1], &[-LN_2]),
            f32(&[1, 1, 2, 1], &[1.0, 2.0]),
            f32(&[1, 1, 2, 1], &[10.0, 100.0]),
            i32(&[1], &[0.0]),
        ],
    );
    // 8/2 + 1·3 = 7; 7/2 + 2·5 = 13.5.
    assert_close(&y, &[70.0, 1350.0, 13.5]);
}

#[test]
fn decays_may_differ_by_state_and_large_steps_stay_as_they_are() {
    let y = result(
        Op::SsmScan,
        &[
            f32(&[2, 1, 1, 1], &[4.0, 8.0]),
            f32(&[1, 1, 1, 1], &[1.0]),
            f32(&[1, 1, 1], &[100.0]),
            f32(&[2, 1], &[0.0, -LN_2 / 100.0]),
            f32(&[2, 1, 1, 1], &[0.01, 0.02]),
            f32(&[2, 1, 1, 1], &[1.0, 10.0]),
            i32(&[1], &[0.0]),
        ],
    );
    assert_close(&y, &[65.0, 5.0, 6.0]);
}

#[test]
fn heads_share_groups_and_sequences_choose_their_states() {
    // Two heads with one group each, two sequences on three states, no decay, step 1.
    let y = result(
        Op::SsmScan,
        &[
            f32(&[1, 1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            f32(&[1, 2, 1, 2], &[10.0, 20.0, 30.0, 40.0]),
            f32(&[2, 1, 2], &[UNIT; 4]),
            f32(&[1, 2], &[0.0, 0.0]),
            f32(&[1, 2, 1, 2], &[1.0, 2.0, 1.0, 2.0]),
            f32(&[1, 2, 1, 2], &[1.0, 1.0, 1.0, -1.0]),
            i32(&[2], &[2.0, 0.0]),
        ],
    );
    assert_close(&y, &[15.0, 46.0, 31.0, -82.0, 15.0, 46.0, 31.0, 82.0]);
}

#[test]
fn a_delta_scan_takes_back_what_a_key_stands_for() {
    // Two values, two keys, one head, two tokens. The state holds rows of values, one for each key.
    let y = result(
        Op::DeltaScan,
        &[
            f32(&[2, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0]),
            f32(&[2, 1, 2, 1], &[1.0, 0.0, 1.0, 1.0]),
            f32(&[1, 1, 2, 1], &[0.5, 1.0]),
            f32(&[2, 1, 2, 1], &[0.0, 2.0, 1.0, 0.0]),
            f32(&[2, 1, 2, 1], &[10.0, 20.0, 5.0, 7.0]),
            f32(&[2, 1, 2, 1], &[1.0, 0.0, 0.0, 0.0]),
            f32(&[2, 1, 2, 1], &[0.0, 1.0, 9.0, 9.0]),
            i32(&[1], &[0.0]),
        ],
    );
    // [0.5 1; 1.5 2] - [0 0; 1 2] + [0 0; 20 40] = [0.5 1; 20.5 40], then [5.5 8; 20.5 40].
    assert_close(&y, &[0.5, 1.0, 26.0, 48.0, 5.5, 8.0, 20.5, 40.0]);
}

#[test]
fn delta_scans_may_decay_by_key_and_choose_their_states() {
    // One value, two keys, one head, two sequences on three states; nothing is added or taken back.
    let zeros = f32(&[2, 1, 1, 2], &[0.0; 4]);
    let y = result(
        Op::DeltaScan,
        &[
            f32(&[1, 2, 1, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            f32(&[2, 1, 1, 2], &[1.0, 1.0, 1.0, 10.0]),
            f32(&[2, 1, 1, 2], &[0.5, 1.0, 0.0, 0.25]),
            zeros,
            f32(&[1, 1, 1, 2], &[1.0, 1.0]),
            zeros,
            zeros,
            i32(&[2], &[2.0, 0.0]),
        ],
    );
    assert_close(&y, &[8.5, 5.0, 2.5, 6.0, 0.0, 0.5]);
}

#[test]
fn states_that_are_not_there_are_refused() {
    let one = f32(&[1], &[1.0]);
    let error = try_result(Op::SsmScan, &[one, one, one, one, one, one, i32(&[1], &[1.0])]).unwrap_err();
    let (op, tensor) = ("ssm_scan".to_owned(), "y".to_owned());
    assert_eq!(error, DeviceError::BadIndex { op, tensor, index: 1, rows: 1 });
}
