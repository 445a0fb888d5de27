//! Q5_0: 32 elements, `scale * (q - 16)` with 5-bit `q`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::search::{extreme, inverse, truncate};

/// Elements of one block.
pub const ELEMENTS: usize = 32;
/// Bytes of one block.
pub const BYTES: usize = 22;
/// Offset of the scale, a 16-bit float.
pub const SCALE_AT: usize = 0;
/// Offset of the fifth bits, a little-endian 32-bit word: bit `j` belongs to element `j`.
pub const HIGH_BITS_AT: usize = 2;
/// Offset of the 16 bytes of nibbles: element `j` low, element `j + 16` high.
pub const QUANTS_AT: usize = 6;

/// The integers to multiply with the scale, in `-16..16`.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    unpack(block, HIGH_BITS_AT, QUANTS_AT).map(|code| code as i8 - 16)
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
    let scale = extreme(values) / -16.0;
    let inverse = inverse(scale);
    put_f16(block, SCALE_AT, scale);
    let codes = values.map(|value| truncate(value * inverse + 16.5, 31));
    pack(&codes, block, HIGH_BITS_AT, QUANTS_AT);
}

/// Joins nibbles and fifth bits, for this type and Q5_1.
pub(crate) fn unpack(block: &[u8], high_bits_at: usize, quants_at: usize) -> [u8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<4, 16>(&block[quants_at..], &mut codes);
    let high = u32::from_le_bytes(bytes_at(block, high_bits_at));
    for (element, code) in codes.iter_mut().enumerate() {
        *code |= (((high >> element) & 1) << 4) as u8;
    }
    codes
}

/// The inverse of [`unpack`].
pub(crate) fn pack(codes: &[u8; ELEMENTS], block: &mut [u8], high_bits_at: usize, quants_at: usize) {
    let mut high = 0;
    for (element, code) in codes.iter().enumerate() {
        high |= u32::from(code >> 4) << element;
    }
    put_bytes(block, high_bits_at, &high.to_le_bytes());
    pack_planes::<4, 16>(codes, &mut block[quants_at..]);
}
