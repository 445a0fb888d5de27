//! IQ4_XS: 256 elements in 8 groups of 32, `scale * group_scale` times a level of [`iq4::VALUES`].

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::iq4;
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{extreme, inverse, nearest};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::IQ4_XS;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const GROUP_SCALES: BlockField = LAYOUT.field(FieldRole::GroupScales);
const GROUP_SCALES_HIGH: BlockField = LAYOUT.field(FieldRole::GroupScalesHigh);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// The group scales, in `-32..32`.
pub fn scales(block: &[u8; BYTES]) -> [i8; 8] {
    let high = u16::from_le_bytes(bytes_at(block, GROUP_SCALES_HIGH));
    std::array::from_fn(|group| {
        let low = (block[GROUP_SCALES.offset + group / 2] >> (4 * (group % 2))) & 15;
        let high = ((high >> (2 * group)) & 3) as u8;
        (low | high << 4) as i8 - 32
    })
}

/// The levels to multiply with scale and group scale.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut codes);
    codes.map(|code| iq4::VALUES[usize::from(code)])
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

/// Encodes one block: a searched scale for each group, then 6 bits for each of those.
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
    let wanted: [f32; 8] =
        std::array::from_fn(|group| iq4::scale(&groups[group], weights.map(|weights| &weights[group])));
    let scale = put_f16(block, SCALE, extreme(&wanted) / -32.0);
    let group_scales = wanted.map(|wanted| nearest(wanted * inverse(scale), -32.0, 31.0));

    let mut high = 0;
    let mut low = [0; 4];
    let mut codes = [0; ELEMENTS];
    for (group, codes) in codes.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().enumerate() {
        let stored = (group_scales[group] + 32.0) as u16;
        low[group / 2] |= ((stored & 15) as u8) << (4 * (group % 2));
        high |= (stored >> 4) << (2 * group);
        let inverse = inverse(scale * group_scales[group]);
        *codes = groups[group].map(|value| iq4::code(value * inverse));
    }
    put_bytes(block, GROUP_SCALES_HIGH, &high.to_le_bytes());
    put_bytes(block, GROUP_SCALES, &low);
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
}
