//! Inner loops with vector instructions, each beside its scalar twin. `simd/README.md` explains tiles and panels.

mod activations;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod pack;
pub(crate) mod prefetch;
pub(crate) mod product;
mod scalar;
mod tile_codecs;
mod tile_floats;
mod tile_loops;
mod tile_vector;

pub(crate) use tile_codecs::tile_spec;

use crate::isa::Isa;

/// The sum of products; both slices have the same length.
pub(crate) fn dot(isa: Isa, a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    match isa.vectors() {
        // SAFETY: `dot_avx512` asks for AVX-512 F; devices only have an `Isa` that the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { x86::dot_avx512(a, b) },
        // SAFETY: `dot_avx2` asks for AVX2 and FMA; devices only have an `Isa` that the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { x86::dot_avx2(a, b) },
        _ => dot_scalar(a, b),
    }
}

fn dot_scalar(a: &[f32], b: &[f32]) -> f32 {
    let (mut sums, lanes) = ([0.0f32; 8], a.len() / 8 * 8);
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a[lanes..].iter().zip(&b[lanes..]).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Adds `factor * x` to `out`; both slices have the same length.
pub(crate) fn add_scaled(isa: Isa, out: &mut [f32], factor: f32, x: &[f32]) {
    debug_assert_eq!(out.len(), x.len());
    match isa.vectors() {
        // SAFETY: `add_scaled_avx512` asks for AVX-512 F; devices only have an `Isa` that the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { x86::add_scaled_avx512(out, factor, x) },
        // SAFETY: `add_scaled_avx2` asks for AVX2 and FMA; devices only have an `Isa` that the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { x86::add_scaled_avx2(out, factor, x) },
        _ => out.iter_mut().zip(x).for_each(|(out, x)| *out += factor * x),
    }
}

/// Runs a loop of plain code, compiled for the vectors of `isa`. The result is the same for all.
pub(crate) fn widened(isa: Isa, work: impl FnOnce()) {
    match isa.vectors() {
        // SAFETY: `widened_avx512` asks for AVX-512 F; devices only have an `Isa` that the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { x86::widened_avx512(work) },
        // SAFETY: `widened_avx2` asks for AVX2; devices only have an `Isa` that the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { x86::widened_avx2(work) },
        _ => work(),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn widened_avx512(work: impl FnOnce()) {
        work();
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn widened_avx2(work: impl FnOnce()) {
        work();
    }

    /// Wherever this is inlined, the compiler uses the vectors that it has there.
    #[inline(always)]
    fn add_scaled(out: &mut [f32], factor: f32, x: &[f32]) {
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x.mul_add(factor, *out));
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn add_scaled_avx512(out: &mut [f32], factor: f32, x: &[f32]) {
        add_scaled(out, factor, x);
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn add_scaled_avx2(out: &mut [f32], factor: f32, x: &[f32]) {
        add_scaled(out, factor, x);
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn dot_avx512(a: &[f32], b: &[f32]) -> f32 {
        let mut sums = [_mm512_setzero_ps(); 4];
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<64>(), b.as_chunks::<64>());
        for (a, b) in a.iter().zip(b) {
            for ((a, b), sum) in a.as_chunks().0.iter().zip(b.as_chunks().0).zip(&mut sums) {
                *sum = _mm512_fmadd_ps(load_512(a), load_512(b), *sum);
            }
        }
        for (a, b) in a_rest.chunks(16).zip(b_rest.chunks(16)) {
            let (mut x, mut y) = ([0.0; 16], [0.0; 16]);
            x[..a.len()].copy_from_slice(a);
            y[..b.len()].copy_from_slice(b);
            sums[0] = _mm512_fmadd_ps(load_512(&x), load_512(&y), sums[0]);
        }
        let sum = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
        _mm512_reduce_add_ps(sum)
    }

    #[target_feature(enable = "avx512f")]
    fn load_512(x: &[f32; 16]) -> __m512 {
        // SAFETY: `loadu` asks for 16 readable floats, which the array is.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn dot_avx2(a: &[f32], b: &[f32]) -> f32 {
        let mut sums = [_mm256_setzero_ps(); 4];
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<32>(), b.as_chunks::<32>());
        for (a, b) in a.iter().zip(b) {
            for ((a, b), sum) in a.as_chunks().0.iter().zip(b.as_chunks().0).zip(&mut sums) {
                *sum = _mm256_fmadd_ps(load_256(a), load_256(b), *sum);
            }
        }
        let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
        let mut lanes = [0.0f32; 8];
        // SAFETY: `storeu` asks for 8 writable floats, which the array is.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
        let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
        lanes.iter().sum::<f32>() + rest
    }

    #[target_feature(enable = "avx2")]
    fn load_256(x: &[f32; 8]) -> __m256 {
        // SAFETY: `loadu` asks for 8 readable floats, which the array is.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vector_kernel_agrees_with_its_scalar_twin() {
        for length in [0, 1, 7, 8, 15, 16, 17, 31, 64, 65, 100, 1023] {
            let a: Vec<f32> = (0..length).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
            let b: Vec<f32> = (0..length).map(|i| ((i * 53 % 97) as f32 - 48.0) / 13.0).collect();
            let exact: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            for isa in Isa::ALL {
                if isa.is_available() {
                    let got = f64::from(dot(isa, &a, &b));
                    assert!(
                        (got - exact).abs() <= 1e-4 * (1.0 + exact.abs()),
                        "{isa} {length}: {got} {exact}"
                    );
                    let mut sums = b.clone();
                    add_scaled(isa, &mut sums, 0.7, &a);
                    for ((sum, a), b) in sums.iter().zip(&a).zip(&b) {
                        assert!((sum - (b + 0.7 * a)).abs() < 1e-6, "{isa} {length}: {sum}");
                    }
                }
            }
        }
    }
}
