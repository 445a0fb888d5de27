//! Q6_K: 256 elements in 16 groups of 16, `scale * group_scale * (q - 32)` with 6-bit `q`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{extreme, inverse, nearest, symmetric_scale};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q6_K;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const GROUP_SCALES: BlockField = LAYOUT.field(FieldRole::GroupScales);
const HIGH_BITS: BlockField = LAYOUT.field(FieldRole::HighBits);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);
const BIAS: i8 = LAYOUT.codes.bias() as i8;

/// The group scales.
pub fn scales(block: &[u8; BYTES]) -> [i8; 16] {
    bytes_at(block, GROUP_SCALES).map(|byte: u8| byte as i8)
}

/// The integers to multiply with scale and group scale, in `-32..32`.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let (mut low, mut high) = ([0; ELEMENTS], [0; ELEMENTS]);
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut low);
    unpack_planes::<{ HIGH_BITS.bits }, { HIGH_BITS.run() }>(&block[HIGH_BITS.range()], &mut high);
    std::array::from_fn(|element| (low[element] | high[element] << CODES.bits) as i8 - BIAS)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    let quants = quants(block);
    let groups =
        out.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().zip(quants.as_chunks::<{ LAYOUT.group }>().0);
    for ((out, quants), group_scale) in groups.zip(scales(block)) {
        let scale = scale * f32::from(group_scale);
        *out = quants.map(|q| scale * f32::from(q));
    }
}

/// Encodes one block: a searched scale for each group, then 8 bits for each of those.
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
    let wanted: [f32; 16] = std::array::from_fn(|group| {
        symmetric_scale(&groups[group], weights.map(|weights| &weights[group]), 32.0)
    });
    let scale = put_f16(block, SCALE, extreme(&wanted) / -128.0);
    let group_scales = wanted.map(|wanted| nearest(wanted * inverse(scale), -128.0, 127.0));

    let mut codes = [0; ELEMENTS];
    for (group, codes) in codes.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().enumerate() {
        let inverse = inverse(scale * group_scales[group]);
        *codes = groups[group].map(|value| (nearest(value * inverse, -32.0, 31.0) + 32.0) as u8);
    }
    put_bytes(block, GROUP_SCALES, &group_scales.map(|scale| scale as i8 as u8));
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
    pack_planes::<{ HIGH_BITS.bits }, { HIGH_BITS.run() }>(
        &codes.map(|code| code >> CODES.bits),
        &mut block[HIGH_BITS.range()],
    );
}
