//! Vectors of floats. Those of a machine's instructions exist only inside functions that have them.

use half::f16;

/// A vector of floats.
///
/// Methods of the machine's vectors are safe to call because values of their types are only made where the
/// instructions are there: by code that `vector::on` runs.
pub(crate) trait Lanes: Copy {
    /// How many there are: 8 or 16.
    const COUNT: usize;
    /// As many `f64`.
    type Wide: Copy;

    fn splat(x: f32) -> Self;
    /// # Safety
    /// `COUNT` floats can be read there, at any address.
    unsafe fn load(from: *const f32) -> Self;
    /// The first `count` lanes; the rest is 0.
    ///
    /// # Safety
    /// `count` is below `COUNT`, and as many floats can be read there, at any address.
    unsafe fn load_first(from: *const f32, count: usize) -> Self;
    /// # Safety
    /// `COUNT` floats can be written there, at any address.
    unsafe fn store(self, to: *mut f32);
    /// The first `count` lanes.
    ///
    /// # Safety
    /// `count` is below `COUNT`, and as many floats can be written there, at any address.
    unsafe fn store_first(self, to: *mut f32, count: usize);
    /// From `COUNT` 16-bit floats.
    ///
    /// # Safety
    /// `2 * COUNT` bytes can be read there.
    unsafe fn load_halves(from: *const u8) -> Self;
    /// From `COUNT` signed bytes.
    ///
    /// # Safety
    /// As many bytes can be read there.
    unsafe fn load_bytes(from: *const i8) -> Self;
    /// As 16-bit floats, to the nearest, ties to even.
    ///
    /// # Safety
    /// `2 * COUNT` bytes can be written there.
    unsafe fn store_halves(self, to: *mut u8);

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    /// `self * factor + addend`, rounded once or twice.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// The smaller; `self` where it is NaN.
    fn at_most(self, limit: Self) -> Self;
    /// The larger; `self` where it is NaN.
    fn at_least(self, limit: Self) -> Self;
    fn abs(self) -> Self;
    /// With the signs of another vector.
    fn with_sign(self, sign: Self) -> Self;
    /// `self` where it is above 0, else `other`.
    fn or_if_not_positive(self, other: Self) -> Self;
    /// Times 2 to the power of `n`, whole numbers between -300 and 300. Results may be subnormal or infinite.
    fn times_two_to(self, n: Self) -> Self;
    /// Rows become columns.
    fn transpose(block: &mut [Self; 16]);
    /// The order in which [`Lanes::four_sums`] adds four neighbouring lanes: the first two, the last two, and the two sums.
    /// Sums of fours are then added in pairs of neighbours.
    const QUARTER: [usize; 4];
    /// What [`Lanes::joined`] makes the sums of four vectors of.
    fn four_sums(rows: [Self; 4]) -> Self;
    /// Lane `i` is the sum of the `i`-th of the vectors that these were made of; of the first `COUNT`.
    fn joined(fours: [Self; 4]) -> Self;
    fn wide(x: f64) -> Self::Wide;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn wide_sub(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// `a * b + c`, rounded once or twice.
    fn wide_mul_add(a: Self::Wide, b: Self::Wide, c: Self::Wide) -> Self::Wide;
    fn wide_sum(wide: Self::Wide) -> f64;
    fn sum(self) -> f32;
    fn first(self) -> f32;
    /// The largest lane; any of them if there is NaN.
    fn largest(self) -> f32;
    /// Whether a lane is larger than another vector's.
    fn is_above(self, limit: Self) -> bool;
}

/// An array as a vector: the scalar twin of the others.
#[derive(Clone, Copy)]
pub(super) struct ScalarLanes([f32; 8]);

impl ScalarLanes {
    #[inline(always)]
    fn zip(self, other: ScalarLanes, f: impl Fn(f32, f32) -> f32) -> ScalarLanes {
        ScalarLanes(std::array::from_fn(|lane| f(self.0[lane], other.0[lane])))
    }
}

impl Lanes for ScalarLanes {
    const COUNT: usize = 8;
    type Wide = [f64; 8];
    const QUARTER: [usize; 4] = [0, 2, 1, 3];

