//! Q8_0: 32 elements, `scale * q` with 8-bit `q`.

use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{extreme, inverse};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q8_0;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// The integers to multiply with the scale.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    bytes_at(block, CODES).map(|byte: u8| byte as i8)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block. The value of largest magnitude becomes 127 or -127.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE);
    }
    let (scale, quants) = quantize(values);
    put_f16(block, SCALE, scale);
    put_bytes(block, CODES, &quants.map(|q| q as u8));
}

/// The exact scale and the integers, for this type and Q8_1.
pub(crate) fn quantize(values: &[f32; ELEMENTS]) -> (f32, [i8; ELEMENTS]) {
    let scale = extreme(values).abs() / 127.0;
    let inverse = inverse(scale);
    let quants = values.map(|value| {
        let level = (value * inverse).round();
        // A scale below the smallest normal number has an infinite inverse: those quants are zero.
        if level.is_finite() { level as i8 } else { 0 }
    });
    (scale, quants)
}
