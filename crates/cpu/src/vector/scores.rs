//! Products of few rows with many that need not be turned into columns first.

#![allow(clippy::needless_range_loop)] // places in several matrices follow from one number

use super::product::{Matrix, extent};
use super::strided::{Element, Strided};
use super::{Lanes, VectorLoop};
use crate::simd::prefetch::Ahead;

/// `scores[i][j] = Σ left[i][k] · right[j][k]`. What follows in a row of scores may be overwritten, up to a multiple
/// of 16.
pub(crate) struct Scores<'a, E> {
    /// `[count, depth]`
    pub(crate) left: Matrix<'a>,
    /// `[rows, depth]`, of a depth that is a multiple of 16.
    pub(crate) right: Strided<'a, E>,
    /// `[count, rows]`, and how far rows are apart.
    pub(crate) scores: &'a mut [f32],
    pub(crate) stride: usize,
    pub(crate) count: usize,
    /// What will be read later, for every four rows.
    pub(crate) ahead: Ahead,
}

impl<E: Element> VectorLoop for Scores<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let (rows, depth) = (self.right.rows(), self.right.length());
        assert!(depth.is_multiple_of(16) && rows.next_multiple_of(16) <= self.stride);
        assert!(extent(self.count, depth, self.left.stride) <= self.left.floats.len());
        assert!(extent(self.count, rows.next_multiple_of(16), self.stride) <= self.scores.len());
        for first in (0..self.count).step_by(4) {
            match self.count - first {
                1 => self.strip::<L, 1>(first),
                2 => self.strip::<L, 2>(first),
                3 => self.strip::<L, 3>(first),
                _ => self.strip::<L, 4>(first),
            }
        }
    }
}

impl<E: Element> Scores<'_, E> {
    /// `COUNT` rows of `left` with all of `right`.
    #[inline(always)]
    fn strip<L: Lanes, const COUNT: usize>(&mut self, first: usize) {
        for row in (0..self.right.rows()).step_by(L::COUNT) {
            let mut fours = [[L::splat(0.0); 4]; COUNT];
            for four in 0..L::COUNT / 4 {
                if first == 0 {
                    self.ahead.fetch();
                }
                let products = self.products::<L, COUNT>(first, row + 4 * four);
                for i in 0..COUNT {
                    fours[i][four] = L::four_sums(products[i]);
                }
            }
            for i in 0..COUNT {
                let out = self.scores.as_mut_ptr().wrapping_add((first + i) * self.stride + row);
                // SAFETY: `store` asks for room for a vector, which is inside `scores`: `run` has checked it.
                unsafe { L::joined(fours[i]).store(out) };
            }
        }
    }

    /// Lanes whose sums are the products of `COUNT` rows of `left` with four of `right`, from `row` on. Beyond the last
    /// row, it is that again.
    #[inline(always)]
    fn products<L: Lanes, const COUNT: usize>(&self, first: usize, row: usize) -> [[L; 4]; COUNT] {
        let rows = [0, 1, 2, 3].map(|j| (row + j).min(self.right.rows() - 1));
        let (length, mut column) = (self.right.length(), 0);
        let mut sums = [[L::splat(0.0); 4]; COUNT];
        // 28 vectors fit the registers of AVX-512.
        while L::COUNT == 16 && column + 64 <= length {
            self.add::<L, COUNT, 4>(first, rows, column, &mut sums);
            column += 64;
        }
        while column < length {
            self.add::<L, COUNT, 1>(first, rows, column, &mut sums);
            column += L::COUNT;
        }
        sums
    }

    /// Adds the products of `WIDTH` vectors of columns. Rows are read one after the other, as they lie: processors fetch
    /// ahead of that alone.
    #[inline(always)]
    fn add<L: Lanes, const COUNT: usize, const WIDTH: usize>(
        &self,
        first: usize,
        rows: [usize; 4],
        column: usize,
        sums: &mut [[L; 4]; COUNT],
    ) {
        let left = self.left.floats.as_ptr().wrapping_add(first * self.left.stride);
        let mut factors = [[L::splat(0.0); WIDTH]; 4];
        for j in 0..4 {
            for c in 0..WIDTH {
                // SAFETY: `load` asks for elements that the row has: its length is a multiple of 16.
                factors[j][c] = unsafe { self.right.load(rows[j], column + c * L::COUNT) };
            }
        }
        for c in 0..WIDTH {
            for i in 0..COUNT {
                let place = i * self.left.stride + column + c * L::COUNT;
                // SAFETY: `load` asks for a vector of floats, which is inside `left`: `run` has checked it.
                let elements = unsafe { L::load(left.wrapping_add(place)) };
                for j in 0..4 {
                    sums[i][j] = elements.mul_add(factors[j][c], sums[i][j]);
                }
            }
        }
    }
}
