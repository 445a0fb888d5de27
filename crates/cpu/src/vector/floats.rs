use std::marker::PhantomData;

use super::Lanes;

/// Floats to read, at any address. Unlike a slice, it may lie exactly on a [`FloatsMut`]: a loop reads each vector
/// before it writes the one in its place.
#[derive(Clone, Copy)]
pub(crate) struct Floats<'a> {
    base: *const f32,
    length: usize,
    lifetime: PhantomData<&'a f32>,
}

/// Floats to write, at any address.
pub(crate) struct FloatsMut<'a> {
    base: *mut f32,
    length: usize,
    lifetime: PhantomData<&'a mut f32>,
}

impl<'a> Floats<'a> {
    /// # Safety
    /// For as long as the result is used, the floats can be read and only its user writes them.
    pub(crate) unsafe fn new(base: *const f32, length: usize) -> Floats<'a> {
        Floats { base, length, lifetime: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// One of them.
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> f32 {
        assert!(at < self.length);
        // SAFETY: `read_unaligned` asks for a readable float: the assertion says that it is one of those that `new`'s contract
        // makes readable.
        unsafe { self.base.wrapping_add(at).read_unaligned() }
    }

    /// The vector from number `at` on; what is beyond the end is 0.
    #[inline(always)]
    pub(super) fn load<L: Lanes>(&self, at: usize) -> L {
        assert!(at < self.length);
        let (from, rest) = (self.base.wrapping_add(at), self.length - at);
        if rest >= L::COUNT {
            // SAFETY: `Lanes::load` asks for `COUNT` readable floats: `rest` are left of those that `new`'s contract makes readable.
            unsafe { L::load(from) }
        } else {
            // SAFETY: `Lanes::load_first` asks for fewer than `COUNT` readable floats: `rest` are left, checked above.
            unsafe { L::load_first(from, rest) }
        }
    }
}

impl<'a> From<&'a [f32]> for Floats<'a> {
    fn from(floats: &'a [f32]) -> Floats<'a> {
        Floats { base: floats.as_ptr(), length: floats.len(), lifetime: PhantomData }
    }
}

impl<'a> FloatsMut<'a> {
    /// # Safety
    /// For as long as the result is used, the floats can be read and written and only its user touches them.
    pub(crate) unsafe fn new(base: *mut f32, length: usize) -> FloatsMut<'a> {
        FloatsMut { base, length, lifetime: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The same floats to read.
    pub(crate) fn as_floats(&self) -> Floats<'a> {
        Floats { base: self.base, length: self.length, lifetime: PhantomData }
    }

    /// Writes a vector from number `at` on; what is beyond the end is left out.
    #[inline(always)]
    pub(super) fn store<L: Lanes>(&mut self, at: usize, lanes: L) {
        assert!(at < self.length);
        let (to, rest) = (self.base.wrapping_add(at), self.length - at);
        if rest >= L::COUNT {
            // SAFETY: `Lanes::store` asks for `COUNT` writable floats: `rest` are left of those that `new`'s contract makes writable.
            unsafe { lanes.store(to) }
        } else {
            // SAFETY: `Lanes::store_first` asks for fewer than `COUNT` writable floats: `rest` are left, checked above.
            unsafe { lanes.store_first(to, rest) }
        }
    }
}

impl<'a> From<&'a mut [f32]> for FloatsMut<'a> {
    fn from(floats: &'a mut [f32]) -> FloatsMut<'a> {
        FloatsMut { base: floats.as_mut_ptr(), length: floats.len(), lifetime: PhantomData }
    }
}
