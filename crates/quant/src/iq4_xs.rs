//! IQ4_XS: 256 elements in 8 groups of 32, `scale * group_scale` times a level of [`iq4::VALUES`].

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, bytes_at, f16_at, poison, put_bytes, put_f16};
use crate::iq4;
use crate::search::{extreme, inverse, nearest};

/// Elements of one block.
pub const ELEMENTS: usize = 256;
/// Bytes of one block.
pub const BYTES: usize = 136;
/// Offset of the scale, a 16-bit float.
pub const SCALE_AT: usize = 0;
/// Offset of the upper two bits of the group scales: a little-endian 16-bit word, group 0 lowest.
pub const SCALES_HIGH_AT: usize = 2;
/// Offset of the lower four bits of the group scales: four bytes, even groups in the low nibbles.
pub const SCALES_LOW_AT: usize = 4;
/// Offset of the nibbles, 16 bytes a group: element `j` of the group low, `j + 16` high.
pub const QUANTS_AT: usize = 8;

/// The group scales, in `-32..32`.
pub fn scales(block: &[u8; BYTES]) -> [i8; 8] {
    let high = u16::from_le_bytes(bytes_at(block, SCALES_HIGH_AT));
    std::array::from_fn(|group| {
        let low = (block[SCALES_LOW_AT + group / 2] >> (4 * (group % 2))) & 15;
        let high = ((high >> (2 * group)) & 3) as u8;
        (low | high << 4) as i8 - 32
    })
}

/// The levels to multiply with scale and group scale.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<4, 16>(&block[QUANTS_AT..], &mut codes);
    codes.map(|code| iq4::VALUES[usize::from(code)])
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE_AT);
    let quants = quants(block);
    let groups = out.as_chunks_mut::<32>().0.iter_mut().zip(quants.as_chunks::<32>().0);
    for ((out, quants), group_scale) in groups.zip(scales(block)) {
        let scale = scale * f32::from(group_scale);
        *out = quants.map(|q| scale * f32::from(q));
    }
}

/// Encodes one block: a searched scale for each group, then 6 bits for each of those.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE_AT);
    }
    let groups = values.as_chunks::<32>().0;
    let wanted: [f32; 8] = std::array::from_fn(|group| iq4::scale(&groups[group]));
    let scale = put_f16(block, SCALE_AT, extreme(&wanted) / -32.0);
    let group_scales = wanted.map(|wanted| nearest(wanted * inverse(scale), -32.0, 31.0));

    let mut high = 0;
    let mut low = [0; 4];
    let mut codes = [0; ELEMENTS];
    for (group, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let stored = (group_scales[group] + 32.0) as u16;
        low[group / 2] |= ((stored & 15) as u8) << (4 * (group % 2));
        high |= (stored >> 4) << (2 * group);
        let inverse = inverse(scale * group_scales[group]);
        *codes = groups[group].map(|value| iq4::code(value * inverse));
    }
    put_bytes(block, SCALES_HIGH_AT, &high.to_le_bytes());
    put_bytes(block, SCALES_LOW_AT, &low);
    pack_planes::<4, 16>(&codes, &mut block[QUANTS_AT..]);
}
