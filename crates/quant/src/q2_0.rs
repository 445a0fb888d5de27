//! Q2_0: 64 elements, `scale * (q - 1)` with 2-bit `q`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, f16_at, poison, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{best_scale, extreme, inverse, nearest};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q2_0;
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

/// Encodes one block: a searched scale of either sign. Ternary weights stay as they are.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    encode_weighted(values, None, block);
}

/// Encodes one block with the least squared error, each element's weighted by its importance.
pub fn encode_weighted(
    values: &[f32; ELEMENTS],
    importance: Option<&[f32; ELEMENTS]>,
    block: &mut [u8; BYTES],
) {
    if !all_finite(values) {
        return poison(block, SCALE);
    }
    let extreme = extreme(values);
    let level = |value| nearest(value, -1.0, 2.0);
    let inverses = (0..=14).flat_map(|step| {
        let largest = 1.0 + 0.1 * step as f32;
        [largest / extreme, -largest / extreme]
    });
    let scale = put_f16(block, SCALE, best_scale(values, importance, inverses, level));
    let inverse = inverse(scale);
    let codes = values.map(|value| (level(value * inverse) + f32::from(BIAS)) as u8);
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
}
