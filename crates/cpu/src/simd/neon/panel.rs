//! Panels of weights in 8 bits with many rows of activations.

use std::arch::aarch64::*;

use super::{add_dots, load_16, store_16};
use crate::simd::activations::{Block, Tail, four_at, passes};
use crate::simd::product::PanelKind;

/// Rows of activations at a time: with more, sums would not stay in registers.
const TOKENS: usize = 4;

/// The products of two panels, of 16 rows each, with rows of signed activations: for each of these, 16 products with
/// the first panel and 16 with the second.
#[target_feature(enable = "neon,dotprod")]
pub(in crate::simd) fn panel<const B: usize>(
    kind: PanelKind,
    panels: [&[f32]; 2],
    acts: &[&[Block<B>]],
    out: &mut [[f32; 16]],
) {
    for (acts, out) in acts.chunks(TOKENS).zip(out.chunks_mut(2 * TOKENS)) {
        for (number, panel) in panels.into_iter().enumerate() {
            match *acts {
                [a] => rows(kind, panel, [a], &mut out[number..]),
                [a, b] => rows(kind, panel, [a, b], &mut out[number..]),
                [a, b, c] => rows(kind, panel, [a, b, c], &mut out[number..]),
                [a, b, c, d] => rows(kind, panel, [a, b, c, d], &mut out[number..]),
                _ => unreachable!("at most {TOKENS} rows"),
            }
        }
    }
}

/// The products of one panel, in every other place of `out`.
#[target_feature(enable = "neon,dotprod")]
fn rows<const T: usize, const B: usize>(
    kind: PanelKind,
    panel: &[f32],
    acts: [&[Block<B>]; T],
    out: &mut [[f32; 16]],
) {
    let run = kind.run;
    match (kind.min, kind.group) {
        (false, 32) => multiply::<T, B, false, 1, 10>(run, panel, acts, out),
        (true, 32) => multiply::<T, B, true, 1, 10>(run, panel, acts, out),
        (false, _) => multiply::<T, B, false, 2, 12>(run, panel, acts, out),
        (true, _) => multiply::<T, B, true, 2, 12>(run, panel, acts, out),
    }
}

/// `VECTORS` is what a panel holds for 32 elements: eight times 64 bytes of weights, twice as many for each of
/// `GROUPS`.
#[target_feature(enable = "neon,dotprod")]
fn multiply<const T: usize, const B: usize, const MIN: bool, const GROUPS: usize, const VECTORS: usize>(
    run: usize,
    panel: &[f32],
    acts: [&[Block<B>]; T],
    out: &mut [[f32; 16]],
) {
    let panels = panel.as_chunks::<16>().0.as_chunks::<VECTORS>().0;
    let acts = acts.map(|act| &act[..panels.len()]);
    let mut sums = [[vdupq_n_f32(0.0); 4]; T];
    let run = if GROUPS == 1 { 1 } else { run };
    for first in (0..panels.len()).step_by(run) {
        for group in 0..GROUPS {
            for number in first..panels.len().min(first + run) {
                let vectors = &panels[number];
                let mut products = [[vdupq_n_s32(0); 4]; T];
                for pass in 0..passes(B) {
                    if pass > 0 {
                        for products in products.as_flattened_mut() {
                            *products = vshlq_n_s32::<8>(*products);
                        }
                    }
                    for step in 8 / GROUPS * group..8 / GROUPS * (group + 1) {
                        let weights = load_16(&vectors[step]);
                        for (products, act) in products.iter_mut().zip(&acts) {
                            let four = vdupq_n_s32(four_at(&act[number], pass, 4 * step));
                            let four = vreinterpretq_s8_s32(four);
                            for (product, weights) in products.iter_mut().zip(weights) {
                                *product = add_dots(*product, vreinterpretq_s8_f32(weights), four);
                            }
                        }
                    }
                }
                let (scales, mins) = (load_16(&vectors[8 + 2 * group]), load_16(&vectors[9 + 2 * group]));
                for ((sums, products), act) in sums.iter_mut().zip(products).zip(&acts) {
                    let tail = Tail::of(&act[number]);
                    let all = vdupq_n_f32(tail.scaled_sum(group, GROUPS));
                    for quarter in 0..4 {
                        let factors = vmulq_n_f32(scales[quarter], tail.scale);
                        let product = vcvtq_f32_s32(products[quarter]);
                        sums[quarter] = vfmaq_f32(sums[quarter], product, factors);
                        if MIN {
                            sums[quarter] = vfmaq_f32(sums[quarter], mins[quarter], all);
                        }
                    }
                }
            }
        }
    }
    for (out, sums) in out.iter_mut().step_by(2).zip(sums) {
        store_16(out, sums);
    }
}
