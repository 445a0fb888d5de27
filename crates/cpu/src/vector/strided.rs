//! Rows of stored floats that lie at equal distances.

use std::marker::PhantomData;
use std::ops::Range;

use half::f16;

use super::Lanes;
use crate::simd::prefetch::{Ahead, prefetch_next};

/// A stored float that is loaded as a lane.
pub(crate) trait Element {
    const BYTES: usize;

    /// # Safety
    /// `L::COUNT` of them can be read there, at any address.
    unsafe fn load<L: Lanes>(from: *const u8) -> L;
}

impl Element for f32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L {
        // SAFETY: `Lanes::load` asks for `COUNT` readable floats: `load`'s contract.
        unsafe { L::load(from.cast()) }
    }
}

impl Element for f16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L {
        // SAFETY: `Lanes::load_halves` asks for `2 * COUNT` readable bytes: `load`'s contract.
        unsafe { L::load_halves(from) }
    }
}

/// Rows of elements.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a, E> {
    from: *const u8,
    /// Bytes from one row to the next.
    distance: usize,
    rows: usize,
    length: usize,
    elements: PhantomData<&'a E>,
}

impl<'a, E: Element> Strided<'a, E> {
    /// Some rows of a longer run of them.
    ///
    /// # Safety
    /// `rows` rows of `length` elements can be read from `from` on, `distance` bytes apart, as long as `'a`.
    pub(crate) unsafe fn new(from: *const u8, distance: usize, (rows, length): (usize, usize)) -> Self {
        Strided { from, distance, rows, length, elements: PhantomData }
    }

    /// Prefetches some of the rows, if they lie one after the other.
    #[inline(always)]
    pub(crate) fn prefetch(&self, rows: Range<usize>) {
        if self.distance == self.length * E::BYTES {
            let from = self.from.wrapping_add(rows.start * self.distance);
            prefetch_next(from, rows.len() * self.distance);
        }
    }

    /// The same rows little by little, this many at a time, if they are whole lines and lie one after the other.
    pub(crate) fn ahead(&self, rows: usize) -> Ahead {
        let lines = rows * self.distance / 64;
        if self.distance == self.length * E::BYTES { Ahead::lines(self.from, lines) } else { Ahead::none() }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// A vector of row `row` from element `column` on.
    ///
    /// # Safety
    /// The row has all of them.
    #[inline(always)]
    pub(super) unsafe fn load<L: Lanes>(&self, row: usize, column: usize) -> L {
        debug_assert!(row < self.rows && column + L::COUNT <= self.length);
        // SAFETY: `Element::load` asks for `COUNT` readable elements: they are the row's by `load`'s contract, and rows are readable
        // by `new`'s.
        unsafe { E::load(self.from.wrapping_add(row * self.distance + column * E::BYTES)) }
    }
}

impl Strided<'_, f16> {
    pub(super) fn element(&self, row: usize, column: usize) -> f16 {
        assert!(row < self.rows && column < self.length);
        let from = self.from.wrapping_add(row * self.distance + 2 * column).cast::<[u8; 2]>();
        // SAFETY: `read` asks for two readable bytes: the assertion says that they are a row's, which `new`'s contract makes
        // readable.
        f16::from_le_bytes(unsafe { from.read() })
    }
}

impl<'a> Strided<'a, f32> {
    /// The first `length` of every `stride` floats.
    pub(crate) fn floats(floats: &'a [f32], stride: usize, (rows, length): (usize, usize)) -> Self {
        assert!(rows == 0 || (rows - 1) * stride + length <= floats.len());
        // SAFETY: `new` asks for readable rows, checked above.
        unsafe { Strided::new(floats.as_ptr().cast(), 4 * stride, (rows, length)) }
    }
}
