//! Stored elements to floats and back, for the types that caches and embeddings have. The bytes are those that the
//! codecs of `orlop_quant` give.

use half::f16;
use orlop_graph::DType;

use super::{Lanes, PlainLoop, Strided, VectorLoop, compiled, on};
use crate::isa::Isa;

/// Decodes neighbouring blocks; tells whether there is a way for this type.
pub(crate) fn decode(isa: Isa, dtype: DType, bytes: &[u8], out: &mut [f32]) -> bool {
    match dtype {
        DType::F16 => on(isa, FromHalves { bytes, out }),
        DType::Q8_0 => on(isa, FromQ8_0 { bytes, out }),
        DType::Q4_0 => compiled(isa, FromQ4_0 { bytes, out }),
        _ => return false,
    }
    true
}

/// Encodes neighbouring blocks; as [`decode`], for fewer types.
pub(crate) fn encode(isa: Isa, dtype: DType, values: &[f32], out: &mut [u8]) -> bool {
    match dtype {
        DType::F16 => on(isa, ToHalves { values, out }),
        DType::Q8_0 => compiled(isa, ToQ8_0 { values, out }),
        _ => return false,
    }
    true
}

struct FromQ8_0<'a> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl VectorLoop for FromQ8_0<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (block, out) in self.bytes.as_chunks::<34>().0.iter().zip(self.out.as_chunks_mut::<32>().0) {
            let scale = L::splat(f16::from_le_bytes([block[0], block[1]]).to_f32());
            for at in (0..32).step_by(L::COUNT) {
                // SAFETY: `load_bytes` asks for as many bytes as there are lanes, which are inside the block.
                let quants = unsafe { L::load_bytes(block.as_ptr().wrapping_add(2 + at).cast()) };
                // SAFETY: `store` asks for room for a vector, which is inside `out`.
                unsafe { scale.mul(quants).store(out.as_mut_ptr().wrapping_add(at)) };
            }
        }
    }
}

struct FromQ4_0<'a> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl PlainLoop for FromQ4_0<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (block, out) in self.bytes.as_chunks::<18>().0.iter().zip(self.out.as_chunks_mut::<32>().0) {
            let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
            let (low, high) = out.split_at_mut(16);
            for ((low, high), codes) in low.iter_mut().zip(high).zip(&block[2..]) {
                *low = scale * (i32::from(codes & 15) - 8) as f32;
                *high = scale * (i32::from(codes >> 4) - 8) as f32;
            }
        }
    }
}

struct ToQ8_0<'a> {
    values: &'a [f32],
    out: &'a mut [u8],
}

impl PlainLoop for ToQ8_0<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (values, block) in self.values.as_chunks::<32>().0.iter().zip(self.out.as_chunks_mut::<34>().0) {
            encode_q8_0(values, block);
        }
    }
}

#[inline(always)]
fn encode_q8_0(values: &[f32; 32], block: &mut [u8; 34]) {
    // Bits of magnitudes are ordered as these are, infinity and NaN above all others.
    let mut largest = [0_u32; 32];
    for (largest, value) in largest.iter_mut().zip(values) {
        *largest = value.abs().to_bits();
    }
    let scale = f32::from_bits(largest.into_iter().fold(0, u32::max)) / 127.0;
    let inverse = 1.0 / scale;
    // NaN and numbers too small for an inverse are left to the codec.
    if !(scale.is_finite() && inverse.is_finite()) {
        let done = orlop_quant::encode(DType::Q8_0, values, block);
        return done.expect("a block of a type that has a codec");
    }
    let [low, high] = f16::from_f32(scale).to_le_bytes();
    (block[0], block[1]) = (low, high);
    // To the nearest integer, halves away from zero: the largest float below one half, and then the fraction goes.
    let half = 0.5f32.next_down();
    for (quant, value) in block[2..].iter_mut().zip(values) {
        let level = value * inverse;
        *quant = (level + half.copysign(level)) as i32 as u8;
    }
}

struct FromHalves<'a> {
    bytes: &'a [u8],
    out: &'a mut [f32],
}

impl VectorLoop for FromHalves<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let length = self.out.len();
        assert!(self.bytes.len() == 2 * length);
        let whole = length / L::COUNT * L::COUNT;
        let (from, to) = (self.bytes.as_ptr(), self.out.as_mut_ptr());
        for at in (0..whole).step_by(L::COUNT) {
            // SAFETY: `load_halves` asks for a vector of 16-bit floats, which is inside `bytes`.
            let lanes = unsafe { L::load_halves(from.wrapping_add(2 * at)) };
            // SAFETY: `store` asks for room for a vector, which is inside `out`.
            unsafe { lanes.store(to.wrapping_add(at)) };
        }
        let rest = self.bytes[2 * whole..].as_chunks::<2>().0;
        for (out, half) in self.out[whole..].iter_mut().zip(rest) {
            *out = f16::from_le_bytes(*half).to_f32();
        }
    }
}

struct ToHalves<'a> {
    values: &'a [f32],
    out: &'a mut [u8],
}

impl VectorLoop for ToHalves<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let length = self.values.len();
        assert!(self.out.len() == 2 * length);
        let whole = length / L::COUNT * L::COUNT;
        let (from, to) = (self.values.as_ptr(), self.out.as_mut_ptr());
        for at in (0..whole).step_by(L::COUNT) {
            // SAFETY: `load` asks for a vector of floats, which is inside `values`.
            let lanes = unsafe { L::load(from.wrapping_add(at)) };
            // SAFETY: `store_halves` asks for room for a vector of 16-bit floats, which is inside `out`.
            unsafe { lanes.store_halves(to.wrapping_add(2 * at)) };
        }
        let rest = self.out[2 * whole..].as_chunks_mut::<2>().0;
        for (half, value) in rest.iter_mut().zip(&self.values[whole..]) {
            *half = f16::from_f32(*value).to_le_bytes();
        }
    }
}

/// Rows of 16-bit floats to rows of floats.
pub(crate) struct HalfRows<'a> {
    from: Strided<'a, f16>,
    out: &'a mut [f32],
    /// Floats from one row of `out` to the next.
    stride: usize,
}

impl<'a> HalfRows<'a> {
    pub(crate) fn new(from: Strided<'a, f16>, out: &'a mut [f32], stride: usize) -> HalfRows<'a> {
        assert!(from.length() <= stride && from.rows().saturating_mul(stride) <= out.len());
        HalfRows { from, out, stride }
    }
}

impl VectorLoop for HalfRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let length = self.from.length();
        let whole = length / L::COUNT * L::COUNT;
        for (row, out) in self.out.chunks_exact_mut(self.stride).take(self.from.rows()).enumerate() {
            for at in (0..whole).step_by(L::COUNT) {
                // SAFETY: `load` asks for elements that the row has: `whole` is at most its length.
                let lanes: L = unsafe { self.from.load(row, at) };
                // SAFETY: `store` asks for room for a vector, which is inside `out`.
                unsafe { lanes.store(out.as_mut_ptr().wrapping_add(at)) };
            }
            for (at, out) in (whole..length).zip(&mut out[whole..]) {
                *out = self.from.element(row, at).to_f32();
            }
        }
    }
}
