//! Q8_K: 256 elements, `scale * q` with 8-bit `q` and a 32-bit scale, with sums of every 16 integers.

use crate::fields::{all_finite, bytes_at, put_bytes};
use crate::search::{extreme, nearest};

/// Elements of one block.
pub const ELEMENTS: usize = 256;
/// Bytes of one block.
pub const BYTES: usize = 292;
/// Offset of the scale, a 32-bit float.
pub const SCALE_AT: usize = 0;
/// Offset of the 256 signed bytes.
pub const QUANTS_AT: usize = 4;
/// Offset of 16 little-endian 16-bit sums of 16 integers each. Decoding does not read them.
pub const SUMS_AT: usize = 260;

/// The integers to multiply with the scale.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    bytes_at(block, QUANTS_AT).map(|byte: u8| byte as i8)
}

/// The sums of every 16 integers.
pub fn sums(block: &[u8; BYTES]) -> [i16; 16] {
    std::array::from_fn(|group| i16::from_le_bytes(bytes_at(block, SUMS_AT + 2 * group)))
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f32::from_le_bytes(bytes_at(block, SCALE_AT));
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block. The value of largest magnitude becomes -127, whatever its sign.
///
/// Blocks whose largest magnitude is below about `4e-37` have no finite inverse scale and become zeros.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    block.fill(0);
    if !all_finite(values) {
        return put_bytes(block, SCALE_AT, &f32::NAN.to_le_bytes());
    }
    let inverse = -127.0 / extreme(values);
    if !inverse.is_finite() {
        return;
    }
    put_bytes(block, SCALE_AT, &(1.0 / inverse).to_le_bytes());
    let quants = values.map(|value| nearest(value * inverse, -127.0, 127.0) as i8);
    put_bytes(block, QUANTS_AT, &quants.map(|q| q as u8));
    for (group, quants) in quants.chunks_exact(16).enumerate() {
        let sum: i16 = quants.iter().map(|q| i16::from(*q)).sum();
        put_bytes(block, SUMS_AT + 2 * group, &sum.to_le_bytes());
    }
}
