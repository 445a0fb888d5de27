//! The vectors that tiles are taken apart with: [`TileVector`] has their operations, [`TileWork`] is a loop over tiles, and
//! [`on`] runs it with the vectors of an [`Isa`]. `Scalar` vectors are arrays, the reference for the others.

use super::scalar::Scalar;
use crate::isa::Isa;

#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// Vectors of 64 bytes (four of each of 16 rows), of 16 integers and of 16 floats.
///
/// An implementation is a token that proves that the processor has the instructions: it is made by functions that have
/// them, so methods are safe. Methods are `inline(always)`, as is all that calls them with vectors: the compiler may then
/// use the instructions of the function that all of it ends up in.
pub(super) trait TileVector: Copy {
    type Bytes: Copy;
    type Ints: Copy;
    type Floats: Copy;

    /// The largest code that [`TileVector::add_products`] multiplies as an unsigned number; 0 if it takes signed ones only.
    const LARGEST_CODE: i32;

    fn load(self, from: &[u8; 64]) -> Self::Bytes;
    fn low_nibbles(self, bytes: Self::Bytes) -> Self::Bytes;
    fn high_nibbles(self, bytes: Self::Bytes) -> Self::Bytes;
    /// Bits `2 * NUMBER` and `2 * NUMBER + 1` of each byte.
    fn bit_pairs<const NUMBER: u32>(self, bytes: Self::Bytes) -> Self::Bytes;
    /// `low | pair << 4`, for bytes below 16 and bits `2 * NUMBER` and `2 * NUMBER + 1` of other bytes.
    fn join_bit_pair<const NUMBER: u32>(self, low: Self::Bytes, pairs: Self::Bytes) -> Self::Bytes;
    /// Signed bytes plus 128.
    fn flip_signs(self, bytes: Self::Bytes) -> Self::Bytes;
    /// `table[index]`, for indices below 16.
    fn look_up(self, indices: Self::Bytes, table: &[u8; 16]) -> Self::Bytes;
    /// `BIT` is added to bytes that do not have it, where the mask has a bit.
    fn add_bit<const BIT: u8>(self, bytes: Self::Bytes, mask: u64) -> Self::Bytes;
    /// Codes minus a bias: signed weights.
    fn minus(self, codes: Self::Bytes, bias: i32) -> Self::Bytes;

    /// Byte `NUMBER` of the four of every row, which is signed.
    fn signed_byte<const NUMBER: u32>(self, bytes: Self::Bytes) -> Self::Ints;

    /// From 16-bit floats.
    fn load_f16(self, from: &[u8; 32]) -> Self::Floats;
    /// From exponents: half of two to the power of `exponent - 127`, as `orlop_quant::mxfp4::half_scale`.
    fn load_exponents(self, from: &[u8; 16]) -> Self::Floats;
    /// From 8-bit floats: half the scale of a group of NVFP4, as `orlop_quant::nvfp4::half_scale`.
    fn load_small_floats(self, from: &[u8; 16]) -> Self::Floats;
    fn load_unsigned(self, from: &[u8; 16]) -> Self::Ints;
    fn load_signed(self, from: &[u8; 16]) -> Self::Ints;
    /// Four bits of each byte, from bit `SHIFT` on.
    fn load_nibbles<const SHIFT: u32>(self, from: &[u8; 16]) -> Self::Ints;

    fn splat_int(self, value: i32) -> Self::Ints;
    /// `256 * upper + lower`.
    fn join_passes(self, upper: Self::Ints, lower: Self::Ints) -> Self::Ints;
    fn to_floats(self, a: Self::Ints) -> Self::Floats;
    /// Adds the sums of four products each, of `codes - bias` and the four signed bytes in `four`. The bias is 0 for codes
    /// up to [`TileVector::LARGEST_CODE`]; with another bias, the differences are signed bytes.
    fn add_products(self, sums: Self::Ints, codes: Self::Bytes, bias: i32, four: i32) -> Self::Ints;

    fn zero(self) -> Self::Floats;
    fn splat(self, value: f32) -> Self::Floats;
    fn negative(self, a: Self::Floats) -> Self::Floats;
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once where the processor can.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    fn store(self, to: &mut [f32; 16], value: Self::Floats);
    /// Stores the bits.
    fn store_bytes(self, to: &mut [f32; 16], value: Self::Bytes);

