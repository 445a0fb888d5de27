//! Q8_1: Q8_0 with the sum of the block beside it, for products with types that have a minimum.

use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::q8_0::quantize;

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q8_1;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);
const SUMS: BlockField = LAYOUT.field(FieldRole::Sums);

/// The integers to multiply with the scale.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    bytes_at(block, CODES).map(|byte: u8| byte as i8)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block. The stored sum uses the scale before its rounding to 16 bits.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        poison(block, SCALE);
        put_f16(block, SUMS, f32::NAN);
        return;
    }
    let (scale, quants) = quantize(values);
    let sum: i32 = quants.iter().map(|q| i32::from(*q)).sum();
    put_f16(block, SCALE, scale);
    put_f16(block, SUMS, sum as f32 * scale);
    put_bytes(block, CODES, &quants.map(|q| q as u8));
}
