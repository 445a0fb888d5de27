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
        for first in (0..count).step_by(4) {
            match count - first {
                1 => self.strip::<L, 1>(first),
                2 => self.strip::<L, 2>(first),
                3 => self.strip::<L, 3>(first),
                _ => self.strip::<L, 4>(first),
            }
        }
    }
}

impl ColumnScores<'_> {
    #[inline(always)]
    fn strip<L: Lanes, const ROWS: usize>(&mut self, first: usize) {
        // Three times so many vectors fit the registers of AVX-512, or of AVX2.
        if L::COUNT == 16 {
            (0..self.columns).step_by(32).for_each(|column| match self.columns - column {
                16 => self.tile::<L, ROWS, 1>(first, column),
                _ => self.tile::<L, ROWS, 2>(first, column),
            });
        } else {
            (0..self.columns).step_by(L::COUNT).for_each(|column| self.tile::<L, ROWS, 1>(first, column));
        }
    }

    #[inline(always)]
    fn tile<L: Lanes, const ROWS: usize, const WIDTH: usize>(&mut self, first: usize, column: usize) {
        let mut quarters = [[[L::splat(0.0); WIDTH]; ROWS]; 4];
        for quarter in 0..L::COUNT / 4 {
            let lane = |lane| self.lane::<L, ROWS, WIDTH>(first, column, 4 * quarter + lane);
            let even = sums(lane(L::QUARTER[0]), lane(L::QUARTER[1]));
            quarters[quarter] = sums(even, sums(lane(L::QUARTER[2]), lane(L::QUARTER[3])));
        }
        let [a, b, c, d] = quarters;
        let all = if L::COUNT == 16 { sums(sums(a, b), sums(c, d)) } else { sums(a, b) };
        let out = self.scores.as_mut_ptr().wrapping_add(first * self.stride + column);
        for i in 0..ROWS {
            for j in 0..WIDTH {
                // SAFETY: `store` asks for room for a vector, which is inside `scores`: `run` has checked it.
                unsafe { all[i][j].store(out.wrapping_add(i * self.stride + j * L::COUNT)) };
            }
        }
    }

    /// Sums over every `L::COUNT`-th of the depth, from `lane` on.
    #[inline(always)]
    fn lane<L: Lanes, const ROWS: usize, const WIDTH: usize>(
        &self,
        first: usize,
        column: usize,
        lane: usize,
    ) -> [[L; WIDTH]; ROWS] {
        let left = self.left.floats.as_ptr().wrapping_add(first * self.left.stride);
        let right = self.right.floats.as_ptr().wrapping_add(column);
        let mut sums = [[L::splat(0.0); WIDTH]; ROWS];
        for k in (lane..self.depth).step_by(L::COUNT) {
            let mut factors = [L::splat(0.0); WIDTH];
            for j in 0..WIDTH {
                // SAFETY: `load` asks for a vector of floats, which is inside `right`: `run` has checked it.
                factors[j] = unsafe { L::load(right.wrapping_add(k * self.right.stride + j * L::COUNT)) };
            }
            for i in 0..ROWS {
                // SAFETY: a readable float, inside `left`: `run` has checked it.
                let element = L::splat(unsafe { *left.wrapping_add(i * self.left.stride + k) });
                for j in 0..WIDTH {
                    sums[i][j] = element.mul_add(factors[j], sums[i][j]);
                }
            }
        }
        sums
    }
}

#[inline(always)]
fn sums<L: Lanes, const ROWS: usize, const WIDTH: usize>(
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
