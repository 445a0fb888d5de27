//! Reading and writing the fields of a block.

use half::f16;

/// A copy of the `N` bytes at `at`.
pub(crate) fn bytes_at<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&block[at..at + N]);
    field
}

pub(crate) fn put_bytes(block: &mut [u8], at: usize, field: &[u8]) {
    block[at..at + field.len()].copy_from_slice(field);
}

/// The 16-bit float at `at`.
pub(crate) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes(bytes_at(block, at)).to_f32()
}

/// Stores `value` as a 16-bit float and returns what was stored.
pub(crate) fn put_f16(block: &mut [u8], at: usize, value: f32) -> f32 {
    let stored = f16::from_f32(value);
    put_bytes(block, at, &stored.to_le_bytes());
    stored.to_f32()
}

/// Makes a block that decodes to NaN: a NaN in the 16-bit scale at `scale_at`, zeros elsewhere.
pub(crate) fn poison(block: &mut [u8], scale_at: usize) {
    block.fill(0);
    put_bytes(block, scale_at, &f16::NAN.to_le_bytes());
}

pub(crate) fn all_finite(values: &[f32]) -> bool {
    values.iter().all(|value| value.is_finite())
}
