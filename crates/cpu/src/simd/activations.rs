//! Activations as integers: blocks of 32 numbers with a scale, for products with quantized weights.
//!
//! A number has 8 bits, or 16 in two bytes of which each meets the weights in a pass of its own: products with the upper
//! bytes, times 256, plus products with the lower ones. Sums of integers are exact, so they are the same in every loop.

use super::widened;
use crate::isa::Isa;

/// Bytes of what follows the numbers of a block: see [`Tail`].
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

/// The bytes of a number, upper and lower, both of them signed; one of 8 bits has the lower only.
fn bytes_of(number: i32) -> [u8; 2] {
    [((number + 128) >> 8) as u8, number as u8]
}

/// What follows the numbers of a block: the starts of all numbers and of the first half, the scaled sum of all, and the scale.
/// A start is -128 times a sum: products with weights that are too large by 128 begin there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) scale: f32,
    scaled_sum: f32,
    starts: [i32; 2],
}

impl Tail {
    #[inline(always)]
    pub(super) fn of<const B: usize>(block: &Block<B>) -> Tail {
        let word = |number: usize| word_at(block, B - TAIL + 4 * number);
        let float = |number: usize| f32::from_bits(word(number) as u32);
        Tail { scale: float(3), scaled_sum: float(2), starts: [word(0), word(1)] }
    }

    /// The bytes of the tail, after numbers whose halves have these sums.
    #[inline(always)]
    pub(super) fn bytes(scale: f32, [first, second]: [i32; 2]) -> [[u8; 4]; 4] {
        let all = first + second;
        let [start, first_start] = [all, first].map(|sum| (-128 * sum).to_le_bytes());
        [start, first_start, (scale * all as f32).to_le_bytes(), scale.to_le_bytes()]
    }

    /// The start of a group, of `groups` in the block.
    #[inline(always)]
    pub(super) fn start(&self, group: usize, groups: usize) -> i32 {
        let [all, first] = self.starts;
        match (groups, group) {
            (1, _) => all,
            (_, 0) => first,
            _ => all - first,
        }
    }

    /// The sum of a group.
    #[inline(always)]
    pub(super) fn sum(&self, group: usize, groups: usize) -> i32 {
        -(self.start(group, groups) >> 7)
    }

    /// The sum of a group, times the scale.
    #[inline(always)]
    pub(super) fn scaled_sum(&self, group: usize, groups: usize) -> f32 {
        if groups == 1 { self.scaled_sum } else { self.scale * self.sum(group, groups) as f32 }
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

/// Rounds a row; `out` has a block for each 32 values. What would have NaN or an infinity as scale gets NaN.
pub(crate) fn quantize<const B: usize>(isa: Isa, values: &[f32], out: &mut [Block<B>]) {
    debug_assert_eq!(values.len(), 32 * out.len());
    #[cfg(target_arch = "x86_64")]
    if isa.vectors() == Isa::Avx512 {
        // SAFETY: `quantize` asks for AVX-512; devices only have an `Isa` that the machine has.
        return unsafe { super::avx512::quantize(values, out) };
    }
    widened(isa, || {
        for (values, block) in values.as_chunks::<32>().0.iter().zip(out) {
            let (scale, inverse) = scale_and_inverse(largest(values), largest_number(B));
            quantize_block(values, scale, inverse, block);
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
fn quantize_block<const B: usize>(values: &[f32; 32], scale: f32, inverse: f32, block: &mut Block<B>) {
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
    let sums = [half(0), half(1)];
    let (out, tail) = block.split_at_mut(B - TAIL);
    for (pass, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (out, rounded) in out.iter_mut().zip(&rounded) {
            *out = bytes_of(*rounded)[2 - passes(B) + pass];
        }
    }
    tail.copy_from_slice(Tail::bytes(scale, sums).as_flattened());
}
