//! Panels of weights in 8 bits with many rows of activations.

use std::arch::x86_64::*;

use super::{JOINT_VECTORS, four, load_f32, store_f32};
use crate::simd::eight_bit::{Block, JOINT, Numbers, float_at, scale};
use crate::simd::prefetch::Ahead;
use crate::simd::product::PanelKind;

/// Rows of activations at a time: with more, sums would not stay in registers.
const TOKENS: usize = 6;

/// The products of two panels, of 16 rows each, with rows of biased or joint activations: for each of these, 16 products with
/// the first panel and 16 with the second. Meanwhile, `ahead` is fetched: loads have little else to do.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(in crate::simd) fn panel(
    numbers: Numbers,
    kind: PanelKind,
    panels: [&[f32]; 2],
    acts: &[&[Block]],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    let chunks = acts.len().div_ceil(TOKENS).max(1);
    let each = acts.len().div_ceil(chunks).max(1);
    let mut ahead = ahead.chunks(ahead.len().div_ceil(chunks).max(1));
    for (acts, out) in acts.chunks(each).zip(out.chunks_mut(2 * each)) {
        let ahead = ahead.next().unwrap_or_default();
        match *acts {
            [a] => rows(numbers, kind, panels, [a], ahead, out),
            [a, b] => rows(numbers, kind, panels, [a, b], ahead, out),
            [a, b, c] => rows(numbers, kind, panels, [a, b, c], ahead, out),
            [a, b, c, d] => rows(numbers, kind, panels, [a, b, c, d], ahead, out),
            [a, b, c, d, e] => rows(numbers, kind, panels, [a, b, c, d, e], ahead, out),
            [a, b, c, d, e, f] => rows(numbers, kind, panels, [a, b, c, d, e, f], ahead, out),
            _ => unreachable!("at most {TOKENS} rows"),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn rows<const T: usize>(
    numbers: Numbers,
    PanelKind { min, group, .. }: PanelKind,
    panels: [&[f32]; 2],
    acts: [&[Block]; T],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    match (numbers, min, group) {
        (Numbers::Joint, ..) => multiply_jointly(panels, acts, ahead, out),
        (_, false, 32) => multiply::<T, false, 1, 11>(panels, acts, ahead, out),
        (_, true, 32) => multiply::<T, true, 1, 11>(panels, acts, ahead, out),
        (_, false, _) => multiply::<T, false, 2, 14>(panels, acts, ahead, out),
        (_, true, _) => multiply::<T, true, 2, 14>(panels, acts, ahead, out),
    }
}

/// `VECTORS` is what a panel holds for 32 elements: eight vectors of weights, three for each of `GROUPS`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn multiply<const T: usize, const MIN: bool, const GROUPS: usize, const VECTORS: usize>(
    panels: [&[f32]; 2],
    acts: [&[Block]; T],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    let [a, b] = panels.map(|panel| panel.as_chunks::<16>().0.as_chunks::<VECTORS>().0);
    let mut ahead = Ahead::new(ahead, a.len());
    // Closures in loops may stay calls, so there are none.
    let acts = acts.map(|act| &act[..a.len()]);
    let mut sums = [[_mm512_setzero_ps(); T]; 2];
    for (number, (a, b)) in a.iter().zip(b).enumerate() {
        ahead.fetch();
        // What the first of two groups gives, to be scaled with the second's.
        let mut parts = [[_mm512_setzero_ps(); T]; 2];
        for group in 0..GROUPS {
            let tail = 8 + 3 * group;
            let mut products =
                [[_mm512_castps_si512(load_f32(&a[tail])); T], [_mm512_castps_si512(load_f32(&b[tail])); T]];
            for step in 8 / GROUPS * group..8 / GROUPS * (group + 1) {
                let first = _mm512_castps_si512(load_f32(&a[step]));
                let second = _mm512_castps_si512(load_f32(&b[step]));
                for (t, act) in acts.iter().enumerate() {
                    let four = four(&act[number], 4 * step);
                    products[0][t] = _mm512_dpbusd_epi32(products[0][t], four, first);
                    products[1][t] = _mm512_dpbusd_epi32(products[1][t], four, second);
                }
            }
            for (panel, vectors) in [a, b].into_iter().enumerate() {
                let (scales, mins) = (load_f32(&vectors[tail + 1]), load_f32(&vectors[tail + 2]));
                for (t, act) in acts.iter().enumerate() {
                    let product = _mm512_cvtepi32_ps(products[panel][t]);
                    let (sum, scale) = (&mut sums[panel][t], _mm512_set1_ps(scale(&act[number])));
                    if group + 1 < GROUPS {
                        parts[panel][t] = _mm512_mul_ps(product, scales);
                    } else if GROUPS > 1 {
                        *sum =
                            _mm512_fmadd_ps(_mm512_fmadd_ps(product, scales, parts[panel][t]), scale, *sum);
                    } else {
                        *sum = _mm512_fmadd_ps(product, _mm512_mul_ps(scales, scale), *sum);
                    }
                    if MIN {
                        let at = if GROUPS == 1 { 36 } else { 40 + 4 * group };
                        let all = _mm512_set1_ps(float_at(&act[number], at));
                        *sum = _mm512_fmadd_ps(mins, all, *sum);
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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn multiply_jointly<const T: usize>(
    panels: [&[f32]; 2],
    acts: [&[Block]; T],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    let [a, b] = panels.map(|panel| panel.as_chunks::<16>().0.as_chunks::<JOINT_VECTORS>().0);
    let mut sums = [[_mm512_setzero_ps(); T]; 2];
    let acts = acts.map(|act| act.as_chunks::<{ JOINT / 32 }>().0);
    // Closures in loops may stay calls, so there are none.
    let count = acts[0].len();
    let acts = acts.map(|act| &act[..count]);
    let mut ahead = Ahead::new(ahead, count);
    for (number, (a, b)) in a.iter().zip(b).enumerate().take(count) {
        ahead.fetch();
        let mut products =
            [[_mm512_castps_si512(load_f32(&a[0])); T], [_mm512_castps_si512(load_f32(&b[0])); T]];
        for block in 0..JOINT / 32 {
            let (a, b) = (&a[1 + 8 * block..][..8], &b[1 + 8 * block..][..8]);
            for step in 0..8 {
                let first = _mm512_castps_si512(load_f32(&a[step]));
                let second = _mm512_castps_si512(load_f32(&b[step]));
                for (t, act) in acts.iter().enumerate() {
                    let four = four(&act[number][block], 4 * step);
                    products[0][t] = _mm512_dpbusd_epi32(products[0][t], four, first);
                    products[1][t] = _mm512_dpbusd_epi32(products[1][t], four, second);
                }
            }
        }
        for (panel, vectors) in [a, b].into_iter().enumerate() {
            let scales = load_f32(&vectors[JOINT_VECTORS - 1]);
            for (t, act) in acts.iter().enumerate() {
                let scale = _mm512_mul_ps(scales, _mm512_set1_ps(scale(&act[number][0])));
                let product = _mm512_cvtepi32_ps(products[panel][t]);
                sums[panel][t] = _mm512_fmadd_ps(product, scale, sums[panel][t]);
            }
        }
    }
    for (t, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate().take(T) {
        store_f32(&mut out[0], sums[0][t]);
        store_f32(&mut out[1], sums[1][t]);
    }
}