    #[inline(always)]
    fn splat(x: f32) -> ScalarLanes {
        ScalarLanes([x; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> ScalarLanes {
        // SAFETY: `read_unaligned` asks for 8 readable floats: `load`'s contract.
        ScalarLanes(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> ScalarLanes {
        let mut lanes = [0.0; 8];
        debug_assert!(count < 8);
        // SAFETY: `copy_nonoverlapping` asks for `count` readable floats: `load_first`'s contract; bytes have no alignment; `lanes` has room.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), lanes.as_mut_ptr().cast(), 4 * count) };
        ScalarLanes(lanes)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: `write_unaligned` asks for 8 writable floats: `store`'s contract.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        debug_assert!(count < 8);
        // SAFETY: `copy_nonoverlapping` asks for `count` writable floats: `store_first`'s contract; bytes have no alignment.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr().cast::<u8>(), to.cast(), 4 * count) };
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> ScalarLanes {
        // SAFETY: `read_unaligned` asks for 16 readable bytes: `load_halves`'s contract.
        let halves = unsafe { from.cast::<[[u8; 2]; 8]>().read_unaligned() };
        ScalarLanes(halves.map(|half| f16::from_le_bytes(half).to_f32()))
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const i8) -> ScalarLanes {
        // SAFETY: `read` asks for 8 readable bytes: `load_bytes`'s contract.
        ScalarLanes(unsafe { from.cast::<[i8; 8]>().read() }.map(f32::from))
    }

    #[inline(always)]
    unsafe fn store_halves(self, to: *mut u8) {
        let halves = self.0.map(|x| f16::from_f32(x).to_le_bytes());
        // SAFETY: `write_unaligned` asks for 16 writable bytes: `store_halves`'s contract.
        unsafe { to.cast::<[[u8; 2]; 8]>().write_unaligned(halves) }
    }

    #[inline(always)]
    fn add(self, other: ScalarLanes) -> ScalarLanes {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: ScalarLanes) -> ScalarLanes {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: ScalarLanes) -> ScalarLanes {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, other: ScalarLanes) -> ScalarLanes {
        self.zip(other, |a, b| a / b)
    }

    #[inline(always)]
    fn mul_add(self, factor: ScalarLanes, addend: ScalarLanes) -> ScalarLanes {
        self.mul(factor).add(addend)
    }

    #[inline(always)]
    fn at_most(self, limit: ScalarLanes) -> ScalarLanes {
        self.zip(limit, |x, limit| if limit < x { limit } else { x })
    }

    #[inline(always)]
    fn at_least(self, limit: ScalarLanes) -> ScalarLanes {
        self.zip(limit, |x, limit| if limit > x { limit } else { x })
    }

    #[inline(always)]
    fn abs(self) -> ScalarLanes {
        ScalarLanes(self.0.map(f32::abs))
    }

    #[inline(always)]
    fn with_sign(self, sign: ScalarLanes) -> ScalarLanes {
        self.zip(sign, f32::copysign)
    }

    #[inline(always)]
    fn or_if_not_positive(self, other: ScalarLanes) -> ScalarLanes {
        self.zip(other, |x, other| if x > 0.0 { x } else { other })
    }

    #[inline(always)]
    fn times_two_to(self, n: ScalarLanes) -> ScalarLanes {
        // In two steps, as the power itself may lie outside of F32's range where the result does not.
        let two_to = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
        self.zip(n, |x, n| {
            let n = n as i32;
            x * two_to(n >> 1) * two_to(n - (n >> 1))
        })
    }

    #[inline(always)]
    fn transpose(block: &mut [ScalarLanes; 16]) {
        let rows = *block;
        for (column, out) in block.iter_mut().enumerate().take(8) {
            *out = ScalarLanes(std::array::from_fn(|row| rows[row].0[column]));
        }
    }

    #[inline(always)]
    fn four_sums(rows: [ScalarLanes; 4]) -> ScalarLanes {
        let sum = |ScalarLanes([a, b, c, d, e, f, g, h])| ((a + c) + (b + d)) + ((e + g) + (f + h));
        ScalarLanes(std::array::from_fn(|row| rows.get(row).map_or(0.0, |row| sum(*row))))
    }

    #[inline(always)]
    fn joined(fours: [ScalarLanes; 4]) -> ScalarLanes {
        ScalarLanes(std::array::from_fn(|row| fours[row / 4].0[row % 4]))
    }

    #[inline(always)]
    fn wide(x: f64) -> [f64; 8] {
        [x; 8]
    }

    #[inline(always)]
    fn widen(self) -> [f64; 8] {
        self.0.map(f64::from)
    }

    #[inline(always)]
    fn narrow(wide: [f64; 8]) -> ScalarLanes {
        ScalarLanes(wide.map(|x| x as f32))
    }

    #[inline(always)]
    fn wide_sub(a: [f64; 8], b: [f64; 8]) -> [f64; 8] {
        std::array::from_fn(|lane| a[lane] - b[lane])
    }

    #[inline(always)]
    fn wide_mul_add(a: [f64; 8], b: [f64; 8], c: [f64; 8]) -> [f64; 8] {
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }

    #[inline(always)]
    fn wide_sum(wide: [f64; 8]) -> f64 {
        wide.iter().sum()
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }

    #[inline(always)]
    fn first(self) -> f32 {
        self.0[0]
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        self.0.into_iter().fold(f32::NEG_INFINITY, |max, x| if x > max { x } else { max })
    }

    #[inline(always)]
    fn is_above(self, limit: ScalarLanes) -> bool {
        self.0.iter().zip(limit.0).any(|(x, limit)| *x > limit)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use self::x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86;
