//! TQ2_0: 256 elements, `scale * (q - 1)` with 2-bit `q`, of which encoding uses 0, 1 and 2: ternary weights.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, f16_at, poison, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{inverse, truncate};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::TQ2_0;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);
const BIAS: i8 = LAYOUT.codes.bias() as i8;

/// The integers to multiply with the scale, in `-1..3`.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut codes);
    codes.map(|code| code as i8 - BIAS)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block. The scale is the largest magnitude.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE);
    }
    let scale = values.iter().fold(0f32, |max, value| max.max(value.abs()));
    let inverse = inverse(scale);
    put_f16(block, SCALE, scale);
    let codes = values.map(|value| truncate((value * inverse).round() + f32::from(BIAS), 2));
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
}
