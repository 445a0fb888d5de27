//! Products in F32.

use std::arch::x86_64::*;

use orlop_graph::DType;

use super::{load_32, load_bytes, load_f32, store_f32};
use crate::simd::prefetch::prefetch_next;

/// The products of two panels of 16 rows each, element by element of all rows, with rows of activations: for each of
/// these, 16 products with the first panel and 16 with the second.
#[target_feature(enable = "avx512f")]
pub(in crate::simd) fn panel_f32<const T: usize>(
    panels: [&[[f32; 16]]; 2],
    acts: [&[[u8; 4]]; T],
    out: &mut [[f32; 16]],
) {
    let length = panels[0].len();
    let acts = acts.map(|act| &act[..length]);
    let b = &panels[1][..length];
    let mut sums = [[_mm512_setzero_ps(); T]; 2];
    for (k, a) in panels[0].iter().enumerate() {
        let weights = [load_f32(a), load_f32(&b[k])];
        for (t, act) in acts.iter().enumerate() {
            let value = _mm512_set1_ps(f32::from_le_bytes(act[k]));
            sums[0][t] = _mm512_fmadd_ps(weights[0], value, sums[0][t]);
            sums[1][t] = _mm512_fmadd_ps(weights[1], value, sums[1][t]);
        }
    }
    for (t, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate().take(T) {
        store_f32(&mut out[0], sums[0][t]);
        store_f32(&mut out[1], sums[1][t]);
    }
}

/// The sums of products of rows of weights, `bytes` long and one after the other, with rows of activations: `out` has a row
/// for each of these. Only whole vectors: the caller adds what is left of the rows. What lies `ahead` rows further, if that
/// is not 0, is fetched meanwhile.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::simd) fn dot_rows<const T: usize, const N: usize>(
    dtype: DType,
    rows: &[u8],
    bytes: usize,
    acts: [&[[u8; 4]]; T],
    ahead: usize,
    out: &mut [[f32; N]],
) {
    match dtype {
        DType::F16 => dots(rows, bytes, acts, ahead, out, |from: &[u8; 32]| _mm512_cvtph_ps(load_32(from))),
        DType::BF16 => dots(rows, bytes, acts, ahead, out, |from: &[u8; 32]| {
            _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32(from)), 16))
        }),
        _ => dots(rows, bytes, acts, ahead, out, |from: &[u8; 64]| _mm512_castsi512_ps(load_bytes(from))),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn dots<const T: usize, const N: usize, const BYTES: usize>(
    rows: &[u8],
    bytes: usize,
    acts: [&[[u8; 4]]; T],
    ahead: usize,
    out: &mut [[f32; N]],
    load: impl Fn(&[u8; BYTES]) -> __m512,
) {
    let vectors = bytes / BYTES;
    let acts = acts.map(|act| &act.as_flattened().as_chunks::<64>().0[..vectors]);
    for (number, four) in rows.chunks(4 * bytes).enumerate() {
        let row = |place: usize| &four[place * bytes..][..bytes].as_chunks::<BYTES>().0[..vectors];
        let count = four.len() / bytes;
        let mut sums = [[_mm512_setzero_ps(); 4]; T];
        if T > 2 && count == 4 {
            for place in [0, 2] {
                // Two rows at once are no stream that the processor would know.
                let ahead = (ahead > 0).then(|| four.as_ptr().wrapping_add((ahead + place) * bytes));
                let two = block([row(place), row(place + 1)], acts, ahead, &load);
                for (sums, two) in sums.iter_mut().zip(two) {
                    sums[place..place + 2].copy_from_slice(&two);
                }
            }
        } else {
            // One row after the other, as memory likes it.
            for place in 0..count {
                for (sums, act) in sums.iter_mut().zip(&acts) {
                    sums[place] = dot(row(place), act, &load);
                }
            }
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            store_four(&mut out.as_chunks_mut().0[number], sums);
        }
    }
}

