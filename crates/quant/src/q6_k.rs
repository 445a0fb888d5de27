//! Q6_K: 256 elements in 16 groups of 16, `scale * group_scale * (q - 32)` with 6-bit `q`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::search::{extreme, inverse, nearest, symmetric_scale};

/// Elements of one block.
pub const ELEMENTS: usize = 256;
/// Bytes of one block.
pub const BYTES: usize = 210;
/// Offset of the 128 bytes with the lower four bits, [`bits`](crate::bits) with `<4, 64>`.
pub const LOW_BITS_AT: usize = 0;
/// Offset of the 64 bytes with the upper two bits, [`bits`](crate::bits) with `<2, 32>`.
pub const HIGH_BITS_AT: usize = 128;
/// Offset of the 16 group scales, signed bytes.
pub const SCALES_AT: usize = 192;
/// Offset of the scale of the group scales, a 16-bit float.
pub const SCALE_AT: usize = 208;

/// The group scales.
pub fn scales(block: &[u8; BYTES]) -> [i8; 16] {
    bytes_at(block, SCALES_AT).map(|byte: u8| byte as i8)
}

/// The integers to multiply with scale and group scale, in `-32..32`.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let (mut low, mut high) = ([0; ELEMENTS], [0; ELEMENTS]);
    unpack_planes::<4, 64>(&block[LOW_BITS_AT..HIGH_BITS_AT], &mut low);
    unpack_planes::<2, 32>(&block[HIGH_BITS_AT..SCALES_AT], &mut high);
    std::array::from_fn(|element| (low[element] | high[element] << 4) as i8 - 32)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE_AT);
    let quants = quants(block);
    let groups = out.as_chunks_mut::<16>().0.iter_mut().zip(quants.as_chunks::<16>().0);
    for ((out, quants), group_scale) in groups.zip(scales(block)) {
        let scale = scale * f32::from(group_scale);
        *out = quants.map(|q| scale * f32::from(q));
    }
}

/// Encodes one block: a searched scale for each group, then 8 bits for each of those.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE_AT);
    }
    let groups = values.as_chunks::<16>().0;
    let wanted: [f32; 16] = std::array::from_fn(|group| symmetric_scale(&groups[group], 32.0));
    let scale = put_f16(block, SCALE_AT, extreme(&wanted) / -128.0);
    let group_scales = wanted.map(|wanted| nearest(wanted * inverse(scale), -128.0, 127.0));

    let mut codes = [0; ELEMENTS];
    for (group, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let inverse = inverse(scale * group_scales[group]);
        *codes = groups[group].map(|value| (nearest(value * inverse, -32.0, 31.0) + 32.0) as u8);
    }
    put_bytes(block, SCALES_AT, &group_scales.map(|scale| scale as i8 as u8));
    pack_planes::<4, 64>(&codes, &mut block[LOW_BITS_AT..HIGH_BITS_AT]);
    pack_planes::<2, 32>(&codes.map(|code| code >> 4), &mut block[HIGH_BITS_AT..SCALES_AT]);
}
