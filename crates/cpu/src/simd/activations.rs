//! Activations as integers: blocks of 32 numbers with a scale, for products with quantized weights.
//!
//! A number has 8 bits, or 16 in two bytes of which each meets the weights in a pass of its own: products with the upper
//! bytes, times 256, plus products with the lower ones. Sums of integers are exact, so they are the same in every loop.

use super::widened;
use crate::isa::Isa;

/// Bytes of what follows the numbers of a block: four words, of which the first is the scale.
const TAIL: usize = 16;
/// Bytes of a block of 8-bit numbers.
pub(crate) const BYTES_8: usize = 32 + TAIL;
/// Bytes of a block of 16-bit numbers: the upper bytes, the lower bytes, the tail.
pub(crate) const BYTES_16: usize = 2 * 32 + TAIL;

/// A block of 8-bit or 16-bit numbers, as its length says.
pub(crate) type Block<const B: usize> = [u8; B];

/// Bytes of a number, and so passes over weights.
pub(super) const fn passes(block_bytes: usize) -> usize {
    (block_bytes - TAIL) / 32
}

/// How numbers and their sums are kept in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// Both bytes are signed. The sums of all numbers, of the first half and of the second are integers.
    Signed,
    /// For instructions that multiply unsigned numbers with signed ones: numbers plus half their range, in unsigned bytes. Sums
    /// (of the numbers themselves) are floats, times the scale.
    Biased,
}

impl Numbers {
    /// A sum of numbers as it is kept.
    pub(super) fn kept_sum(self, sum: i32, scale: f32) -> u32 {
        if self == Numbers::Signed { sum as u32 } else { (scale * sum as f32).to_bits() }
    }

    /// The bytes of a number, upper and lower; one of 8 bits has the lower only.
    fn bytes(self, number: i32, passes: usize) -> [u8; 2] {
        match (self, passes) {
            (Numbers::Signed, _) => [((number + 128) >> 8) as u8, number as u8],
            (Numbers::Biased, 1) => [0, (number + 128) as u8],
            (Numbers::Biased, _) => [((number + 0x8000) >> 8) as u8, number as u8],
        }
    }
}

/// What follows the numbers of a signed block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) scale: f32,
    pub(super) sums: [i32; 3],
}

impl Tail {
    #[inline(always)]
    pub(super) fn signed<const B: usize>(block: &Block<B>) -> Tail {
        let at = B - TAIL;
        Tail {
            scale: scale(block),
            sums: [word_at(block, at + 4), word_at(block, at + 8), word_at(block, at + 12)],
        }
    }

    /// The sum of a group, of `groups` in the block.
    #[inline(always)]
    pub(super) fn sum(&self, group: usize, groups: usize) -> i32 {
        self.sums[if groups == 1 { 0 } else { 1 + group }]
    }
}

/// The bytes of four numbers that meet weights in a pass, the first of which is number `k`.
#[inline(always)]
pub(super) fn four_at<const B: usize>(block: &Block<B>, pass: usize, k: usize) -> i32 {
    word_at(block, 32 * pass + k)
}

#[inline(always)]
fn word_at<const B: usize>(block: &Block<B>, at: usize) -> i32 {
    i32::from_le_bytes(*block[at..].first_chunk().expect("four bytes of the block"))
}

#[inline(always)]
pub(super) fn scale<const B: usize>(block: &Block<B>) -> f32 {
    f32::from_bits(word_at(block, B - TAIL) as u32)
}

/// The sum of a group of a biased block, times the scale; there are `groups` in the block.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // others have signed blocks
pub(super) fn scaled_sum<const B: usize>(block: &Block<B>, group: usize, groups: usize) -> f32 {
    let word = if groups == 1 { 1 } else { 2 + group };
    f32::from_bits(word_at(block, B - TAIL + 4 * word) as u32)
}

/// The sum of a group of a signed block, times the scale; there are `groups` in the block.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // only AMX multiplies signed blocks with panels
pub(super) fn scaled_signed_sum<const B: usize>(block: &Block<B>, group: usize, groups: usize) -> f32 {
    let tail = Tail::signed(block);
    tail.scale * tail.sum(group, groups) as f32
}

/// Rounds a row; `out` has a block for each 32 values. What would have NaN or an infinity as scale gets NaN.
pub(crate) fn quantize<const B: usize>(isa: Isa, values: &[f32], numbers: Numbers, out: &mut [Block<B>]) {
    debug_assert_eq!(values.len(), 32 * out.len());
    #[cfg(target_arch = "x86_64")]
    if isa.vectors() == Isa::Avx512 {
        // SAFETY: `quantize` asks for AVX-512; devices only have an `Isa` that the machine has.
        return unsafe { super::avx512::quantize(values, numbers, out) };
    }
    widened(isa, || {
        for (values, block) in values.as_chunks::<32>().0.iter().zip(out) {
            let (scale, inverse) = scale_and_inverse(largest(values), largest_number(B));
            quantize_block(values, scale, inverse, numbers, block);
        }
    });
}

/// The largest number of a block: with its upper byte, 127 is the largest of both signs.
pub(super) const fn largest_number(block_bytes: usize) -> f32 {
    if passes(block_bytes) == 1 { 127.0 } else { 127.0 * 256.0 }
}

/// Adding and taking away this leaves a number rounded to an integer, in its low bits.
pub(super) const ROUND: f32 = 12_582_912.0;

/// The bits of the largest magnitude: they compare like magnitudes, and NaN and infinities are the largest.
#[inline(always)]
fn largest(values: &[f32]) -> u32 {
    values.iter().fold(0, |largest, value| (value.to_bits() & 0x7fff_ffff).max(largest))
}

/// The scale of values of which the largest is given by its bits, and what they are multiplied with before rounding.
#[inline(always)]
pub(super) fn scale_and_inverse(largest: u32, most: f32) -> (f32, f32) {
    let inverse = most / f32::from_bits(largest);
    match largest < 0x7f80_0000 {
        true if inverse.is_finite() => (f32::from_bits(largest) / most, inverse),
        // Too small to be told from 0.
        true => (0.0, 0.0),
        false => (f32::NAN, 0.0),
    }
}

#[inline(always)]
fn quantize_block<const B: usize>(
    values: &[f32; 32],
    scale: f32,
    inverse: f32,
    numbers: Numbers,
    block: &mut Block<B>,
) {
    let mut rounded = [0i32; 32];
    for (rounded, value) in rounded.iter_mut().zip(values) {
        let scaled = if scale.is_nan() { 0.0 } else { value * inverse };
        *rounded = (scaled + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
        // A lower byte of -128 has no opposite, which AVX2 may want.
        if passes(B) == 2 && *rounded & 255 == 128 {
            *rounded -= 1;
        }
    }
    let half = |half: usize| rounded[16 * half..16 * half + 16].iter().sum::<i32>();
    let sums = [half(0) + half(1), half(0), half(1)];
    let (out, tail) = block.split_at_mut(B - TAIL);
    for (pass, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (out, rounded) in out.iter_mut().zip(&rounded) {
            *out = numbers.bytes(*rounded, passes(B))[2 - passes(B) + pass];
        }
    }
    tail[..4].copy_from_slice(&scale.to_le_bytes());
    for (tail, sum) in tail[4..].as_chunks_mut::<4>().0.iter_mut().zip(sums) {
        *tail = numbers.kept_sum(sum, scale).to_le_bytes();
    }
}
