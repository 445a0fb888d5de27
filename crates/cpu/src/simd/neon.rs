//! Products on 64-bit ARM with NEON and dot products. Their float arithmetic is, step by step, that of AVX-512. Whatever is
//! not here is plain code that compilers turn into NEON by themselves: all machines of this kind have it.

use std::arch::aarch64::*;
use std::arch::asm;

mod float;
mod panel;
mod tiles;

pub(super) use float::{dot_rows, panel_f32};
pub(super) use panel::panel;
pub(super) use tiles::run;

/// Sixteen floats.
type F = [float32x4_t; 4];

/// Adds, to each of four sums, that of four products of signed bytes. (The compiler's own name for it is not stable yet.)
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_dots(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: one instruction, which this function's features have, on registers alone.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// Four 16-bit floats.
#[inline]
#[target_feature(enable = "neon")]
fn halves(bytes: &[u8; 8]) -> float32x4_t {
    let halves = u64::from_le_bytes(*bytes);
    let floats: float32x4_t;
    // SAFETY: as above; `fcvtl` is in every NEON.
    unsafe {
        asm!(
            "fmov {floats:d}, {halves}",
            "fcvtl {floats:v}.4s, {floats:v}.4h",
            halves = in(reg) halves,
            floats = out(vreg) floats,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    floats
}

#[inline]
#[target_feature(enable = "neon")]
fn load_bytes(from: &[u8; 16]) -> uint8x16_t {
    // SAFETY: `vld1q_u8` asks for 16 readable bytes, which the array is.
    unsafe { vld1q_u8(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load(from: &[f32; 4]) -> float32x4_t {
    // SAFETY: `vld1q_f32` asks for 4 readable floats, which the array is.
    unsafe { vld1q_f32(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_16(from: &[f32; 16]) -> F {
    let fours = from.as_chunks::<4>().0;
    [load(&fours[0]), load(&fours[1]), load(&fours[2]), load(&fours[3])]
}

#[inline]
#[target_feature(enable = "neon")]
fn store_16(to: &mut [f32; 16], value: F) {
    for (to, value) in to.as_chunks_mut::<4>().0.iter_mut().zip(value) {
        // SAFETY: `vst1q_f32` asks for 4 writable floats, which the array is.
        unsafe { vst1q_f32(to.as_mut_ptr(), value) };
    }
}
