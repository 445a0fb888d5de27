//! Attention, softmax and position embedding.

use orlop_graph::{DType, FlashAttention, Op, Rope, RopeMode, SoftMax};

use super::{accepts, f16, f32, i32, q4, refuses_count, refuses_operand, refuses_parameter, tensor};

fn soft_max(max_bias: f32, mask: bool, sinks: bool) -> Op {
    Op::SoftMax(SoftMax { scale: 1.0, max_bias, mask, sinks })
}

#[test]
fn a_mask_covers_the_rows_and_repeats_over_heads() {
    let x = f32(&[16, 5, 8, 2]);
    accepts(soft_max(0.0, false, false), &[x], x);
    accepts(soft_max(8.0, true, false), &[x, f16(&[16, 32])], x);
    accepts(soft_max(0.0, true, false), &[x, f32(&[16, 5, 4, 2])], x);
    refuses_operand(soft_max(0.0, true, false), &[x, f32(&[16, 4])], 1);
    refuses_operand(soft_max(0.0, true, false), &[x, f32(&[15, 5])], 1);
    refuses_operand(soft_max(0.0, true, false), &[x, f32(&[16, 5, 3])], 1);
    refuses_operand(soft_max(0.0, true, false), &[x, tensor(DType::BF16, &[16, 5])], 1);
    refuses_count(soft_max(0.0, true, false), &[x]);
}

#[test]
fn sinks_are_one_a_head() {
    let x = f32(&[16, 5, 8]);
    accepts(soft_max(0.0, true, true), &[x, f32(&[16, 5]), f32(&[8])], x);
    accepts(soft_max(0.0, false, true), &[x, f32(&[8])], x);
    refuses_operand(soft_max(0.0, false, true), &[x, f32(&[7])], 1);
    refuses_operand(soft_max(0.0, true, true), &[x, f32(&[16, 5]), f16(&[8])], 2);
}

#[test]
fn slopes_need_a_mask() {
    refuses_parameter(soft_max(8.0, false, false), &[f32(&[16])], "max_bias");
    let op = attention(FlashAttention { max_bias: 8.0, ..PLAIN });
    refuses_parameter(op, &[f32(&[64, 5]), f32(&[64, 9]), f32(&[64, 9])], "max_bias");
}

fn rope(mode: RopeMode, dims: u32) -> Op {
    Op::Rope(Rope { mode, dims, ..Rope::default() })
}

#[test]
fn rotation_takes_a_position_a_token() {
    let x = f16(&[64, 8, 5]);
    for mode in [RopeMode::Normal, RopeMode::Neox] {
        accepts(rope(mode, 64), &[x, i32(&[5])], x);
        accepts(rope(mode, 32), &[x, i32(&[5]), f32(&[16])], x);
        refuses_operand(rope(mode, 32), &[x, i32(&[5]), f32(&[15])], 2);
        refuses_operand(rope(mode, 64), &[x, i32(&[20])], 1);
        refuses_operand(rope(mode, 64), &[x, f32(&[5])], 1);
        for dims in [0, 63, 66] {
            refuses_parameter(rope(mode, dims), &[x, i32(&[5])], "dims");
        }
    }
    refuses_operand(rope(RopeMode::Neox, 32), &[q4(&[64, 8, 5]), i32(&[5])], 0);
}

#[test]
fn sections_take_four_positions_a_token() {
    let x = f32(&[64, 8, 5]);
    accepts(rope(RopeMode::Sections([16, 8, 8, 0]), 64), &[x, i32(&[20])], x);
    refuses_operand(rope(RopeMode::Sections([16, 8, 8, 0]), 64), &[x, i32(&[5])], 1);
    refuses_parameter(rope(RopeMode::Sections([0; 4]), 64), &[x, i32(&[20])], "mode");
}

const PLAIN: FlashAttention = FlashAttention::scaled(0.1);

fn attention(params: FlashAttention) -> Op {
    Op::FlashAttention(params)
}

#[test]
fn attention_gives_heads_before_tokens() {
    let (q, k, v) = (f32(&[64, 5, 8, 2]), f16(&[64, 99, 4, 2]), q4(&[32, 99, 4, 2]));
    accepts(attention(PLAIN), &[q, k, v], f32(&[32, 8, 5, 2]));
    refuses_operand(attention(PLAIN), &[q, f16(&[32, 99, 4, 2]), v], 1);
    refuses_operand(attention(PLAIN), &[q, f16(&[64, 99, 3, 2]), v], 1);
    refuses_operand(attention(PLAIN), &[q, i32(&[64, 99, 4, 2]), v], 1);
    refuses_operand(attention(PLAIN), &[q, k, q4(&[32, 98, 4, 2])], 2);
    refuses_operand(attention(PLAIN), &[q4(&[64, 5, 8, 2]), k, v], 0);
}

