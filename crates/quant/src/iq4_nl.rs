//! IQ4_NL: 32 elements, a scale times a level of [`iq4::VALUES`].

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, f16_at, poison, put_f16};
use crate::iq4;
use crate::search::inverse;

/// Elements of one block.
pub const ELEMENTS: usize = 32;
/// Bytes of one block.
pub const BYTES: usize = 18;
/// Offset of the scale, a 16-bit float.
pub const SCALE_AT: usize = 0;
/// Offset of the 16 bytes of nibbles: element `j` low, element `j + 16` high.
pub const QUANTS_AT: usize = 2;

/// The levels to multiply with the scale.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<4, 16>(&block[QUANTS_AT..], &mut codes);
    codes.map(|code| iq4::VALUES[usize::from(code)])
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE_AT);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block with a searched scale.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE_AT);
    }
    let inverse = inverse(put_f16(block, SCALE_AT, iq4::scale(values)));
    let codes = values.map(|value| iq4::code(value * inverse));
    pack_planes::<4, 16>(&codes, &mut block[QUANTS_AT..]);
}
