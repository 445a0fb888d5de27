//! Q4_K: 256 elements in 8 groups of 32, `scale * group_scale * q - min * group_min` with 4-bit `q`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{Affine, affine, inverse, nearest};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q4_K;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const GROUP_SCALES: BlockField = LAYOUT.field(FieldRole::GroupScales);
const MIN: BlockField = LAYOUT.field(FieldRole::Min);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// The 8 group scales and the 8 group minima of Q4_K and Q5_K, in `0..64`.
///
/// For groups 0 to 3, byte `j` holds the scale and byte `4 + j` the minimum, in the low six bits. For groups 4
/// to 7, byte `8 + j` holds the lower four bits of scale (low nibble) and minimum (high nibble) of group
/// `4 + j`; the upper two are the upper two bits of byte `j` and byte `4 + j`.
pub fn unpack_scales(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = packed[j] & 63;
        mins[j] = packed[4 + j] & 63;
        scales[4 + j] = (packed[8 + j] & 15) | (packed[j] >> 6) << 4;
        mins[4 + j] = (packed[8 + j] >> 4) | (packed[4 + j] >> 6) << 4;
    }
    (scales, mins)
}

/// The inverse of [`unpack_scales`]; only the low six bits of each number are kept.
pub fn pack_scales(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = (scales[j] & 63) | (scales[4 + j] >> 4) << 6;
        packed[4 + j] = (mins[j] & 63) | (mins[4 + j] >> 4) << 6;
        packed[8 + j] = (scales[4 + j] & 15) | mins[4 + j] << 4;
    }
    packed
}

/// The integers, in `0..16`.
pub fn quants(block: &[u8; BYTES]) -> [u8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut codes);
    codes
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    dequantize(&header(block), &quants(block), out);
}

/// Encodes one block: a searched scale and minimum for each group, then 6 bits for each of those.
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
    let (header, codes) = quantize(values, importance, 15.0);
    block[..HEADER].copy_from_slice(&header);
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
}

/// Bytes before the codes (and the high bits of Q5_K): scale, minimum and group scales.
const HEADER: usize = GROUP_SCALES.range().end;

/// The header of a block.
pub(crate) fn header(block: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header.copy_from_slice(&block[..HEADER]);
    header
}

/// Applies the scales and minima of a header to unpacked integers.
pub(crate) fn dequantize(header: &[u8; HEADER], quants: &[u8; ELEMENTS], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(header, SCALE);
    let min = f16_at(header, MIN);
    let (scales, mins) = unpack_scales(&bytes_at(header, GROUP_SCALES));
    let groups =
        out.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().zip(quants.as_chunks::<{ LAYOUT.group }>().0);
    for ((out, quants), (group_scale, group_min)) in groups.zip(scales.into_iter().zip(mins)) {
        let scale = scale * f32::from(group_scale);
        let min = min * f32::from(group_min);
        *out = quants.map(|q| scale * f32::from(q) - min);
    }
}

/// The header and the integers, in `0..=top`, for 256 finite values.
pub(crate) fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<&[f32; ELEMENTS]>,
    top: f32,
) -> ([u8; HEADER], [u8; ELEMENTS]) {
    let groups = values.as_chunks::<{ LAYOUT.group }>().0;
    let weights = importance.map(|importance| importance.as_chunks::<{ LAYOUT.group }>().0);
    let wanted: [Affine; 8] =
        std::array::from_fn(|group| affine(&groups[group], weights.map(|weights| &weights[group]), top));
    let mut header = [0; HEADER];
    let scale = put_f16(&mut header, SCALE, wanted.iter().fold(0.0, |max, fit| fit.scale.max(max)) / 63.0);
    let min = put_f16(&mut header, MIN, wanted.iter().fold(0.0, |max, fit| fit.min.max(max)) / 63.0);
    let scales = wanted.map(|fit| nearest(fit.scale * inverse(scale), 0.0, 63.0));
    let mins = wanted.map(|fit| nearest(fit.min * inverse(min), 0.0, 63.0));
    let packed = pack_scales(&scales.map(|scale| scale as u8), &mins.map(|min| min as u8));
    put_bytes(&mut header, GROUP_SCALES, &packed);

    let mut codes = [0; ELEMENTS];
    for (group, codes) in codes.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().enumerate() {
        let inverse = inverse(scale * scales[group]);
        let min = min * mins[group];
        *codes = groups[group].map(|value| nearest((value + min) * inverse, 0.0, top) as u8);
    }
    (header, codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_scales_undoes_unpacking() {
        let packed: [u8; 12] = std::array::from_fn(|i| (i * 83 + 19) as u8);
        let (scales, mins) = unpack_scales(&packed);
        assert!(scales.iter().chain(&mins).all(|number| *number < 64));
        assert_eq!(pack_scales(&scales, &mins), packed);
    }
}
