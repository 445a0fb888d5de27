//! Products of small matrices, as attention needs them.

#![allow(clippy::needless_range_loop)] // places in several matrices follow from one number

use super::strided::{Element, Strided};
use super::{Lanes, VectorLoop};
use crate::simd::prefetch::Ahead;

/// Rows of floats, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) floats: &'a [f32],
    pub(crate) stride: usize,
}

/// `sums[i][j] += Σ left[i][k] · right[k][j]`, or `=` if `fresh`.
pub(crate) struct Product<'a, E> {
    /// `[rows, depth]`
    pub(crate) left: Matrix<'a>,
    /// `[depth, columns]`, of columns that are a multiple of 16.
    pub(crate) right: Strided<'a, E>,
    /// `[rows, columns]`, and how far rows are apart.
    pub(crate) sums: &'a mut [f32],
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    pub(crate) fresh: bool,
    /// What will be read later, for every row on the right.
    pub(crate) ahead: Ahead,
}

/// Floats from the first to the last of a matrix.
pub(super) fn extent(rows: usize, columns: usize, stride: usize) -> usize {
    rows.checked_sub(1).map_or(0, |last| last * stride + columns)
}

impl<E: Element> VectorLoop for Product<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let (rows, depth, columns) = (self.rows, self.right.rows(), self.right.length());
        assert!(columns.is_multiple_of(16));
        assert!(extent(rows, depth, self.left.stride) <= self.left.floats.len());
        assert!(extent(rows, columns, self.stride) <= self.sums.len());
        let mut row = 0;
        while row < rows {
            match rows - row {
                1 => self.strip::<L, 1>(row),
                2 => self.strip::<L, 2>(row),
                3 => self.strip::<L, 3>(row),
                _ => self.strip::<L, 4>(row),
            }
            row += 4;
        }
    }
}

impl<E: Element> Product<'_, E> {
    #[inline(always)]
    fn strip<L: Lanes, const ROWS: usize>(&mut self, row: usize) {
        let (columns, mut column) = (self.right.length(), 0);
        // 16 sums fit the registers of AVX-512, 8 those of AVX2.
        while L::COUNT == 16 && column + 64 <= columns {
            self.tile::<L, ROWS, 4>(row, column);
            column += 64;
        }
        while column < columns {
            if L::COUNT == 16 {
                self.tile::<L, ROWS, 1>(row, column);
            } else {
                self.tile::<L, ROWS, 2>(row, column);
            }
            column += 16;
        }
    }

    /// `ROWS` rows and `WIDTH` vectors of sums, which stay in registers; `run` has checked that all of it is there.
    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const WIDTH: usize>(&mut self, row: usize, column: usize) {
        let left = self.left.floats.as_ptr().wrapping_add(row * self.left.stride);
        let out = self.sums.as_mut_ptr().wrapping_add(row * self.stride + column);
        let mut sums = [[L::splat(0.0); WIDTH]; ROWS];
        if !self.fresh {
            for i in 0..ROWS {
                for j in 0..WIDTH {
                    // SAFETY: `load` asks for a vector of floats, which is inside `sums`.
                    sums[i][j] = unsafe { L::load(out.wrapping_add(i * self.stride + j * L::COUNT)) };
                }
            }
        }
        for k in 0..self.right.rows() {
            if (row, column) == (0, 0) {
                self.ahead.fetch();
            }
            let mut factors = [L::splat(0.0); WIDTH];
            for j in 0..WIDTH {
                // SAFETY: `load` asks for elements that the row has, see `strip`.
                factors[j] = unsafe { self.right.load(k, column + j * L::COUNT) };
            }
            for i in 0..ROWS {
                // SAFETY: a readable float, inside `left`.
                let factor = L::splat(unsafe { *left.wrapping_add(i * self.left.stride + k) });
                for j in 0..WIDTH {
                    sums[i][j] = factor.mul_add(factors[j], sums[i][j]);
                }
            }
        }
        for i in 0..ROWS {
            for j in 0..WIDTH {
                // SAFETY: `store` asks for room for a vector, which is inside `sums`.
                unsafe { sums[i][j].store(out.wrapping_add(i * self.stride + j * L::COUNT)) };
            }
        }
    }
}

/// `out[j][i] = from[i][j]`.
pub(crate) struct Transposition<'a> {
    /// `[rows, columns]`
    pub(crate) from: Matrix<'a>,
    /// `[columns, rows]`, and how far rows are apart.
    pub(crate) out: &'a mut [f32],
    pub(crate) stride: usize,
    /// A multiple of 16.
    pub(crate) rows: usize,
    /// A multiple of 16.
    pub(crate) columns: usize,
}

impl VectorLoop for Transposition<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Transposition { from, stride, rows, columns, .. } = self;
        assert!(rows.is_multiple_of(16) && columns.is_multiple_of(16));
        assert!(extent(rows, columns, from.stride) <= from.floats.len());
        assert!(extent(columns, rows, stride) <= self.out.len());
        let (from, from_stride, out) = (from.floats.as_ptr(), from.stride, self.out.as_mut_ptr());
        for row in (0..rows).step_by(L::COUNT) {
            for column in (0..columns).step_by(L::COUNT) {
                let mut block = [L::splat(0.0); 16];
                for i in 0..L::COUNT {
                    // SAFETY: `load` asks for a vector of floats, which is inside `from`, checked above.
                    block[i] = unsafe { L::load(from.wrapping_add((row + i) * from_stride + column)) };
                }
                L::transpose(&mut block);
                for i in 0..L::COUNT {
                    // SAFETY: `store` asks for room for a vector, which is inside `out`, checked above.
                    unsafe { block[i].store(out.wrapping_add((column + i) * stride + row)) };
                }
            }
        }
    }
}
