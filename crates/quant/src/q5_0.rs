//! Q5_0: 32 elements, `scale * (q - 16)` with 5-bit `q`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{extreme, inverse, truncate};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q5_0;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const HIGH_BITS: BlockField = LAYOUT.field(FieldRole::HighBits);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);
const BIAS: i8 = LAYOUT.codes.bias() as i8;

/// The integers to multiply with the scale, in `-16..16`.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    unpack(block, HIGH_BITS, CODES).map(|code| code as i8 - BIAS)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block. The value of largest magnitude gets code 0, whatever its sign.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE);
    }
    let scale = extreme(values) / -16.0;
    let inverse = inverse(scale);
    put_f16(block, SCALE, scale);
    let codes = values.map(|value| truncate(value * inverse + 16.5, 31));
    pack(&codes, block, HIGH_BITS, CODES);
}

/// Joins nibbles and fifth bits, for this type and Q5_1.
pub(crate) fn unpack(block: &[u8], high_bits: BlockField, nibbles: BlockField) -> [u8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[nibbles.range()], &mut codes);
    let high = u32::from_le_bytes(bytes_at(block, high_bits));
    for (element, code) in codes.iter_mut().enumerate() {
        *code |= (((high >> element) & 1) << 4) as u8;
    }
    codes
}

/// The inverse of [`unpack`].
pub(crate) fn pack(codes: &[u8; ELEMENTS], block: &mut [u8], high_bits: BlockField, nibbles: BlockField) {
    let mut high = 0;
    for (element, code) in codes.iter().enumerate() {
        high |= u32::from(code >> 4) << element;
    }
    put_bytes(block, high_bits, &high.to_le_bytes());
    pack_planes::<{ CODES.bits }, { CODES.run() }>(codes, &mut block[nibbles.range()]);
}
