//! Shapes: element type, extents and strides of a tensor.

use std::fmt;

use crate::DType;

/// Number of dimensions of every tensor; unused ones have extent 1.
pub const DIMS: usize = 4;

/// Element type, extents and byte strides of a tensor, innermost dimension first.
///
/// Two tensors have the same layout exactly when their descriptions are equal.
///
/// The constructors refuse sizes beyond 64 bits: of the bytes with gaps, the bytes without, and any product of
/// extents, with 0 counted as 1. The fields are public, so a description made by hand may break that; methods then
/// saturate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TensorDesc {
    /// Element type.
    pub dtype: DType,
    /// Elements in each dimension.
    pub extents: [u64; DIMS],
    /// Bytes from one element to the next in each dimension; in dimension 0, from one block to the next.
    pub strides: [u64; DIMS],
}

/// Why a description is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescError {
    /// More than [`DIMS`] extents were given.
    #[error("{0} dimensions, at most {DIMS} are possible")]
    TooManyDimensions(usize),
    /// The innermost extent is not a multiple of the block size.
    #[error("a row of {extent} elements is not a multiple of {dtype}'s block size {}", .dtype.block_elements())]
    PartialBlock {
        /// Element type.
        dtype: DType,
        /// Innermost extent.
        extent: u64,
    },
    /// The tensor's bytes do not fit 64 bits.
    #[error("a {dtype} tensor of {extents:?} does not fit 64-bit sizes")]
    TooLarge {
        /// Element type.
        dtype: DType,
        /// Extents asked for.
        extents: [u64; DIMS],
    },
}

impl TensorDesc {
    /// A tensor without gaps: each dimension follows the one inside it.
    ///
    /// # Errors
    /// [`DescError`] if a row is not a whole number of blocks, there are more than [`DIMS`] extents, or the bytes
    /// do not fit 64 bits.
    pub fn contiguous(dtype: DType, extents: &[u64]) -> Result<TensorDesc, DescError> {
        if extents.len() > DIMS {
            return Err(DescError::TooManyDimensions(extents.len()));
        }
        let mut full = [1; DIMS];
        full[..extents.len()].copy_from_slice(extents);
        if full[0] % dtype.block_elements() != 0 {
            return Err(DescError::PartialBlock { dtype, extent: full[0] });
        }
        if !fits(dtype, full) {
            return Err(DescError::TooLarge { dtype, extents: full });
        }
        let mut strides = [dtype.block_bytes(); DIMS];
        strides[1] = full[0] / dtype.block_elements() * dtype.block_bytes();
        for dim in 2..DIMS {
            strides[dim] = strides[dim - 1] * full[dim - 1];
        }
        Ok(TensorDesc { dtype, extents: full, strides })
    }

    /// A tensor with the strides given.
    ///
    /// # Errors
    /// As [`TensorDesc::contiguous`].
    pub fn strided(
        dtype: DType,
        extents: [u64; DIMS],
        strides: [u64; DIMS],
    ) -> Result<TensorDesc, DescError> {
        let desc = TensorDesc { dtype, extents, strides };
        if !extents[0].is_multiple_of(dtype.block_elements()) {
            return Err(DescError::PartialBlock { dtype, extent: extents[0] });
        }
        if fits(dtype, extents) && desc.checked_bytes().is_some() {
            Ok(desc)
        } else {
            Err(DescError::TooLarge { dtype, extents })
        }
    }

    fn checked_bytes(&self) -> Option<u64> {
        if self.extents.contains(&0) {
            return Some(0);
        }
        let blocks = self.extents[0].div_ceil(self.dtype.block_elements());
        let mut bytes = (blocks - 1).checked_mul(self.strides[0])?.checked_add(self.dtype.block_bytes())?;
        for dim in 1..DIMS {
            bytes = bytes.checked_add((self.extents[dim] - 1).checked_mul(self.strides[dim])?)?;
        }
        Some(bytes)
    }

    /// Bytes from the first element to the end of the last one, gaps included.
    pub fn bytes(&self) -> u64 {
        self.checked_bytes().unwrap_or(u64::MAX)
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        saturating_product(&self.extents)
    }

