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
    if T > 2 {
        for (number, two) in rows.chunks(2 * bytes).enumerate() {
            let (first, second) = two.split_at(bytes);
            let first = &first.as_chunks::<BYTES>().0[..vectors];
            // An odd row's product with itself is not used.
            let second = if second.is_empty() { first } else { &second.as_chunks::<BYTES>().0[..vectors] };
            // Two rows at once are no stream that the processor would know.
            let ahead = (ahead > 0).then(|| two.as_ptr().wrapping_add(ahead * bytes));
            block([first, second], acts, ahead, &load, number, out);
        }
        return;
    }
    for (number, four) in rows.chunks(4 * bytes).enumerate() {
        let mut sums = [[_mm512_setzero_ps(); 4]; T];
        // One row after the other, as memory likes it.
        for (place, row) in four.chunks_exact(bytes).enumerate() {
            let row = &row.as_chunks::<BYTES>().0[..vectors];
            for (sums, act) in sums.iter_mut().zip(&acts) {
                sums[place] = dot(row, act, &load);
            }
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            out.as_chunks_mut().0[number] = sums_of_lanes(sums);
        }
    }
}

/// The products of two rows of vectors with some others, which are pair number `pair` of each row of `out`; as many bytes are
/// fetched from `ahead` on. Sums are added as [`dot`] adds them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn block<const T: usize, const N: usize, const BYTES: usize>(
    rows: [&[[u8; BYTES]]; 2],
    acts: [&[[u8; 64]]; T],
    ahead: Option<*const u8>,
    load: &impl Fn(&[u8; BYTES]) -> __m512,
    pair: usize,
    out: &mut [[f32; N]],
) {
    let (mut even, mut odd) = ([[_mm512_setzero_ps(); 2]; T], [[_mm512_setzero_ps(); 2]; T]);
    let (twos, last) = (rows[0].len() / 2, rows[0].len() / 2 * 2);
    let [first, second] = rows.map(|row| &row.as_chunks::<2>().0[..twos]);
    let acts_by_two = acts.map(|act| &act.as_chunks::<2>().0[..twos]);
    for k in 0..twos {
        if let Some(ahead) = ahead {
            prefetch_next(ahead.wrapping_add(4 * BYTES * k), 4 * BYTES);
        }
        let weights = [load(&first[k][0]), load(&second[k][0])];
        for t in 0..T {
            let act = _mm512_castsi512_ps(load_bytes(&acts_by_two[t][k][0]));
            even[t][0] = _mm512_fmadd_ps(weights[0], act, even[t][0]);
            even[t][1] = _mm512_fmadd_ps(weights[1], act, even[t][1]);
        }
        let weights = [load(&first[k][1]), load(&second[k][1])];
        for t in 0..T {
            let act = _mm512_castsi512_ps(load_bytes(&acts_by_two[t][k][1]));
            odd[t][0] = _mm512_fmadd_ps(weights[0], act, odd[t][0]);
            odd[t][1] = _mm512_fmadd_ps(weights[1], act, odd[t][1]);
        }
    }
    if last < rows[0].len() {
        for t in 0..T {
            let act = _mm512_castsi512_ps(load_bytes(&acts[t][last]));
            even[t][0] = _mm512_fmadd_ps(load(&rows[0][last]), act, even[t][0]);
            even[t][1] = _mm512_fmadd_ps(load(&rows[1][last]), act, even[t][1]);
        }
    }
    for t in 0..T {
        even[t] = [_mm512_add_ps(even[t][0], odd[t][0]), _mm512_add_ps(even[t][1], odd[t][1])];
    }
    for t in (0..T).step_by(2) {
        let next = (t + 1).min(T - 1);
        let [a, b, c, d] = sums_of_lanes([even[t][0], even[t][1], even[next][0], even[next][1]]);
        out[t].as_chunks_mut().0[pair] = [a, b];
        out[next].as_chunks_mut().0[pair] = [c, d];
    }
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

/// The sums of the lanes of four vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn sums_of_lanes([a, b, c, d]: [__m512; 4]) -> [f32; 4] {
    let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    let low = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
    let high = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
    let quarters = _mm512_add_ps(low, high);
    let halves = _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps::<1>(quarters));
    let sums = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
    let mut out = [0.0; 4];
    // SAFETY: `_mm_storeu_ps` asks for room for four floats, which `out` is.
    unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
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
