//! What the machine can do at all, on one thread.

use std::hint::black_box;
use std::time::Instant;

/// Billions a second.
pub(crate) struct Peaks {
    /// Operations on 8-bit numbers; a product and a sum are two.
    pub(crate) int8: f64,
    /// Operations on F32.
    pub(crate) f32: f64,
    /// Bytes read from memory.
    pub(crate) read: f64,
}

pub(crate) fn measure() -> Peaks {
    let best = |work: &mut dyn FnMut() -> f64| (0..8).map(|_| work()).fold(0.0, f64::max);
    Peaks { int8: best(&mut int8), f32: best(&mut floats), read: best(&mut reader()) }
}

fn rate(work: f64, run: impl FnOnce()) -> f64 {
    1e-9 * work / seconds(run)
}

/// How long something takes: the time that this thread was on a core where the system tells that, as other programs
/// may want the machine too.
pub(crate) fn seconds(run: impl FnOnce()) -> f64 {
    let (start, wall) = (on_core(), Instant::now());
    run();
    match (start, on_core()) {
        (Some(start), Some(end)) => end - start,
        _ => wall.elapsed().as_secs_f64(),
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn on_core() -> Option<f64> {
    const THREAD_CPU_TIME: i32 = 3;
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    let mut time = [0; 2];
    // SAFETY: `clock_gettime` asks for a clock and a `timespec` to write, which on 64-bit Linux is two 64-bit numbers.
    let result = unsafe { clock_gettime(THREAD_CPU_TIME, &raw mut time) };
    (result == 0).then(|| time[0] as f64 + 1e-9 * time[1] as f64)
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn on_core() -> Option<f64> {
    None
}

const ROUNDS: usize = 2_000_000;

fn int8() -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512f") {
        // SAFETY: `int8_avx512` asks for AVX-512 F and VNNI, both detected on the line above.
        return rate((ROUNDS * 16 * 128) as f64, || unsafe { x86::int8_avx512(ROUNDS) });
    }
    floats()
}

fn floats() -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: `f32_avx512` asks for AVX-512 F, detected on the line above.
        return rate((ROUNDS * 16 * 32) as f64, || unsafe { x86::f32_avx512(ROUNDS) });
    }
    rate((ROUNDS * 64) as f64, || {
        let mut sums = [black_box(1.0f32); 32];
        for _ in 0..ROUNDS {
            sums.iter_mut().for_each(|sum| *sum = *sum * 1.000_1 + 0.5);
        }
        black_box(sums);
    })
}

fn reader() -> impl FnMut() -> f64 {
    let memory = vec![1u64; 32 << 20];
    move || {
        rate(8.0 * memory.len() as f64, || {
            let mut sums = [0u64; 32];
            for chunk in memory.as_chunks::<32>().0 {
                for (sum, word) in sums.iter_mut().zip(chunk) {
                    *sum ^= word;
                }
            }
            black_box(sums);
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn int8_avx512(rounds: usize) {
        let (a, b) = (_mm512_set1_epi8(black_box(3)), _mm512_set1_epi8(black_box(5)));
        let mut sums = [_mm512_setzero_si512(); 16];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn f32_avx512(rounds: usize) {
        let (a, b) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(0.25)));
        let mut sums = [_mm512_setzero_ps(); 16];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        black_box(sums);
    }
}
