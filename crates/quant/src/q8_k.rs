//! Q8_K: 256 elements, `scale * q` with 8-bit `q` and a 32-bit scale, with sums of every 16 integers.

use crate::fields::{all_finite, bytes_at, put_bytes};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{extreme, nearest};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::Q8_K;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);
const SUMS: BlockField = LAYOUT.field(FieldRole::Sums);

/// The integers to multiply with the scale.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    bytes_at(block, CODES).map(|byte: u8| byte as i8)
}

/// The sums of every 16 integers.
pub fn sums(block: &[u8; BYTES]) -> [i16; 16] {
    let sums = block[SUMS.range()].as_chunks().0;
    std::array::from_fn(|group| i16::from_le_bytes(sums[group]))
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f32::from_le_bytes(bytes_at(block, SCALE));
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block. The value of largest magnitude becomes -127, whatever its sign.
///
/// Blocks whose largest magnitude is below about `4e-37` have no finite inverse scale and become zeros.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    block.fill(0);
    if !all_finite(values) {
        return put_bytes(block, SCALE, &f32::NAN.to_le_bytes());
    }
    let inverse = -127.0 / extreme(values);
    if !inverse.is_finite() {
        return;
    }
    put_bytes(block, SCALE, &(1.0 / inverse).to_le_bytes());
    let quants = values.map(|value| nearest(value * inverse, -127.0, 127.0) as i8);
    put_bytes(block, CODES, &quants.map(|q| q as u8));
    let sums = block[SUMS.range()].as_chunks_mut::<2>().0;
    for (out, quants) in sums.iter_mut().zip(quants.chunks_exact(16)) {
        *out = quants.iter().map(|q| i16::from(*q)).sum::<i16>().to_le_bytes();
    }
}