    /// Number of rows: the product of all extents but the innermost.
    pub fn rows(&self) -> u64 {
        saturating_product(&self.extents[1..])
    }

    /// Bytes of the elements of one row, if rows have no gaps inside.
    pub fn row_bytes(&self) -> u64 {
        (self.extents[0] / self.dtype.block_elements()).saturating_mul(self.dtype.block_bytes())
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.extents.contains(&0)
    }

    /// Whether this is one element.
    pub fn is_scalar(&self) -> bool {
        self.extents == [1; DIMS]
    }

    /// Whether elements lie one after the other, in order and without gaps. Strides of dimensions of extent 1 are
    /// not used and do not count.
    pub fn is_contiguous(&self) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut expected = self.row_bytes();
        let mut gapless = self.rows_are_contiguous();
        for dim in 1..DIMS {
            gapless &= self.extents[dim] == 1 || self.strides[dim] == expected;
            expected = expected.saturating_mul(self.extents[dim]);
        }
        gapless
    }

    /// Whether the elements of each row lie without gaps; the distance between rows does not count.
    pub fn rows_are_contiguous(&self) -> bool {
        self.strides[0] == self.dtype.block_bytes() || self.extents[0] <= self.dtype.block_elements()
    }

    /// The byte offset of each gapless run of elements; all runs have the same length. A copy of these runs touches
    /// every element and leaves the gaps alone.
    pub fn runs(&self) -> Runs {
        let mut inner = 0;
        let mut run = if self.rows_are_contiguous() { self.row_bytes() } else { self.dtype.block_bytes() };
        if self.rows_are_contiguous() {
            inner = 1;
            while inner < DIMS && (self.extents[inner] == 1 || self.strides[inner] == run) {
                run = run.saturating_mul(self.extents[inner]);
                inner += 1;
            }
        }
        let mut counts = self.extents;
        counts[0] /= self.dtype.block_elements();
        for count in &mut counts[..inner] {
            *count = 1;
        }
        let nothing = self.is_empty() || self.checked_bytes().is_none();
        let remaining = if nothing { 0 } else { saturating_product(&counts) };
        Runs { counts, strides: self.strides, at: [0; DIMS], run, remaining }
    }
}

/// Whether the elements without gaps fit 64-bit sizes. Extents of 0 count as 1, so that no part of the
/// product overflows where the whole is 0.
fn fits(dtype: DType, extents: [u64; DIMS]) -> bool {
    let row = (extents[0] / dtype.block_elements())
        .max(1)
        .checked_mul(dtype.block_bytes().max(dtype.block_elements()));
    extents[1..].iter().fold(row, |bytes, extent| bytes?.checked_mul((*extent).max(1))).is_some()
}

fn saturating_product(extents: &[u64]) -> u64 {
    if extents.contains(&0) {
        0
    } else {
        extents.iter().fold(1, |product, extent| product.saturating_mul(*extent))
    }
}

/// The gapless runs of a tensor, in element order; see [`TensorDesc::runs`].
#[derive(Clone, Debug)]
pub struct Runs {
    counts: [u64; DIMS],
    strides: [u64; DIMS],
    at: [u64; DIMS],
    run: u64,
    remaining: u64,
}

impl Runs {
    /// Bytes of every run.
    pub fn run_bytes(&self) -> u64 {
        self.run
    }
}

impl Iterator for Runs {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.remaining = self.remaining.checked_sub(1)?;
        let offset = (0..DIMS).map(|dim| self.at[dim] * self.strides[dim]).sum();
        for dim in 0..DIMS {
            self.at[dim] += 1;
            if self.at[dim] < self.counts[dim] {
                break;
            }
            self.at[dim] = 0;
        }
        Some(offset)
    }
}

