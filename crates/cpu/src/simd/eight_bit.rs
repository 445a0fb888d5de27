//! Activations in 8 bits: blocks of 32 numbers with a scale, for products with quantised weights.

use super::widened;
use crate::isa::Isa;

/// Bytes of a block: 32 numbers and a tail of four words, the first of which is the scale.
///
/// *Signed* blocks hold the numbers as they are, and then the sums of all, of the first half and of the second.
/// *Biased* blocks, for instructions that multiply unsigned numbers with signed ones, hold the numbers plus 128, and
/// the sums (of the numbers themselves) times the scale. *Joint* blocks are biased, and every [`JOINT`] elements have
/// one scale.
pub(crate) const BLOCK_BYTES: usize = 48;

/// A block.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// How numbers are kept in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    Signed,
    Biased,
    Joint,
}

impl Numbers {
    /// Blocks with the same scale.
    pub(super) fn together(self) -> usize {
        if self == Numbers::Joint { JOINT / 32 } else { 1 }
    }

    /// What is added to numbers.
    pub(super) fn bias(self) -> i32 {
        if self == Numbers::Signed { 0 } else { 128 }
    }

    /// A sum of numbers as it is kept.
    pub(super) fn kept_sum(self, sum: i32, scale: f32) -> u32 {
        if self == Numbers::Signed { sum as u32 } else { (scale * sum as f32).to_bits() }
    }
}

/// Elements with the same scale in joint blocks.
pub(crate) const JOINT: usize = 256;

/// What follows the numbers of a signed block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) scale: f32,
    pub(super) sums: [i32; 3],
}

impl Tail {
    #[inline(always)]
    pub(super) fn signed(block: &Block) -> Tail {
        Tail { scale: scale(block), sums: [word_at(block, 36), word_at(block, 40), word_at(block, 44)] }
    }

    /// The sum of a group, of `groups` in the block.
    #[inline(always)]
    pub(super) fn sum(&self, group: usize, groups: usize) -> i32 {
        self.sums[if groups == 1 { 0 } else { 1 + group }]
    }
}

#[inline(always)]
pub(super) fn word_at(block: &Block, at: usize) -> i32 {
    i32::from_le_bytes(*block[at..].first_chunk().expect("four bytes of the block"))
}

#[inline(always)]
pub(super) fn float_at(block: &Block, at: usize) -> f32 {
    f32::from_bits(word_at(block, at) as u32)
}

#[inline(always)]
pub(super) fn scale(block: &Block) -> f32 {
    float_at(block, 32)
}

/// Rounds a row to 8 bits; `out` has a block for each 32 values. What would have NaN or an infinity as scale gets NaN.
pub(crate) fn quantize(isa: Isa, values: &[f32], numbers: Numbers, out: &mut [Block]) {
    debug_assert_eq!(values.len(), 32 * out.len());
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512 {
        // SAFETY: `quantize` asks for AVX-512; devices only have an `Isa` that the machine has.
        return unsafe { super::avx512::quantize(values, numbers, out) };
    }
    widened(isa, || {
        let values = values.as_chunks::<32>().0.chunks(numbers.together());
        for (values, blocks) in values.zip(out.chunks_mut(numbers.together())) {
            let (scale, inverse) = scale_and_inverse(largest(values.as_flattened()));
            for (values, block) in values.iter().zip(blocks) {
                quantize_block(values, scale, inverse, numbers, block);
            }
        }
    });
}

/// Adding and taking away this leaves a number rounded to an integer, in its low bits.
pub(super) const ROUND: f32 = 12_582_912.0;

/// The bits of the largest magnitude: they compare like magnitudes, and NaN and infinities are the largest.
#[inline(always)]
fn largest(values: &[f32]) -> u32 {
    values.iter().fold(0, |largest, value| (value.to_bits() & 0x7fff_ffff).max(largest))
}

/// The scale of numbers of which the largest is given by its bits, and what they are multiplied with before rounding.
#[inline(always)]
pub(super) fn scale_and_inverse(largest: u32) -> (f32, f32) {
    let inverse = 127.0 / f32::from_bits(largest);
    match largest < 0x7f80_0000 {
        true if inverse.is_finite() => (f32::from_bits(largest) / 127.0, inverse),
        // Too small to be told from 0.
        true => (0.0, 0.0),
        false => (f32::NAN, 0.0),
    }
}

#[inline(always)]
fn quantize_block(values: &[f32; 32], scale: f32, inverse: f32, numbers: Numbers, block: &mut Block) {
    let mut rounded = [0i32; 32];
    for (rounded, value) in rounded.iter_mut().zip(values) {
        let scaled = if scale.is_nan() { 0.0 } else { value * inverse };
        *rounded = (scaled + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
    }
    let half = |half: usize| rounded[16 * half..16 * half + 16].iter().sum::<i32>();
    let sums = [half(0) + half(1), half(0), half(1)];
    let (out, tail) = block.split_at_mut(32);
    for (out, rounded) in out.iter_mut().zip(&rounded) {
        *out = (rounded + numbers.bias()) as u8;
    }
    tail[..4].copy_from_slice(&scale.to_le_bytes());
    for (tail, sum) in tail[4..].as_chunks_mut::<4>().0.iter_mut().zip(sums) {
        *tail = numbers.kept_sum(sum, scale).to_le_bytes();
    }
}
