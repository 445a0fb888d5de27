//! Q5_K: 256 elements in 8 groups of 32, `scale * group_scale * q - min * group_min` with 5-bit `q`.
//!
//! Scales and minima are packed as in Q4_K: [`q4_k::unpack_scales`].

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, bytes_at, poison, put_bytes};
use crate::q4_k;

/// Elements of one block.
pub const ELEMENTS: usize = 256;
/// Bytes of one block.
pub const BYTES: usize = 176;
/// Offset of the scale of the group scales, a 16-bit float.
pub const SCALE_AT: usize = 0;
/// Offset of the scale of the group minima, a 16-bit float.
pub const MIN_AT: usize = 2;
/// Offset of the 12 bytes of group scales and minima, see [`q4_k::unpack_scales`].
pub const SCALES_AT: usize = 4;
/// Offset of the 32 bytes of fifth bits, [`bits`](crate::bits) with `<1, 32>`: bit `g` is for group `g`.
pub const HIGH_BITS_AT: usize = 16;
/// Offset of the 128 bytes of nibbles, [`bits`](crate::bits) with `<4, 32>`: each 32 bytes hold two groups.
pub const QUANTS_AT: usize = 48;

/// The integers, in `0..32`.
pub fn quants(block: &[u8; BYTES]) -> [u8; ELEMENTS] {
    let (mut low, mut high) = ([0; ELEMENTS], [0; ELEMENTS]);
    unpack_planes::<4, 32>(&block[QUANTS_AT..], &mut low);
    unpack_planes::<1, 32>(&block[HIGH_BITS_AT..QUANTS_AT], &mut high);
    std::array::from_fn(|element| low[element] | high[element] << 4)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    q4_k::dequantize(&bytes_at(block, 0), &quants(block), out);
}

/// Encodes one block: a searched scale and minimum for each group, then 6 bits for each of those.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE_AT);
    }
    let (header, codes) = q4_k::quantize(values, 31.0);
    put_bytes(block, 0, &header);
    pack_planes::<4, 32>(&codes, &mut block[QUANTS_AT..]);
    pack_planes::<1, 32>(&codes.map(|code| code >> 4), &mut block[HIGH_BITS_AT..QUANTS_AT]);
}
