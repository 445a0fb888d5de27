//! IQ4_NL: 32 elements, a scale times a level of [`iq4::VALUES`].

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, f16_at, poison, put_f16};
use crate::iq4;
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::inverse;

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::IQ4_NL;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// The levels to multiply with the scale.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut codes);
    codes.map(|code| iq4::VALUES[usize::from(code)])
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block with a searched scale.
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
    let inverse = inverse(put_f16(block, SCALE, iq4::scale(values, importance)));
    let codes = values.map(|value| iq4::code(value * inverse));
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
}
