//! Products of many rows with others that were turned into columns.

#![allow(clippy::needless_range_loop)] // places in several matrices follow from one number

use super::product::{Matrix, extent};
use super::{Lanes, VectorLoop};

/// The same numbers as [`Scores`](super::Scores), to the bit, from columns: `scores[i][j] = Σ left[i][k] · right[k][j]`.
///
/// `Scores` adds the lanes of a vector of products at the end. Here a lane is a sum of its own over every
/// `L::COUNT`-th column, and the sums are added in the order in which `Scores` adds lanes.
pub(crate) struct ColumnScores<'a> {
    /// `[count, depth]`
    pub(crate) left: Matrix<'a>,
    /// `[depth, columns]`
    pub(crate) right: Matrix<'a>,
    /// A multiple of 16.
    pub(crate) depth: usize,
    /// A multiple of 16.
    pub(crate) columns: usize,
    /// `[count, columns]`, and how far rows are apart.
    pub(crate) scores: &'a mut [f32],
    pub(crate) stride: usize,
    pub(crate) count: usize,
}

impl VectorLoop for ColumnScores<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let ColumnScores { left, right, depth, columns, stride, count, .. } = self;
        assert!(depth.is_multiple_of(16) && columns.is_multiple_of(16));
        assert!(extent(count, depth, left.stride) <= left.floats.len());
        assert!(extent(depth, columns, right.stride) <= right.floats.len());
        assert!(extent(count, columns, stride) <= self.scores.len());
        for first in (0..count).step_by(3) {
            match count - first {
                1 => self.strip::<L, 1>(first),
                2 => self.strip::<L, 2>(first),
                _ => self.strip::<L, 3>(first),
            }
        }
    }
}

impl ColumnScores<'_> {
    #[inline(always)]
    fn strip<L: Lanes, const ROWS: usize>(&mut self, first: usize) {
        let mut column = 0;
        // 24 sums fit the registers of AVX-512, 12 those of AVX2.
        while L::COUNT == 16 && column + 32 <= self.columns {
            self.tile::<L, ROWS, 2>(first, column);
            column += 32;
        }
        while column < self.columns {
            self.tile::<L, ROWS, 1>(first, column);
            column += L::COUNT;
        }
    }

    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const WIDTH: usize>(&mut self, first: usize, column: usize) {
        let mut quarters = [[[L::splat(0.0); WIDTH]; ROWS]; 4];
        for quarter in 0..L::COUNT / 4 {
            quarters[quarter] = self.quarter::<L, ROWS, WIDTH>(first, column, 4 * quarter);
        }
        let [a, b, c, d] = quarters;
        let all = if L::COUNT == 16 { added(added(a, b), added(c, d)) } else { added(a, b) };
        let out = self.scores.as_mut_ptr().wrapping_add(first * self.stride + column);
        for i in 0..ROWS {
            for j in 0..WIDTH {
                // SAFETY: `store` asks for room for a vector, which is inside `scores`: `run` has checked it.
                unsafe { all[i][j].store(out.wrapping_add(i * self.stride + j * L::COUNT)) };
            }
        }
    }

    /// What four neighbouring lanes come to, from `lane` on.
    #[inline(always)]
    fn quarter<L: Lanes, const ROWS: usize, const WIDTH: usize>(
        &self,
        first: usize,
        column: usize,
        lane: usize,
    ) -> [[L; WIDTH]; ROWS] {
        let stride = self.right.stride;
        let mut left = self.left.floats.as_ptr().wrapping_add(first * self.left.stride + lane);
        let mut right = self.right.floats.as_ptr().wrapping_add(lane * stride + column);
        let mut sums = [[[L::splat(0.0); WIDTH]; ROWS]; 4];
        for _ in 0..self.depth / L::COUNT {
            for k in 0..4 {
                let mut factors = [L::splat(0.0); WIDTH];
                for j in 0..WIDTH {
                    // SAFETY: `load` asks for a vector of floats, which is inside `right`: `run` has checked it.
                    factors[j] = unsafe { L::load(right.wrapping_add(k * stride + j * L::COUNT)) };
                }
                for i in 0..ROWS {
                    // SAFETY: a readable float, inside `left`: `run` has checked it.
                    let element = L::splat(unsafe { *left.wrapping_add(i * self.left.stride + k) });
                    for j in 0..WIDTH {
                        sums[k][i][j] = element.mul_add(factors[j], sums[k][i][j]);
                    }
                }
            }
            left = left.wrapping_add(L::COUNT);
            right = right.wrapping_add(L::COUNT * stride);
        }
        let [a, b, c, d] = L::QUARTER;
        added(added(sums[a], sums[b]), added(sums[c], sums[d]))
    }
}

#[inline(always)]
fn added<L: Lanes, const ROWS: usize, const WIDTH: usize>(
    a: [[L; WIDTH]; ROWS],
    b: [[L; WIDTH]; ROWS],
) -> [[L; WIDTH]; ROWS] {
    let mut sums = a;
    for i in 0..ROWS {
        for j in 0..WIDTH {
            sums[i][j] = a[i][j].add(b[i][j]);
        }
    }
    sums
}
