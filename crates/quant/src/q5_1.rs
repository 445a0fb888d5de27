//! Q5_1: 32 elements, `scale * q + min` with 5-bit `q`.

use crate::fields::{all_finite, f16_at, poison, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::q5_0::{pack, unpack};
use crate::search::{inverse, min_max, truncate};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q5_1;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const HIGH_BITS: BlockField = LAYOUT.field(FieldRole::HighBits);
const MIN: BlockField = LAYOUT.field(FieldRole::Min);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// The integers to multiply with the scale, in `0..32`.
pub fn quants(block: &[u8; BYTES]) -> [u8; ELEMENTS] {
    unpack(block, HIGH_BITS, CODES)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    let min = f16_at(block, MIN);
    *out = quants(block).map(|q| scale * f32::from(q) + min);
}

/// Encodes one block: the smallest value gets code 0, the largest 31.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE);
    }
    let (min, max) = min_max(values);
    let scale = (max - min) / 31.0;
    let inverse = inverse(scale);
    put_f16(block, SCALE, scale);
    put_f16(block, MIN, min);
    let codes = values.map(|value| truncate((value - min) * inverse + 0.5, 31));
    pack(&codes, block, HIGH_BITS, CODES);
}
