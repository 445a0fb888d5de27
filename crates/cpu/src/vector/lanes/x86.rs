//! The vectors of AVX-512 and AVX2.

use std::arch::x86_64::*;

use super::Lanes;

/// Calls one intrinsic.
macro_rules! op {
    ($($call:tt)*) => {{
        // SAFETY: intrinsics without pointers ask for their instructions only: values of this type are made where
        // those are there, see `Lanes`.
        unsafe { $($call)* }
    }};
}

#[derive(Clone, Copy)]
pub(in super::super) struct Avx512(__m512);

impl Lanes for Avx512 {
    const COUNT: usize = 16;
    type Wide = [__m512d; 2];
    const QUARTER: [usize; 4] = [0, 2, 1, 3];

    #[inline(always)]
    fn splat(x: f32) -> Avx512 {
        Avx512(op!(_mm512_set1_ps(x)))
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Avx512 {
        // SAFETY: `_mm512_loadu_ps` asks for 16 readable floats: `load`'s contract.
        Avx512(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Avx512 {
        // SAFETY: `_mm512_maskz_loadu_ps` asks for readable floats where the mask has bits, the lowest `count`: `load_first`'s contract.
        Avx512(unsafe { _mm512_maskz_loadu_ps((1 << count) - 1, from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: `_mm512_storeu_ps` asks for 16 writable floats: `store`'s contract.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        // SAFETY: `_mm512_mask_storeu_ps` asks for writable floats where the mask has bits, the lowest `count`: `store_first`'s contract.
        unsafe { _mm512_mask_storeu_ps(to, (1 << count) - 1, self.0) }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> Avx512 {
        // SAFETY: `_mm256_loadu_si256` asks for 32 readable bytes: `load_halves`'s contract.
        let halves = unsafe { _mm256_loadu_si256(from.cast()) };
        Avx512(op!(_mm512_cvtph_ps(halves)))
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const i8) -> Avx512 {
        // SAFETY: `_mm_loadu_si128` asks for 16 readable bytes: `load_bytes`'s contract.
        let bytes = unsafe { _mm_loadu_si128(from.cast()) };
        let integers = op!(_mm512_cvtepi8_epi32(bytes));
        Avx512(op!(_mm512_cvtepi32_ps(integers)))
    }

    #[inline(always)]
    unsafe fn store_halves(self, to: *mut u8) {
        let halves = op!(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
        // SAFETY: `_mm256_storeu_si256` asks for 32 writable bytes: `store_halves`'s contract.
        unsafe { _mm256_storeu_si256(to.cast(), halves) }
    }

    #[inline(always)]
    fn add(self, other: Avx512) -> Avx512 {
        Avx512(op!(_mm512_add_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Avx512) -> Avx512 {
        Avx512(op!(_mm512_sub_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, other: Avx512) -> Avx512 {
        Avx512(op!(_mm512_mul_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn div(self, other: Avx512) -> Avx512 {
        Avx512(op!(_mm512_div_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul_add(self, factor: Avx512, addend: Avx512) -> Avx512 {
        Avx512(op!(_mm512_fmadd_ps(self.0, factor.0, addend.0)))
    }

    // Of two operands one of which is NaN, the instructions take the second.
    #[inline(always)]
    fn at_most(self, limit: Avx512) -> Avx512 {
        Avx512(op!(_mm512_min_ps(limit.0, self.0)))
    }

    #[inline(always)]
    fn at_least(self, limit: Avx512) -> Avx512 {
        Avx512(op!(_mm512_max_ps(limit.0, self.0)))
    }

    #[inline(always)]
    fn abs(self) -> Avx512 {
        Avx512(op!(_mm512_abs_ps(self.0)))
    }

    #[inline(always)]
    fn with_sign(self, sign: Avx512) -> Avx512 {
        let mask = op!(_mm512_set1_ps(-0.0));
        let sign = op!(_mm512_and_ps(mask, sign.0));
        let size = op!(_mm512_andnot_ps(mask, self.0));
        Avx512(op!(_mm512_or_ps(sign, size)))
    }

    #[inline(always)]
    fn or_if_not_positive(self, other: Avx512) -> Avx512 {
        let zero = op!(_mm512_setzero_ps());
        let positive = op!(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, zero));
        Avx512(op!(_mm512_mask_blend_ps(positive, other.0, self.0)))
    }

    #[inline(always)]
    fn times_two_to(self, n: Avx512) -> Avx512 {
        Avx512(op!(_mm512_scalef_ps(self.0, n.0)))
    }

    #[inline(always)]
    fn transpose(block: &mut [Avx512; 16]) {
        // Pairs of rows, then of pairs: each quarter of a vector holds four rows of one column.
        let mut pairs = [op!(_mm512_setzero_ps()); 16];
        for group in 0..4 {
            let (a, b) = (block[4 * group].0, block[4 * group + 1].0);
            let (c, d) = (block[4 * group + 2].0, block[4 * group + 3].0);
            let (ab_low, ab_high) = (op!(_mm512_unpacklo_ps(a, b)), op!(_mm512_unpackhi_ps(a, b)));
            let (cd_low, cd_high) = (op!(_mm512_unpacklo_ps(c, d)), op!(_mm512_unpackhi_ps(c, d)));
            pairs[4 * group] = op!(_mm512_shuffle_ps::<0b01_00_01_00>(ab_low, cd_low));
            pairs[4 * group + 1] = op!(_mm512_shuffle_ps::<0b11_10_11_10>(ab_low, cd_low));
            pairs[4 * group + 2] = op!(_mm512_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high));
            pairs[4 * group + 3] = op!(_mm512_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high));
        }
        // Quarter q of `pairs[4 * group + c]` is column 4 * q + c of the group's rows.
        for c in 0..4 {
            let (g0, g1, g2, g3) = (pairs[c], pairs[4 + c], pairs[8 + c], pairs[12 + c]);
            let low_01 = op!(_mm512_shuffle_f32x4::<0b01_00_01_00>(g0, g1));
            let high_01 = op!(_mm512_shuffle_f32x4::<0b11_10_11_10>(g0, g1));
            let low_23 = op!(_mm512_shuffle_f32x4::<0b01_00_01_00>(g2, g3));
            let high_23 = op!(_mm512_shuffle_f32x4::<0b11_10_11_10>(g2, g3));
            block[c] = Avx512(op!(_mm512_shuffle_f32x4::<0b10_00_10_00>(low_01, low_23)));
            block[4 + c] = Avx512(op!(_mm512_shuffle_f32x4::<0b11_01_11_01>(low_01, low_23)));
            block[8 + c] = Avx512(op!(_mm512_shuffle_f32x4::<0b10_00_10_00>(high_01, high_23)));
            block[12 + c] = Avx512(op!(_mm512_shuffle_f32x4::<0b11_01_11_01>(high_01, high_23)));
        }
    }

    #[inline(always)]
    fn four_sums(rows: [Avx512; 4]) -> Avx512 {
        // In each quarter, the sums of the same quarter of each.
        let [a, b, c, d] = rows.map(|row| row.0);
        let ab = op!(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
        let cd = op!(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
        let low = op!(_mm512_shuffle_ps::<0b01_00_01_00>(ab, cd));
        let high = op!(_mm512_shuffle_ps::<0b11_10_11_10>(ab, cd));
        Avx512(op!(_mm512_add_ps(low, high)))
    }

    #[inline(always)]
    fn joined([a, b, c, d]: [Avx512; 4]) -> Avx512 {
        let halves = |a: __m512, b: __m512| {
            let even = op!(_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b));
            let odd = op!(_mm512_shuffle_f32x4::<0b11_01_11_01>(a, b));
            op!(_mm512_add_ps(even, odd))
        };
        Avx512(halves(halves(a.0, b.0), halves(c.0, d.0)))
    }

    #[inline(always)]
    fn wide(x: f64) -> [__m512d; 2] {
        [op!(_mm512_set1_pd(x)); 2]
    }

    #[inline(always)]
    fn widen(self) -> [__m512d; 2] {
        let low = op!(_mm512_castps512_ps256(self.0));
        let high = op!(_mm512_extractf32x8_ps::<1>(self.0));
        [op!(_mm512_cvtps_pd(low)), op!(_mm512_cvtps_pd(high))]
    }

    #[inline(always)]
    fn narrow([low, high]: [__m512d; 2]) -> Self {
        let (low, high) = (op!(_mm512_cvtpd_ps(low)), op!(_mm512_cvtpd_ps(high)));
        let low = op!(_mm512_castps256_ps512(low));
        Avx512(op!(_mm512_insertf32x8::<1>(low, high)))
    }

    #[inline(always)]
    fn wide_sub(a: [__m512d; 2], b: [__m512d; 2]) -> [__m512d; 2] {
        [op!(_mm512_sub_pd(a[0], b[0])), op!(_mm512_sub_pd(a[1], b[1]))]
    }

    #[inline(always)]
    fn wide_mul_add(a: [__m512d; 2], b: [__m512d; 2], c: [__m512d; 2]) -> [__m512d; 2] {
        [op!(_mm512_fmadd_pd(a[0], b[0], c[0])), op!(_mm512_fmadd_pd(a[1], b[1], c[1]))]
    }

    #[inline(always)]
    fn wide_sum([low, high]: [__m512d; 2]) -> f64 {
        let sum = op!(_mm512_add_pd(low, high));
        op!(_mm512_reduce_add_pd(sum))
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        op!(_mm512_reduce_add_ps(self.0))
    }

    #[inline(always)]
    fn first(self) -> f32 {
        op!(_mm512_cvtss_f32(self.0))
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        op!(_mm512_reduce_max_ps(self.0))
    }

    #[inline(always)]
    fn is_above(self, limit: Avx512) -> bool {
        op!(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, limit.0)) != 0
    }
}

#[derive(Clone, Copy)]
pub(in super::super) struct Avx2(__m256);

impl Avx2 {
    #[inline(always)]
    fn two_to(n: __m256i) -> Avx2 {
        let bias = op!(_mm256_set1_epi32(127));
        let biased = op!(_mm256_add_epi32(n, bias));
        let bits = op!(_mm256_slli_epi32::<23>(biased));
        Avx2(op!(_mm256_castsi256_ps(bits)))
    }

    #[inline(always)]
    fn array(self) -> [f32; 8] {
        let mut lanes = [0.0; 8];
        // SAFETY: `storeu` asks for 8 writable floats, which the array is.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), self.0) };
        lanes
    }
}

impl Lanes for Avx2 {
    const COUNT: usize = 8;
    type Wide = [__m256d; 2];
    const QUARTER: [usize; 4] = [0, 1, 2, 3];

    #[inline(always)]
    fn splat(x: f32) -> Avx2 {
        Avx2(op!(_mm256_set1_ps(x)))
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Avx2 {
        // SAFETY: `_mm256_loadu_ps` asks for 8 readable floats: `load`'s contract.
        Avx2(unsafe { _mm256_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Avx2 {
        let mut lanes = [0.0; 8];
        debug_assert!(count < 8);
        // SAFETY: `copy_nonoverlapping` asks for `count` readable floats: `load_first`'s contract; bytes have no alignment; `lanes` has room.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), lanes.as_mut_ptr().cast(), 4 * count) };
        // SAFETY: `loadu` asks for 8 readable floats, which the array is.
        Avx2(unsafe { _mm256_loadu_ps(lanes.as_ptr()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: `_mm256_storeu_ps` asks for 8 writable floats: `store`'s contract.
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        debug_assert!(count < 8);
        // SAFETY: `copy_nonoverlapping` asks for `count` writable floats: `store_first`'s contract; bytes have no alignment.
        unsafe { std::ptr::copy_nonoverlapping(self.array().as_ptr().cast::<u8>(), to.cast(), 4 * count) };
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> Avx2 {
        // SAFETY: `_mm_loadu_si128` asks for 16 readable bytes: `load_halves`'s contract.
        let halves = unsafe { _mm_loadu_si128(from.cast()) };
        Avx2(op!(_mm256_cvtph_ps(halves)))
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const i8) -> Avx2 {
        // SAFETY: `_mm_loadl_epi64` asks for 8 readable bytes: `load_bytes`'s contract.
        let bytes = unsafe { _mm_loadl_epi64(from.cast()) };
        let integers = op!(_mm256_cvtepi8_epi32(bytes));
        Avx2(op!(_mm256_cvtepi32_ps(integers)))
    }

    #[inline(always)]
    unsafe fn store_halves(self, to: *mut u8) {
        let halves = op!(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
        // SAFETY: `_mm_storeu_si128` asks for 16 writable bytes: `store_halves`'s contract.
        unsafe { _mm_storeu_si128(to.cast(), halves) }
    }

    #[inline(always)]
    fn add(self, other: Avx2) -> Avx2 {
        Avx2(op!(_mm256_add_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn sub(self, other: Avx2) -> Avx2 {
        Avx2(op!(_mm256_sub_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, other: Avx2) -> Avx2 {
        Avx2(op!(_mm256_mul_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn div(self, other: Avx2) -> Avx2 {
        Avx2(op!(_mm256_div_ps(self.0, other.0)))
    }

    #[inline(always)]
    fn mul_add(self, factor: Avx2, addend: Avx2) -> Avx2 {
        Avx2(op!(_mm256_fmadd_ps(self.0, factor.0, addend.0)))
    }

    #[inline(always)]
    fn at_most(self, limit: Avx2) -> Avx2 {
        Avx2(op!(_mm256_min_ps(limit.0, self.0)))
    }

    #[inline(always)]
    fn at_least(self, limit: Avx2) -> Avx2 {
        Avx2(op!(_mm256_max_ps(limit.0, self.0)))
    }

    #[inline(always)]
    fn abs(self) -> Avx2 {
        let sign = op!(_mm256_set1_ps(-0.0));
        Avx2(op!(_mm256_andnot_ps(sign, self.0)))
    }

    #[inline(always)]
    fn with_sign(self, sign: Avx2) -> Avx2 {
        let mask = op!(_mm256_set1_ps(-0.0));
        let sign = op!(_mm256_and_ps(mask, sign.0));
        let size = op!(_mm256_andnot_ps(mask, self.0));
        Avx2(op!(_mm256_or_ps(sign, size)))
    }

    #[inline(always)]
    fn or_if_not_positive(self, other: Avx2) -> Avx2 {
        let zero = op!(_mm256_setzero_ps());
        let positive = op!(_mm256_cmp_ps::<_CMP_GT_OQ>(self.0, zero));
        Avx2(op!(_mm256_blendv_ps(other.0, self.0, positive)))
    }

    #[inline(always)]
    fn times_two_to(self, n: Avx2) -> Avx2 {
        // In two steps, as the power itself may lie outside of F32's range where the result does not.
        let n = op!(_mm256_cvtps_epi32(n.0));
        let half = op!(_mm256_srai_epi32::<1>(n));
        let rest = op!(_mm256_sub_epi32(n, half));
        self.mul(Avx2::two_to(half)).mul(Avx2::two_to(rest))
    }

    #[inline(always)]
    fn transpose(block: &mut [Avx2; 16]) {
        let mut pairs = [op!(_mm256_setzero_ps()); 8];
        for group in 0..2 {
            let (a, b) = (block[4 * group].0, block[4 * group + 1].0);
            let (c, d) = (block[4 * group + 2].0, block[4 * group + 3].0);
            let (ab_low, ab_high) = (op!(_mm256_unpacklo_ps(a, b)), op!(_mm256_unpackhi_ps(a, b)));
            let (cd_low, cd_high) = (op!(_mm256_unpacklo_ps(c, d)), op!(_mm256_unpackhi_ps(c, d)));
            pairs[4 * group] = op!(_mm256_shuffle_ps::<0b01_00_01_00>(ab_low, cd_low));
            pairs[4 * group + 1] = op!(_mm256_shuffle_ps::<0b11_10_11_10>(ab_low, cd_low));
            pairs[4 * group + 2] = op!(_mm256_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high));
            pairs[4 * group + 3] = op!(_mm256_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high));
        }
        for c in 0..4 {
            let (g0, g1) = (pairs[c], pairs[4 + c]);
            block[c] = Avx2(op!(_mm256_permute2f128_ps::<0x20>(g0, g1)));
            block[4 + c] = Avx2(op!(_mm256_permute2f128_ps::<0x31>(g0, g1)));
        }
    }

    #[inline(always)]
    fn four_sums(rows: [Avx2; 4]) -> Avx2 {
        let [a, b, c, d] = rows.map(|row| row.0);
        Avx2(op!(_mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d))))
    }

    #[inline(always)]
    fn joined([low, high, ..]: [Avx2; 4]) -> Avx2 {
        let even = op!(_mm256_permute2f128_ps::<0x20>(low.0, high.0));
        let odd = op!(_mm256_permute2f128_ps::<0x31>(low.0, high.0));
        Avx2(op!(_mm256_add_ps(even, odd)))
    }

    #[inline(always)]
    fn wide(x: f64) -> [__m256d; 2] {
        [op!(_mm256_set1_pd(x)); 2]
    }

    #[inline(always)]
    fn widen(self) -> [__m256d; 2] {
        let low = op!(_mm256_castps256_ps128(self.0));
        let high = op!(_mm256_extractf128_ps::<1>(self.0));
        [op!(_mm256_cvtps_pd(low)), op!(_mm256_cvtps_pd(high))]
    }

    #[inline(always)]
    fn narrow([low, high]: [__m256d; 2]) -> Self {
        let (low, high) = (op!(_mm256_cvtpd_ps(low)), op!(_mm256_cvtpd_ps(high)));
        Avx2(op!(_mm256_set_m128(high, low)))
    }

    #[inline(always)]
    fn wide_sub(a: [__m256d; 2], b: [__m256d; 2]) -> [__m256d; 2] {
        [op!(_mm256_sub_pd(a[0], b[0])), op!(_mm256_sub_pd(a[1], b[1]))]
    }

    #[inline(always)]
    fn wide_mul_add(a: [__m256d; 2], b: [__m256d; 2], c: [__m256d; 2]) -> [__m256d; 2] {
        [op!(_mm256_fmadd_pd(a[0], b[0], c[0])), op!(_mm256_fmadd_pd(a[1], b[1], c[1]))]
    }

    #[inline(always)]
    fn wide_sum([low, high]: [__m256d; 2]) -> f64 {
        let (sum, mut lanes) = (op!(_mm256_add_pd(low, high)), [0.0; 4]);
        // SAFETY: `storeu` asks for 4 writable `f64`, which the array is.
        unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), sum) };
        (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.array();
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }

    #[inline(always)]
    fn first(self) -> f32 {
        op!(_mm256_cvtss_f32(self.0))
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        self.array().into_iter().fold(f32::NEG_INFINITY, |max, x| if x > max { x } else { max })
    }

    #[inline(always)]
    fn is_above(self, limit: Avx2) -> bool {
        op!(_mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self.0, limit.0))) != 0
    }
}
