//! Q1_0: 128 elements, `scale` or `-scale`.

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::{all_finite, f16_at, poison, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q1_0;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// The integers to multiply with the scale: -1 and 1.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut codes);
    codes.map(|code| 2 * code as i8 - 1)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    encode_weighted(values, None, block);
}

/// Encodes one block. The scale is the mean magnitude, weighted by importance: it gives the least squared error.
pub fn encode_weighted(
    values: &[f32; ELEMENTS],
    importance: Option<&[f32; ELEMENTS]>,
    block: &mut [u8; BYTES],
) {
    if !all_finite(values) {
        return poison(block, SCALE);
    }
    let weights = importance.unwrap_or(&[1.0; ELEMENTS]);
    let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let magnitudes =
        values.iter().zip(weights).map(|(value, weight)| f64::from(*weight) * f64::from(value.abs()));
    let scale = if total > 0.0 { (magnitudes.sum::<f64>() / total) as f32 } else { 0.0 };
    put_f16(block, SCALE, scale);
    let codes = values.map(|value| u8::from(value >= 0.0));
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
}
