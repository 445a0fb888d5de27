//! Q4_0: 32 elements, `scale * (q - 8)` with 4-bit `q`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, f16_at, poison, put_f16};
use crate::search::{extreme, inverse, truncate};

/// Elements of one block.
pub const ELEMENTS: usize = 32;
/// Bytes of one block.
pub const BYTES: usize = 18;
/// Offset of the scale, a 16-bit float.
pub const SCALE_AT: usize = 0;
/// Offset of the 16 bytes of nibbles: element `j` low, element `j + 16` high.
pub const QUANTS_AT: usize = 2;

/// The integers to multiply with the scale, in `-8..8`.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<4, 16>(&block[QUANTS_AT..], &mut codes);
    codes.map(|code| code as i8 - 8)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE_AT);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block. The value of largest magnitude gets code 0, whatever its sign.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE_AT);
    }
    let scale = extreme(values) / -8.0;
    let inverse = inverse(scale);
    put_f16(block, SCALE_AT, scale);
    let codes = values.map(|value| truncate(value * inverse + 8.5, 15));
    pack_planes::<4, 16>(&codes, &mut block[QUANTS_AT..]);
}