    /// Runs a part of a loop in a function of its own, which the compiler inlines or not. With all parts of a large tile in
    /// one function, there are not enough registers.
    fn call(self, part: impl PartWork<Self>);
}

/// A part of a loop, for one kind of vectors.
pub(super) trait PartWork<V> {
    /// Implementations are `inline(always)`, see [`TileVector`].
    fn run(self, v: V);
}

/// The methods of [`TileVector`] as calls of functions of the same names, which are safe but for their target features. The
/// module has these and the types `Bytes`, `Ints` and `Floats`.
macro_rules! forward_to_functions {
    () => {
        type Bytes = Bytes;
        type Ints = Ints;
        type Floats = Floats;

        forward_to_functions! {
            fn load(from: &[u8; 64]) -> Bytes;
            fn low_nibbles(bytes: Bytes) -> Bytes;
            fn high_nibbles(bytes: Bytes) -> Bytes;
            fn bit_pairs<NUMBER: u32>(bytes: Bytes) -> Bytes;
            fn join_bit_pair<NUMBER: u32>(low: Bytes, pairs: Bytes) -> Bytes;
            fn flip_signs(bytes: Bytes) -> Bytes;
            fn look_up(indices: Bytes, table: &[u8; 16]) -> Bytes;
            fn add_bit<BIT: u8>(bytes: Bytes, mask: u64) -> Bytes;
            fn minus(codes: Bytes, bias: i32) -> Bytes;
            fn signed_byte<NUMBER: u32>(bytes: Bytes) -> Ints;
            fn load_f16(from: &[u8; 32]) -> Floats;
            fn load_exponents(from: &[u8; 16]) -> Floats;
            fn load_small_floats(from: &[u8; 16]) -> Floats;
            fn load_unsigned(from: &[u8; 16]) -> Ints;
            fn load_signed(from: &[u8; 16]) -> Ints;
            fn load_nibbles<SHIFT: u32>(from: &[u8; 16]) -> Ints;
            fn splat_int(value: i32) -> Ints;
            fn join_passes(upper: Ints, lower: Ints) -> Ints;
            fn to_floats(a: Ints) -> Floats;
            fn add_products(sums: Ints, codes: Bytes, bias: i32, four: i32) -> Ints;
            fn zero() -> Floats;
            fn splat(value: f32) -> Floats;
            fn negative(a: Floats) -> Floats;
            fn mul(a: Floats, b: Floats) -> Floats;
            fn mul_add(a: Floats, b: Floats, c: Floats) -> Floats;
            fn store(to: &mut [f32; 16], value: Floats) -> ();
            fn store_bytes(to: &mut [f32; 16], value: Bytes) -> ();
            fn call(part: impl PartWork<Self>) -> ();
        }
    };
    ($(fn $name:ident $(<$number:ident: $kind:ty>)? ($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            #[inline(always)]
            fn $name $(<const $number: $kind>)? (self, $($argument: $type),*) -> $result {
                // SAFETY: the function asks for the instructions that the token proves.
                unsafe { $name $(::<$number>)? ($($argument),*) }
            }
        )*
    };
}

#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(unused_imports))]
pub(super) use forward_to_functions;

/// A loop over tiles, for vectors of any kind.
pub(super) trait TileWork {
    /// Whether it also runs on arrays.
    const ON_ARRAYS: bool = true;

    /// Implementations are `inline(always)`, see [`TileVector`].
    fn run<V: TileVector>(self, v: V);
}

/// Runs a loop with the vectors of `isa`.
pub(super) fn on<W: TileWork>(isa: Isa, work: W) {
    match isa.vectors() {
        // SAFETY: `run` asks for AVX-512 with VNNI; devices only have an `Isa` that the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::run(work) },
        // SAFETY: `run` asks for AVX2, FMA and F16C; as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::run(work) },
        // SAFETY: `run` asks for NEON and dot products; as above.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { neon::run(work) },
        _ if W::ON_ARRAYS => work.run(Scalar),
        _ => unreachable!("a loop that has no use on arrays"),
    }
}