/// Lanes whose sums are the products of two rows of vectors with some others, as [`dot`] gives them; as many bytes are
/// fetched from `ahead` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn block<const T: usize, const BYTES: usize>(
    rows: [&[[u8; BYTES]]; 2],
    acts: [&[[u8; 64]]; T],
    ahead: Option<*const u8>,
    load: &impl Fn(&[u8; BYTES]) -> __m512,
) -> [[__m512; 2]; T] {
    let mut sums = [[[_mm512_setzero_ps(); 2]; T]; 2];
    let vectors = rows[0].len();
    let (rows, acts) = (rows.map(|row| &row[..vectors]), acts.map(|act| &act[..vectors]));
    for k in (0..vectors).step_by(2) {
        if let Some(ahead) = ahead {
            prefetch_next(ahead.wrapping_add(2 * BYTES * k), 4 * BYTES);
        }
        for turn in 0..2.min(vectors - k) {
            let weights = rows.map(|row| load(&row[k + turn]));
            for (sums, act) in sums[turn].iter_mut().zip(acts) {
                let act = _mm512_castsi512_ps(load_bytes(&act[k + turn]));
                for (sum, weights) in sums.iter_mut().zip(weights) {
                    *sum = _mm512_fmadd_ps(weights, act, *sum);
                }
            }
        }
    }
    let mut total = sums[0];
    for (total, more) in total.as_flattened_mut().iter_mut().zip(sums[1].as_flattened()) {
        *total = _mm512_add_ps(*total, *more);
    }
    total
}

/// Lanes whose sum is the product of two rows of vectors: those of even vectors, plus those of odd ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn dot<const BYTES: usize>(
    mut row: &[[u8; BYTES]],
    mut act: &[[u8; 64]],
    load: &impl Fn(&[u8; BYTES]) -> __m512,
) -> __m512 {
    let mut sums = [_mm512_setzero_ps(); 2];
    macro_rules! add {
        ($count:literal: $($two:literal)*) => {
            if let (Some((now, later)), Some((with, rest))) =
                (row.split_first_chunk::<$count>(), act.split_first_chunk::<$count>())
            {
                $(
                    for j in 0..2 {
                        let act = _mm512_castsi512_ps(load_bytes(&with[2 * $two + j]));
                        sums[j] = _mm512_fmadd_ps(load(&now[2 * $two + j]), act, sums[j]);
                    }
                )*
                (row, act) = (later, rest);
            }
        };
    }
    // The end of a longer loop is guessed wrong in every row, and what was read ahead is lost with it.
    while row.len() >= 32 {
        add!(32: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
    add!(16: 0 1 2 3 4 5 6 7);
    add!(8: 0 1 2 3);
    add!(4: 0 1);
    add!(2: 0);
    if let ([now], [with]) = (row, act) {
        sums[0] = _mm512_fmadd_ps(load(now), _mm512_castsi512_ps(load_bytes(with)), sums[0]);
    }
    _mm512_add_ps(sums[0], sums[1])
}

/// Stores the sums of the lanes of four vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn store_four(out: &mut [f32; 4], [a, b, c, d]: [__m512; 4]) {
    let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    let low = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
    let high = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
    let quarters = _mm512_add_ps(low, high);
    let halves = _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps::<1>(quarters));
    let sums = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
    // SAFETY: `_mm_storeu_ps` asks for room for four floats, which `out` is.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
}

/// Sixteen rows of sixteen floats become sixteen columns: `out[k][row]` is `rows[row][k]`.
#[target_feature(enable = "avx512f,avx512dq")]
pub(in crate::simd) fn transpose(rows: [&[f32; 16]; 16], out: &mut [[f32; 16]; 16]) {
    let mut loaded = [_mm512_setzero_ps(); 16];
    for (loaded, row) in loaded.iter_mut().zip(rows) {
        *loaded = load_f32(row);
    }
    let rows = loaded;
    // Pairs of rows, then of pairs, within lanes of four floats.
    let mut pairs = [_mm512_setzero_ps(); 16];
    for i in 0..8 {
        pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    let mut fours = [_mm512_setzero_ps(); 16];
    for i in 0..4 {
        let (a, b) = (_mm512_castps_pd(pairs[4 * i]), _mm512_castps_pd(pairs[4 * i + 1]));
        let (c, d) = (_mm512_castps_pd(pairs[4 * i + 2]), _mm512_castps_pd(pairs[4 * i + 3]));
        fours[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        fours[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        fours[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        fours[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    // `fours[4 * i + j]` has, in lane `l`, column `4 * l + j` of rows `4 * i..`; lanes are exchanged.
    for j in 0..4 {
        let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
        let (low, high) = (_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0x44>(c, d));
        let (low2, high2) = (_mm512_shuffle_f32x4::<0xee>(a, b), _mm512_shuffle_f32x4::<0xee>(c, d));
        store_f32(&mut out[j], _mm512_shuffle_f32x4::<0x88>(low, high));
        store_f32(&mut out[4 + j], _mm512_shuffle_f32x4::<0xdd>(low, high));
        store_f32(&mut out[8 + j], _mm512_shuffle_f32x4::<0x88>(low2, high2));
        store_f32(&mut out[12 + j], _mm512_shuffle_f32x4::<0xdd>(low2, high2));
    }
}
