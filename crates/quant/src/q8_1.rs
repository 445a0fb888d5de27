//! Q8_1: Q8_0 with the sum of the block beside it, for products with types that have a minimum.

use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::q8_0::quantize;

/// Elements of one block.
pub const ELEMENTS: usize = 32;
/// Bytes of one block.
pub const BYTES: usize = 36;
/// Offset of the scale, a 16-bit float.
pub const SCALE_AT: usize = 0;
/// Offset of scale times the sum of the integers, a 16-bit float. Decoding does not read it.
pub const SUM_AT: usize = 2;
/// Offset of the 32 signed bytes.
pub const QUANTS_AT: usize = 4;

/// The integers to multiply with the scale.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    bytes_at(block, QUANTS_AT).map(|byte: u8| byte as i8)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE_AT);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block. The stored sum uses the scale before its rounding to 16 bits.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        poison(block, SCALE_AT);
        put_f16(block, SUM_AT, f32::NAN);
        return;
    }
    let (scale, quants) = quantize(values);
    let sum: i32 = quants.iter().map(|q| i32::from(*q)).sum();
    put_f16(block, SCALE_AT, scale);
    put_f16(block, SUM_AT, sum as f32 * scale);
    put_bytes(block, QUANTS_AT, &quants.map(|q| q as u8));
}
