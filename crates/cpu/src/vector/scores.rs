//! Products of few rows with many that need not be turned into columns first.

#![allow(clippy::needless_range_loop)] // places in several matrices follow from one number

use super::product::{Matrix, extent};
use super::strided::{Element, Strided};
use super::{Lanes, Work};

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
}

impl<E: Element> Work for Scores<'_, E> {
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
            let mut products = [[L::splat(0.0); 16]; COUNT];
            let mut at = 0;
            while at < L::COUNT && row + at < self.right.rows() {
                if row + at + 4 <= self.right.rows() {
                    self.products::<L, COUNT, 4>(first, row, at, &mut products);
                    at += 4;
                } else {
                    self.products::<L, COUNT, 1>(first, row, at, &mut products);
                    at += 1;
                }
            }
            for i in 0..COUNT {
                let out = self.scores.as_mut_ptr().wrapping_add((first + i) * self.stride + row);
                // SAFETY: `store` asks for room for a vector, which is inside `scores`: `run` has checked it.
                unsafe { L::sums(&products[i]).store(out) };
            }
        }
    }

    /// Lanes whose sums are the products of `COUNT` rows of `left` with `ROWS` of `right`, from row `row + at` on.
    #[inline(always)]
    fn products<L: Lanes, const COUNT: usize, const ROWS: usize>(
        &self,
        first: usize,
        row: usize,
        at: usize,
        products: &mut [[L; 16]; COUNT],
    ) {
        let left = self.left.floats.as_ptr().wrapping_add(first * self.left.stride);
        let mut sums = [[L::splat(0.0); ROWS]; COUNT];
        for column in (0..self.right.length()).step_by(L::COUNT) {
            let mut factors = [L::splat(0.0); ROWS];
            for j in 0..ROWS {
                // SAFETY: `load` asks for elements that the row has: its length is a multiple of 16.
                factors[j] = unsafe { self.right.load(row + at + j, column) };
            }
            for i in 0..COUNT {
                // SAFETY: `load` asks for a vector of floats, which is inside `left`: `run` has checked it.
                let elements = unsafe { L::load(left.wrapping_add(i * self.left.stride + column)) };
                for j in 0..ROWS {
                    sums[i][j] = elements.mul_add(factors[j], sums[i][j]);
                }
            }
        }
        for i in 0..COUNT {
            products[i][at..at + ROWS].copy_from_slice(&sums[i]);
        }
    }
}
