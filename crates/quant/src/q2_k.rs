//! Q2_K: 256 elements in 16 groups of 16, `scale * group_scale * q - min * group_min` with 2-bit `q`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, bytes_at, f16_at, poison, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{Affine, affine, inverse, nearest};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q2_K;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const GROUP_SCALES: BlockField = LAYOUT.field(FieldRole::GroupScales);
const MIN: BlockField = LAYOUT.field(FieldRole::Min);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// Group scales and group minima, in `0..16`.
pub fn scales_and_mins(block: &[u8; BYTES]) -> ([u8; 16], [u8; 16]) {
    let packed: [u8; 16] = bytes_at(block, GROUP_SCALES);
    (packed.map(|byte| byte & 15), packed.map(|byte| byte >> 4))
}

/// The integers, in `0..4`.
pub fn quants(block: &[u8; BYTES]) -> [u8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut codes);
    codes
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    let min = f16_at(block, MIN);
    let (scales, mins) = scales_and_mins(block);
    let quants = quants(block);
    let groups =
        out.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().zip(quants.as_chunks::<{ LAYOUT.group }>().0);
    for ((out, quants), (group_scale, group_min)) in groups.zip(scales.into_iter().zip(mins)) {
        let scale = scale * f32::from(group_scale);
        let min = min * f32::from(group_min);
        *out = quants.map(|q| scale * f32::from(q) - min);
    }
}

/// Encodes one block: a searched scale and minimum for each group, then 4 bits for each of those.
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
    let groups = values.as_chunks::<{ LAYOUT.group }>().0;
    let weights = importance.map(|importance| importance.as_chunks::<{ LAYOUT.group }>().0);
    let wanted: [Affine; 16] =
        std::array::from_fn(|group| affine(&groups[group], weights.map(|weights| &weights[group]), 3.0));
    let scale = put_f16(block, SCALE, wanted.iter().fold(0.0, |max, fit| fit.scale.max(max)) / 15.0);
    let min = put_f16(block, MIN, wanted.iter().fold(0.0, |max, fit| fit.min.max(max)) / 15.0);

    let mut codes = [0; ELEMENTS];
    for (group, codes) in codes.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().enumerate() {
        let group_scale = nearest(wanted[group].scale * inverse(scale), 0.0, 15.0);
        let group_min = nearest(wanted[group].min * inverse(min), 0.0, 15.0);
        block[GROUP_SCALES.offset + group] = group_scale as u8 | (group_min as u8) << 4;
        let inverse = inverse(scale * group_scale);
        let min = min * group_min;
        *codes = groups[group].map(|value| nearest((value + min) * inverse, 0.0, 3.0) as u8);
    }
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
}
