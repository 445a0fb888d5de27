//! Reading and writing the fields of a block.

use half::f16;

use crate::layout::BlockField;

/// A copy of the first `N` bytes of a field.
pub(crate) fn bytes_at<const N: usize>(block: &[u8], field: BlockField) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[field.range()][..N]);
    bytes
}

/// Writes the first bytes of a field.
pub(crate) fn put_bytes(block: &mut [u8], field: BlockField, bytes: &[u8]) {
    block[field.range()][..bytes.len()].copy_from_slice(bytes);
}

/// A 16-bit float.
pub(crate) fn f16_at(block: &[u8], field: BlockField) -> f32 {
    f16::from_le_bytes(bytes_at(block, field)).to_f32()
}

/// Stores `value` as a 16-bit float and returns what was stored.
pub(crate) fn put_f16(block: &mut [u8], field: BlockField, value: f32) -> f32 {
    let stored = f16::from_f32(value);
    put_bytes(block, field, &stored.to_le_bytes());
    stored.to_f32()
}

/// Makes a block that decodes to NaN: a NaN in its 16-bit scale, zeros elsewhere.
pub(crate) fn poison(block: &mut [u8], scale: BlockField) {
    block.fill(0);
    put_bytes(block, scale, &f16::NAN.to_le_bytes());
}

pub(crate) fn all_finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
}

/// A little-endian word of 16 bits.
pub(crate) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}
