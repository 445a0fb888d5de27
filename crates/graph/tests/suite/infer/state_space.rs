//! State-space models.

use orlop_graph::{Op, TensorDesc};

use super::{accepts, f32, i32, refuses_operand};

#[test]
fn the_convolution_uses_up_one_kernel_less_one() {
    accepts(Op::SsmConv, &[f32(&[8, 16, 2]), f32(&[4, 16])], f32(&[16, 5, 2]));
    accepts(Op::SsmConv, &[f32(&[3, 16, 2]), f32(&[4, 16])], f32(&[16, 0, 2]));
    refuses_operand(Op::SsmConv, &[f32(&[2, 16, 2]), f32(&[4, 16])], 0);
    refuses_operand(Op::SsmConv, &[f32(&[8, 16, 2, 2]), f32(&[4, 16])], 0);
    refuses_operand(Op::SsmConv, &[f32(&[8, 16, 2]), f32(&[4, 15])], 1);
    refuses_operand(Op::SsmConv, &[f32(&[8, 16, 2]), f32(&[4, 16, 2])], 1);
    refuses_operand(Op::SsmConv, &[f32(&[8, 16, 2]), f32(&[0, 16])], 1);
}

/// Values of 6, keys of 16, 4 heads, 5 tokens, 3 of 9 sequences.
fn delta_operands() -> [TensorDesc; 8] {
    let keys = f32(&[16, 4, 5, 3]);
    [f32(&[6, 16, 4, 9]), keys, f32(&[1, 4, 5, 3]), keys, f32(&[6, 4, 5, 3]), keys, keys, i32(&[3])]
}

#[test]
fn a_delta_scan_gives_its_outputs_and_then_the_states_it_ran() {
    // 6 * 4 * 5 * 3 outputs, 6 * 16 * 4 * 3 states
    accepts(Op::DeltaScan, &delta_operands(), f32(&[360 + 1152]));
    let mut by_key = delta_operands();
    by_key[2] = f32(&[16, 4, 5, 3]);
    accepts(Op::DeltaScan, &by_key, f32(&[360 + 1152]));
}

#[test]
fn a_delta_scan_checks_each_operand() {
    let wrong = [
        (0, i32(&[6, 16, 4, 9])),
        (1, f32(&[16, 3, 5, 3])),
        (1, f32(&[1, 4, 5, 3])),
        (2, f32(&[2, 4, 5, 3])),
        (2, f32(&[1, 4, 5, 2])),
        (3, f32(&[15, 4, 5, 3])),
        (4, f32(&[16, 4, 5, 3])),
        (4, f32(&[6, 4, 4, 3])),
        (5, f32(&[16, 4, 1, 3])),
        (6, f32(&[1, 4, 5, 3])),
        (7, i32(&[9])),
        (7, f32(&[3])),
    ];
    for (slot, desc) in wrong {
        let mut operands = delta_operands();
        operands[slot] = desc;
        refuses_operand(Op::DeltaScan, &operands, slot);
    }
}

/// 16 states a channel, 4 channels a head, 8 heads, 2 groups, 5 tokens, 3 of 9 sequences.
fn operands() -> [TensorDesc; 7] {
    [
        f32(&[16, 4, 8, 9]),
        f32(&[4, 8, 5, 3]),
        f32(&[8, 5, 3]),
        f32(&[1, 8]),
        f32(&[16, 2, 5, 3]),
        f32(&[16, 2, 5, 3]),
        i32(&[3]),
    ]
}

#[test]
fn a_scan_gives_its_outputs_and_then_the_states_it_ran() {
    // 4 * 8 * 5 * 3 outputs, 16 * 4 * 8 * 3 states
    accepts(Op::SsmScan, &operands(), f32(&[480 + 1536]));
    let mut granular = operands();
    granular[3] = f32(&[16, 8]);
    accepts(Op::SsmScan, &granular, f32(&[480 + 1536]));
}

#[test]
fn a_scan_checks_each_operand() {
    let wrong = [
        (0, i32(&[16, 4, 8, 9])),
        (1, f32(&[4, 7, 5, 3])),
        (2, f32(&[8, 5, 2])),
        (3, f32(&[2, 8])),
        (3, f32(&[1, 8, 2])),
        (4, f32(&[16, 3, 5, 3])),
        (5, f32(&[16, 4, 5, 3])),
        (5, f32(&[15, 2, 5, 3])),
        (6, i32(&[9])),
        (6, f32(&[3])),
    ];
    for (slot, desc) in wrong {
        let mut operands = operands();
        operands[slot] = desc;
        refuses_operand(Op::SsmScan, &operands, slot);
    }
}
