//! NVFP4: 64 elements in 4 groups of 16, an unsigned 8-bit float (`e4m3`) times a 4-bit float (`e2m1`).

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::all_finite;
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::mxfp4::{VALUES, closest};
use crate::search::extreme;

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::NVFP4;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// The byte of the largest scale, 448.
const LARGEST: u8 = 0x7e;
/// The largest number: 448 times 6.
const MOST: f32 = 2688.0;

/// Half the scale that a byte stands for: four bits of exponent, three of mantissa. The topmost bit is not read; 127, which
/// is NaN in `e4m3`, is 0.
pub fn half_scale(byte: u8) -> f32 {
    // The exponent's bias is 7, that of `f32` 127: 2^120 apart, less one for the half.
    let factor = f32::from_bits((127 + 119) << 23);
    if byte == 0x7f { 0.0 } else { f32::from_bits(u32::from(byte & 0x7f) << 20) * factor }
}

/// The integers to multiply with [`half_scale`], in `-12..=12`.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut codes);
    codes.map(|code| VALUES[usize::from(code)])
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let quants = quants(block);
    let groups =
        out.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().zip(quants.as_chunks::<{ LAYOUT.group }>().0);
    for ((out, quants), scale) in groups.zip(&block[SCALE.range()]) {
        let scale = half_scale(*scale);
        *out = quants.map(|q| scale * f32::from(q));
    }
}

/// Encodes one block.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    encode_weighted(values, None, block);
}

/// Encodes one block with the least squared error, each element's weighted by its importance. Scales are those around the
/// one that makes the largest magnitude 6. The type has neither NaN nor infinities: blocks that are not finite become the
/// largest numbers, as do larger values.
pub fn encode_weighted(
    values: &[f32; ELEMENTS],
    importance: Option<&[f32; ELEMENTS]>,
    block: &mut [u8; BYTES],
) {
    if !all_finite(values) {
        block[SCALE.range()].fill(LARGEST);
        return block[CODES.range()].fill(0x77);
    }
    let weights = importance.unwrap_or(&[1.0; ELEMENTS]);
    let mut codes = [0; ELEMENTS];
    for (group, codes) in codes.as_chunks_mut::<{ LAYOUT.group }>().0.iter_mut().enumerate() {
        let values = values.as_chunks::<{ LAYOUT.group }>().0[group].map(|value| value.clamp(-MOST, MOST));
        let weights = &weights.as_chunks::<{ LAYOUT.group }>().0[group];
        let base = nearest_scale(extreme(&values).abs() / 6.0);
        let mut best = (f32::INFINITY, 0);
        for byte in base.saturating_sub(6)..=(base + 4).min(LARGEST) {
            let scale = half_scale(byte);
            let error: f32 = values
                .iter()
                .zip(weights)
                .map(|(value, weight)| {
                    let back = scale * f32::from(VALUES[usize::from(closest(*value, scale))]);
                    weight * (value - back) * (value - back)
                })
                .sum();
            if error < best.0 {
                best = (error, byte);
            }
        }
        block[SCALE.offset + group] = best.1;
        let scale = half_scale(best.1);
        *codes = values.map(|value| closest(value, scale));
    }
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
}

/// The byte of the scale nearest to a number.
fn nearest_scale(scale: f32) -> u8 {
    let above = (0..=LARGEST).find(|byte| 2.0 * half_scale(*byte) >= scale).unwrap_or(LARGEST);
    let below = above.saturating_sub(1);
    let error = |byte: u8| (2.0 * half_scale(byte) - scale).abs();
    if error(below) < error(above) { below } else { above }
}