#[test]
fn optional_operands_of_attention_come_in_the_order_of_the_fields() {
    let (q, k, v) = (f32(&[64, 5, 8]), f16(&[64, 99, 4]), f16(&[64, 99, 4]));
    let all = FlashAttention { kv_len: true, mask: true, sinks: true, ..PLAIN };
    assert_eq!((all.kv_len_slot(), all.mask_slot(), all.sinks_slot()), (Some(3), Some(4), Some(5)));
    let result = f32(&[64, 8, 5]);
    let (lengths, mask, sinks) = (i32(&[5]), f16(&[99, 5]), f32(&[8]));
    accepts(attention(all), &[q, k, v, lengths, mask, sinks], result);
    refuses_operand(attention(all), &[q, k, v, i32(&[4]), mask, sinks], 3);
    refuses_operand(attention(all), &[q, k, v, f32(&[5]), mask, sinks], 3);
    refuses_operand(attention(all), &[q, k, v, lengths, f16(&[98, 5]), sinks], 4);
    refuses_operand(attention(all), &[q, k, v, lengths, f16(&[99, 4]), sinks], 4);
    refuses_operand(attention(all), &[q, k, v, lengths, mask, f32(&[4])], 5);
    refuses_count(attention(PLAIN), &[q, k, v, lengths]);
    let last = FlashAttention { sinks: true, ..PLAIN };
    assert_eq!((last.kv_len_slot(), last.mask_slot(), last.sinks_slot()), (None, None, Some(3)));
    accepts(attention(last), &[q, k, v, sinks], result);
}

#[test]
fn first_rows_come_behind_lengths_and_need_them() {
    let (q, k, v) = (f32(&[64, 5, 8]), f16(&[64, 99, 4]), f16(&[64, 99, 4]));
    let ranged = FlashAttention { kv_len: true, kv_first: true, mask: true, ..PLAIN };
    assert_eq!(
        (ranged.kv_len_slot(), ranged.kv_first_slot(), ranged.mask_slot()),
        (Some(3), Some(4), Some(5))
    );
    let (numbers, mask) = (i32(&[5]), f16(&[99, 5]));
    accepts(attention(ranged), &[q, k, v, numbers, numbers, mask], f32(&[64, 8, 5]));
    refuses_operand(attention(ranged), &[q, k, v, numbers, i32(&[4]), mask], 4);
    refuses_operand(attention(ranged), &[q, k, v, numbers, f32(&[5]), mask], 4);
    let alone = FlashAttention { kv_first: true, ..PLAIN };
    refuses_parameter(attention(alone), &[q, k, v, numbers], "kv_first");
    let paged = FlashAttention { mask: false, page_rows: 33, ..ranged };
    let operands = [q, k, v, numbers, numbers, i32(&[3, 1]), numbers];
    refuses_parameter(attention(paged), &operands, "kv_first");
}

#[test]
fn rows_in_pages_need_lengths_pages_and_sequences() {
    let (q, k, v) = (f32(&[64, 5, 8]), f16(&[64, 128, 4]), f16(&[64, 128, 4]));
    let paged = FlashAttention { kv_len: true, sinks: true, page_rows: 32, ..PLAIN };
    assert_eq!((paged.page_slots(), paged.operands()), (Some([5, 6]), 7));
    let (lengths, sinks, pages, sequences) = (i32(&[5]), f32(&[8]), i32(&[3, 2]), i32(&[5]));
    accepts(attention(paged), &[q, k, v, lengths, sinks, pages, sequences], f32(&[64, 8, 5]));
    refuses_count(attention(paged), &[q, k, v, lengths, sinks, pages]);
    refuses_operand(attention(paged), &[q, k, v, lengths, sinks, f32(&[3, 2]), sequences], 5);
    refuses_operand(attention(paged), &[q, k, v, lengths, sinks, i32(&[3, 2, 2]), sequences], 5);
    refuses_operand(attention(paged), &[q, k, v, lengths, sinks, pages, i32(&[4])], 6);
    let part = FlashAttention { page_rows: 48, ..paged };
    refuses_operand(attention(part), &[q, k, v, lengths, sinks, pages, sequences], 1);
    let unlimited = FlashAttention { kv_len: false, sinks: false, ..paged };
    refuses_parameter(attention(unlimited), &[q, k, v, pages, sequences], "page_rows");
}
