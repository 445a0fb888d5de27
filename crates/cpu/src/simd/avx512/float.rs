//! Products in F32.

use std::arch::x86_64::*;

use orlop_graph::DType;

use super::{load_32, load_bytes, load_f32, store_f32};

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

/// The sums of products of a row of weights with rows of activations. Only whole vectors: the caller adds what is
/// left of the rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(in crate::simd) fn dot_row<const T: usize>(dtype: DType, row: &[u8], acts: [&[[u8; 4]]; T]) -> [f32; T] {
    match dtype {
        DType::F16 => dots(row, acts, |from: &[u8; 32]| _mm512_cvtph_ps(load_32(from))),
        DType::BF16 => dots(row, acts, |from: &[u8; 32]| {
            _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32(from)), 16))
        }),
        _ => dots(row, acts, |from: &[u8; 64]| _mm512_castsi512_ps(load_bytes(from))),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn dots<const T: usize, const BYTES: usize>(
    row: &[u8],
    acts: [&[[u8; 4]]; T],
    load: impl Fn(&[u8; BYTES]) -> __m512,
) -> [f32; T] {
    let row = row.as_chunks::<BYTES>().0;
    let acts = acts.map(|act| &act.as_flattened().as_chunks::<64>().0[..row.len()]);
    let mut sums = [[_mm512_setzero_ps(); 4]; T];
    let mut k = 0;
    while k + 4 <= row.len() {
        for j in 0..4 {
            let weights = load(&row[k + j]);
            for (sums, act) in sums.iter_mut().zip(&acts) {
                sums[j] = _mm512_fmadd_ps(weights, _mm512_castsi512_ps(load_bytes(&act[k + j])), sums[j]);
            }
        }
        k += 4;
    }
    while k < row.len() {
        let weights = load(&row[k]);
        for (sums, act) in sums.iter_mut().zip(&acts) {
            sums[0] = _mm512_fmadd_ps(weights, _mm512_castsi512_ps(load_bytes(&act[k])), sums[0]);
        }
        k += 1;
    }
    let mut out = [0.0; T];
    for (out, sums) in out.iter_mut().zip(&sums) {
        let (a, b) = (_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
        *out = _mm512_reduce_add_ps(_mm512_add_ps(a, b));
    }
    out
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
