//! MXFP4: 32 elements, a power of two times a 4-bit float (`e2m1`).

use crate::bits::{pack_planes, unpack_planes};
use crate::fields::all_finite;
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::extreme;

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::MXFP4;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// Twice the value of each 4-bit code, which makes all of them integers. Multiply with [`half_scale`].
pub const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half the scale that an exponent byte stands for: `2^(exponent - 128)`.
///
/// GGUF knows no NaN here: 255 is `2^127`, unlike in the OCP definition of the type.
pub fn half_scale(exponent: u8) -> f32 {
    match exponent {
        // The two that are denormal as `f32`.
        0 => f32::from_bits(0x0020_0000),
        1 => f32::from_bits(0x0040_0000),
        _ => f32::from_bits(u32::from(exponent - 1) << 23),
    }
}

/// The integers to multiply with [`half_scale`], in `-12..=12`.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    unpack_planes::<{ CODES.bits }, { CODES.run() }>(&block[CODES.range()], &mut codes);
    codes.map(|code| VALUES[usize::from(code)])
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = half_scale(block[SCALE.offset]);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block: the scale puts the largest magnitude into `4..8`, where everything above 6 becomes 6.
///
/// Scales below `2^-127` are taken as `2^-127`. A block with a NaN or an infinity decodes to infinity
/// throughout, and to NaN where exponent 255 is read as the OCP definition has it.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        block[SCALE.offset] = 255;
        return pack_planes::<{ CODES.bits }, { CODES.run() }>(&[7; ELEMENTS], &mut block[CODES.range()]);
    }
    let largest = extreme(values).abs();
    // The logarithm is rounded to `f32` before the floor, as in the reference: a magnitude within rounding of
    // the next power of two counts as that power.
    let exponent = if largest > 0.0 { (f64::from(largest).log2() as f32).floor() + 125.0 } else { 0.0 };
    block[SCALE.offset] = exponent as u8;
    let scale = half_scale(block[SCALE.offset]);
    let codes = values.map(|value| closest(value, scale));
    pack_planes::<{ CODES.bits }, { CODES.run() }>(&codes, &mut block[CODES.range()]);
}

/// The first code with the least error.
pub(crate) fn closest(value: f32, scale: f32) -> u8 {
    let mut best = (f32::INFINITY, 0);
    for (code, level) in VALUES.iter().enumerate() {
        let error = (f32::from(*level) * scale - value).abs();
        if error < best.0 {
            best = (error, code as u8);
        }
    }
    best.1
}