/// Prints as `f32[64 3 1 1]`, with the strides when they have gaps: `f32[64 3 1 1 / 4 512 1536 1536]`.
impl fmt::Display for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.extents;
        write!(f, "{}[{a} {b} {c} {d}", self.dtype)?;
        if !self.is_contiguous() {
            let [a, b, c, d] = self.strides;
            write!(f, " / {a} {b} {c} {d}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32(extents: &[u64]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, extents).unwrap()
    }

    #[test]
    fn bytes_end_with_the_last_element() {
        assert_eq!(f32(&[3, 5]).bytes(), 60);
        assert_eq!(f32(&[3, 0]).bytes(), 0);
        let gaps = TensorDesc::strided(DType::F32, [3, 2, 1, 1], [4, 100, 200, 200]).unwrap();
        assert_eq!(gaps.bytes(), 112);
        assert!(!gaps.is_contiguous());
        let blocks = TensorDesc::contiguous(DType::Q4_0, &[64, 3]).unwrap();
        assert_eq!((blocks.bytes(), blocks.strides), (108, [18, 36, 108, 108]));
    }

    #[test]
    fn absurd_sizes_are_refused() {
        for extents in [[u64::MAX, 2, 1, 1], [1 << 32, 1 << 32, 1, 1], [u64::MAX, 1, 1, 1]] {
            assert!(matches!(TensorDesc::contiguous(DType::F32, &extents), Err(DescError::TooLarge { .. })));
        }
        let strided = TensorDesc::strided(DType::F32, [2, 2, 1, 1], [4, u64::MAX, 4, 4]);
        assert!(matches!(strided, Err(DescError::TooLarge { .. })));
        for extents in [[0, 1 << 40, 1 << 40, 1], [1 << 40, 1 << 40, 0, 1], [1 << 40, 0, 1 << 40, 1]] {
            let hidden = DescError::TooLarge { dtype: DType::F32, extents };
            assert_eq!(TensorDesc::contiguous(DType::F32, &extents), Err(hidden.clone()));
            assert_eq!(TensorDesc::strided(DType::F32, extents, [0; 4]), Err(hidden));
        }
        let repeated = TensorDesc::strided(DType::F32, [1 << 62, 1, 1, 1], [0; 4]);
        assert!(matches!(repeated, Err(DescError::TooLarge { .. })));
    }

    #[test]
    fn descriptions_made_by_hand_saturate() {
        let huge = TensorDesc { dtype: DType::F32, extents: [u64::MAX; 4], strides: [u64::MAX; 4] };
        assert_eq!([huge.bytes(), huge.elements(), huge.rows(), huge.row_bytes()], [u64::MAX; 4]);
        assert_eq!((huge.is_contiguous(), huge.runs().count()), (false, 0));
        let partial = TensorDesc { dtype: DType::Q4_0, extents: [1; 4], strides: [18; 4] };
        assert_eq!((partial.bytes(), partial.row_bytes()), (18, 0));
    }

    #[test]
    fn partial_blocks_and_five_dimensions_are_refused() {
        assert_eq!(
            TensorDesc::contiguous(DType::Q4_0, &[40]),
            Err(DescError::PartialBlock { dtype: DType::Q4_0, extent: 40 })
        );
        assert_eq!(TensorDesc::contiguous(DType::F32, &[1; 5]), Err(DescError::TooManyDimensions(5)));
    }

    #[test]
    fn runs_cover_elements_and_no_gaps() {
        assert_eq!(f32(&[4, 3, 2]).runs().collect::<Vec<_>>(), [0]);
        assert_eq!(f32(&[4, 3, 2]).runs().run_bytes(), 96);
        let gaps = TensorDesc::strided(DType::F32, [3, 2, 2, 1], [4, 16, 100, 200]).unwrap();
        assert_eq!(gaps.runs().run_bytes(), 12);
        assert_eq!(gaps.runs().collect::<Vec<_>>(), [0, 16, 100, 116]);
        let transposed = TensorDesc::strided(DType::F32, [2, 3, 1, 1], [12, 4, 24, 24]).unwrap();
        assert_eq!(transposed.runs().collect::<Vec<_>>(), [0, 12, 4, 16, 8, 20]);
        assert_eq!(f32(&[4, 0]).runs().count(), 0);
    }

    #[test]
    fn strides_over_extents_of_one_do_not_matter() {
        let desc = TensorDesc::strided(DType::F32, [4, 1, 3, 1], [4, 999, 16, 7]).unwrap();
        assert!(desc.is_contiguous());
    }
}
