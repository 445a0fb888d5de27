//! Panels of weights in 8 bits with many rows of activations.

use std::arch::x86_64::*;

use super::{load, store_16};
use crate::simd::activations::{Block, Tail, four_at, passes};
use crate::simd::product::PanelKind;

/// Rows of activations at a time: with more, sums would not stay in registers.
const TOKENS: usize = 3;

/// The products of two panels, of 16 rows each, with rows of signed activations: for each of these, 16 products with
/// the first panel and 16 with the second.
#[target_feature(enable = "avx2,fma")]
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
                _ => unreachable!("at most {TOKENS} rows"),
            }
        }
    }
}

/// The products of one panel, in every other place of `out`.
#[target_feature(enable = "avx2,fma")]
fn rows<const T: usize, const B: usize>(
    kind: PanelKind,
    panel: &[f32],
    acts: [&[Block<B>]; T],
    out: &mut [[f32; 16]],
) {
    let run = kind.run;
    match (kind.min, kind.group) {
        (false, 16) if kind.largest_code > 63 => {
            multiply::<T, B, false, true, 2, 12, 1>(run, 0, panel, acts, out)
        }
        (_, 32) if kind.largest_code > 63 => {
            multiply::<T, B, false, true, 1, 10, 1>(run, 0, panel, acts, out)
        }
        (false, 32) if kind.largest_code < 16 => {
            multiply::<T, B, false, false, 1, 10, 8>(run, kind.bias, panel, acts, out)
        }
        (true, 32) if kind.largest_code < 16 => {
            multiply::<T, B, true, false, 1, 10, 8>(run, kind.bias, panel, acts, out)
        }
        (false, 32) => multiply::<T, B, false, false, 1, 10, 4>(run, kind.bias, panel, acts, out),
        (true, 32) => multiply::<T, B, true, false, 1, 10, 4>(run, kind.bias, panel, acts, out),
        (false, _) => multiply::<T, B, false, true, 2, 12, 4>(run, 0, panel, acts, out),
        (true, _) => multiply::<T, B, true, false, 2, 12, 4>(run, kind.bias, panel, acts, out),
    }
}

/// `VECTORS` is what a panel holds for 32 elements: eight vectors of weights, two for each of `GROUPS`. `SUMS` sums of
/// two products fit 16 bits: of codes below 16 eight, of those below 32 four. `SIGNED` weights are multiplied as they
/// are: one sum fits, or four if they are in `-32..=32`.
#[target_feature(enable = "avx2,fma")]
fn multiply<
    const T: usize,
    const B: usize,
    const MIN: bool,
    const SIGNED: bool,
    const GROUPS: usize,
    const VECTORS: usize,
    const SUMS: usize,
>(
    run: usize,
    offset: i32,
    panel: &[f32],
    acts: [&[Block<B>]; T],
    out: &mut [[f32; 16]],
) {
    let panels = panel.as_chunks::<8>().0.as_chunks::<2>().0.as_chunks::<VECTORS>().0;
    let acts = acts.map(|act| &act[..panels.len()]);
    let (up, ones) = (_mm256_set1_epi8(offset as i8), _mm256_set1_epi16(1));
    let mut sums = [[_mm256_setzero_ps(); 2]; T];
    let run = if GROUPS == 1 { 1 } else { run };
    for first in (0..panels.len()).step_by(run) {
        for group in 0..GROUPS {
            for number in first..panels.len().min(first + run) {
                let vectors = &panels[number];
                let mut products = [[_mm256_setzero_si256(); 2]; T];
                for pass in 0..passes(B) {
                    if pass > 0 {
                        for products in products.as_flattened_mut() {
                            *products = _mm256_slli_epi32::<8>(*products);
                        }
                    }
                    for span in 0..8 / GROUPS / SUMS {
                        let mut pairs = [[_mm256_setzero_si256(); 2]; T];
                        for step in 0..SUMS {
                            let step = 8 / GROUPS * group + SUMS * span + step;
                            let weights = [
                                _mm256_castps_si256(load(&vectors[step][0])),
                                _mm256_castps_si256(load(&vectors[step][1])),
                            ];
                            let mut codes = weights;
                            for codes in &mut codes {
                                *codes = match SIGNED {
                                    true => _mm256_abs_epi8(*codes),
                                    false => _mm256_add_epi8(*codes, up),
                                };
                            }
                            for t in 0..T {
                                let four = _mm256_set1_epi32(four_at(&acts[t][number], pass, 4 * step));
                                for half in 0..2 {
                                    // Signs go to the activations.
                                    let four =
                                        if SIGNED { _mm256_sign_epi8(four, weights[half]) } else { four };
                                    let two = _mm256_maddubs_epi16(codes[half], four);
                                    pairs[t][half] = _mm256_add_epi16(pairs[t][half], two);
                                }
                            }
                        }
                        for t in 0..T {
                            for half in 0..2 {
                                let fours = _mm256_madd_epi16(pairs[t][half], ones);
                                products[t][half] = _mm256_add_epi32(products[t][half], fours);
                            }
                        }
                    }
                }
                let at = 8 + 2 * group;
                for t in 0..T {
                    let tail = Tail::of(&acts[t][number]);
                    let all = tail.sum(group, GROUPS);
                    let more = _mm256_set1_epi32(if SIGNED { 0 } else { offset * all });
                    for half in 0..2 {
                        let factors = _mm256_mul_ps(load(&vectors[at][half]), _mm256_set1_ps(tail.scale));
                        let product = _mm256_cvtepi32_ps(_mm256_sub_epi32(products[t][half], more));
                        sums[t][half] = _mm256_fmadd_ps(product, factors, sums[t][half]);
                        if MIN {
                            let all = _mm256_set1_ps(tail.scaled_sum(group, GROUPS));
                            sums[t][half] = _mm256_fmadd_ps(load(&vectors[at + 1][half]), all, sums[t][half]);
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
