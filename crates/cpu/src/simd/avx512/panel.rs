//! Panels of weights in 8 bits with many rows of activations.

use std::arch::x86_64::*;

use super::{four, load_f32, store_f32};
use crate::simd::activations::{Block, Tail, passes};
use crate::simd::prefetch::Ahead;
use crate::simd::product::PanelKind;

/// Rows of activations at a time: with more, sums would not stay in registers.
const TOKENS: usize = 6;

/// The products of two panels, of 16 rows each, with rows of activations: for each of these, 16 products with the
/// first panel and 16 with the second. Meanwhile, `ahead` is fetched: loads have little else to do.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(in crate::simd) fn panel<const B: usize>(
    kind: PanelKind,
    panels: [&[f32]; 2],
    acts: &[&[Block<B>]],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    let chunks = acts.len().div_ceil(TOKENS).max(1);
    let each = acts.len().div_ceil(chunks).max(1);
    let mut ahead = ahead.chunks(ahead.len().div_ceil(chunks).max(1));
    for (acts, out) in acts.chunks(each).zip(out.chunks_mut(2 * each)) {
        let ahead = ahead.next().unwrap_or_default();
        match *acts {
            [a] => rows(kind, panels, [a], ahead, out),
            [a, b] => rows(kind, panels, [a, b], ahead, out),
            [a, b, c] => rows(kind, panels, [a, b, c], ahead, out),
            [a, b, c, d] => rows(kind, panels, [a, b, c, d], ahead, out),
            [a, b, c, d, e] => rows(kind, panels, [a, b, c, d, e], ahead, out),
            [a, b, c, d, e, f] => rows(kind, panels, [a, b, c, d, e, f], ahead, out),
            _ => unreachable!("at most {TOKENS} rows"),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn rows<const T: usize, const B: usize>(
    PanelKind { min, group, run, .. }: PanelKind,
    panels: [&[f32]; 2],
    acts: [&[Block<B>]; T],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    match (min, group) {
        (false, 32) => multiply::<T, B, false, 1, 10>(run, panels, acts, ahead, out),
        (true, 32) => multiply::<T, B, true, 1, 10>(run, panels, acts, ahead, out),
        (false, _) => multiply::<T, B, false, 2, 12>(run, panels, acts, ahead, out),
        (true, _) => multiply::<T, B, true, 2, 12>(run, panels, acts, ahead, out),
    }
}

/// `VECTORS` is what a panel holds for 32 elements: eight vectors of weights, two for each of `GROUPS`. Weights are too large
/// by 128, which starts make up for; those of groups with minima have no sign, and are what they are.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn multiply<const T: usize, const B: usize, const MIN: bool, const GROUPS: usize, const VECTORS: usize>(
    run: usize,
    panels: [&[f32]; 2],
    acts: [&[Block<B>]; T],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    let [a, b] = panels.map(|panel| panel.as_chunks::<16>().0.as_chunks::<VECTORS>().0);
    let count = a.len();
    let mut ahead = Ahead::new(ahead, count);
    // Closures in loops may stay calls, so there are none.
    let (b, acts) = (&b[..count], acts.map(|act| &act[..count]));
    let mut sums = [[_mm512_setzero_ps(); T]; 2];
    let run = if GROUPS == 1 { 1 } else { run };
    for first in (0..count).step_by(run) {
        for group in 0..GROUPS {
            for number in first..count.min(first + run) {
                if group == 0 {
                    ahead.fetch();
                }
                let (a, b) = (&a[number], &b[number]);
                let mut products = [[_mm512_setzero_si512(); T]; 2];
                for pass in 0..passes(B) {
                    for (t, act) in acts.iter().enumerate() {
                        let start = _mm512_set1_epi32(Tail::of(&act[number]).start(group, GROUPS));
                        for products in &mut products {
                            if pass > 0 {
                                products[t] = _mm512_slli_epi32::<8>(products[t]);
                            }
                            if !MIN && pass + 1 == passes(B) {
                                products[t] = _mm512_add_epi32(products[t], start);
                            }
                        }
                    }
                    for step in 8 / GROUPS * group..8 / GROUPS * (group + 1) {
                        let first = _mm512_castps_si512(load_f32(&a[step]));
                        let second = _mm512_castps_si512(load_f32(&b[step]));
                        for (t, act) in acts.iter().enumerate() {
                            let four = four(&act[number], pass, 4 * step);
                            products[0][t] = _mm512_dpbusd_epi32(products[0][t], first, four);
                            products[1][t] = _mm512_dpbusd_epi32(products[1][t], second, four);
                        }
                    }
                }
                for (panel, vectors) in [a, b].into_iter().enumerate() {
                    let (scales, mins) =
                        (load_f32(&vectors[8 + 2 * group]), load_f32(&vectors[9 + 2 * group]));
                    for (t, act) in acts.iter().enumerate() {
                        let product = _mm512_cvtepi32_ps(products[panel][t]);
                        let tail = Tail::of(&act[number]);
                        let scale = _mm512_set1_ps(tail.scale);
                        let sum = &mut sums[panel][t];
                        *sum = _mm512_fmadd_ps(product, _mm512_mul_ps(scales, scale), *sum);
                        if MIN {
                            let all = _mm512_set1_ps(tail.scaled_sum(group, GROUPS));
                            *sum = _mm512_fmadd_ps(mins, all, *sum);
                        }
                    }
                }
            }
        }
    }
    for (t, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate().take(T) {
        store_f32(&mut out[0], sums[0][t]);
        store_f32(&mut out[1], sums[1][t]);
    }
}
