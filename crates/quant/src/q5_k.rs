//! Q5_K: 256 elements in 8 groups of 32, `scale * group_scale * q - min * group_min` with 5-bit `q`.
//!
//! Scales and minima are packed as in Q4_K: [`q4_k::unpack_scales`].

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, poison};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::q4_k;

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q5_K;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const HIGH_BITS: BlockField = LAYOUT.field(FieldRole::HighBits);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// The integers, in `0..32`.
pub fn quants(block: &[u8; BYTES]) -> [u8; ELEMENTS] {
    let (mut low, mut high) = ([0; ELEMENTS], [0; ELEMENTS]);
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut low);
    unpack_planes::<{ HIGH_BITS.bits }, { HIGH_BITS.run() }>(&block[HIGH_BITS.range()], &mut high);
    std::array::from_fn(|element| low[element] | high[element] << CODES.bits)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    q4_k::dequantize(&q4_k::header(block), &quants(block), out);
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
    let (header, codes) = q4_k::quantize(values, importance, 31.0);
    block[..header.len()].copy_from_slice(&header);
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
    pack_planes::<{ HIGH_BITS.bits }, { HIGH_BITS.run() }>(
        &codes.map(|code| code >> CODES.bits),
        &mut block[HIGH_BITS.range()],
    );
}
