//! Q4_1: 32 elements, `scale * q + min` with 4-bit `q`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, f16_at, poison, put_f16};
use crate::search::{inverse, min_max, truncate};

/// Elements of one block.
pub const ELEMENTS: usize = 32;
/// Bytes of one block.
pub const BYTES: usize = 20;
/// Offset of the scale, a 16-bit float.
pub const SCALE_AT: usize = 0;
/// Offset of the minimum, a 16-bit float.
pub const MIN_AT: usize = 2;
/// Offset of the 16 bytes of nibbles: element `j` low, element `j + 16` high.
pub const QUANTS_AT: usize = 4;

/// The integers to multiply with the scale, in `0..16`.
pub fn quants(block: &[u8; BYTES]) -> [u8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<4, 16>(&block[QUANTS_AT..], &mut codes);
    codes
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE_AT);
    let min = f16_at(block, MIN_AT);
    *out = quants(block).map(|q| scale * f32::from(q) + min);
}

/// Encodes one block: the smallest value gets code 0, the largest 15.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE_AT);
    }
    let (min, max) = min_max(values);
    let scale = (max - min) / 15.0;
    let inverse = inverse(scale);
    put_f16(block, SCALE_AT, scale);
    put_f16(block, MIN_AT, min);
    let codes = values.map(|value| truncate((value - min) * inverse + 0.5, 15));
    pack_planes::<4, 16>(&codes, &mut block[QUANTS_AT..]);
}
