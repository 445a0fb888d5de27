//! Asking the processor to fetch memory before it is needed. Addresses need not be ones that may be read.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // others have processors that fetch by themselves

/// Bytes that are fetched at once.
const LINE: usize = 64;

/// Where to, and what for.
#[derive(Clone, Copy)]
enum Hint {
    Soon,
    Next,
    Write,
}

#[inline(always)]
fn fetch(line: *const u8, hint: Hint) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match hint {
            // SAFETY: `_mm_prefetch` asks for SSE, which every processor of this architecture has, and for no memory.
            Hint::Soon => unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) },
            // SAFETY: as above.
            Hint::Next => unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) },
            // SAFETY: as above.
            Hint::Write => unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.cast()) },
        }
    }
    let _ = (line, hint);
}

#[inline(always)]
fn fetch_all(start: *const u8, bytes: usize, hint: Hint) {
    for line in 0..bytes.div_ceil(LINE) {
        fetch(start.wrapping_add(LINE * line), hint);
    }
}

/// What will be read soon, though not at once.
pub(crate) fn prefetch<T>(items: &[T]) {
    fetch_all(items.as_ptr().cast(), size_of_val(items), Hint::Soon);
}

/// What will be read next.
#[inline(always)]
pub(super) fn prefetch_next(start: *const u8, bytes: usize) {
    fetch_all(start, bytes, Hint::Next);
}

/// What will be written.
pub(crate) fn prefetch_to_write(start: *const u8, bytes: usize) {
    fetch_all(start, bytes, Hint::Write);
}

/// Memory that is fetched little by little, while something else is done.
pub(super) struct Ahead {
    next: *const u8,
    lines: usize,
}

impl Ahead {
    /// All of it, if [`Ahead::fetch`] is called this many times.
    pub(super) fn new(bytes: &[u8], times: usize) -> Ahead {
        Ahead { next: bytes.as_ptr(), lines: bytes.len().div_ceil(LINE).div_ceil(times.max(1)) }
    }

    #[inline(always)]
    pub(super) fn fetch(&mut self) {
        for _ in 0..self.lines {
            fetch(self.next, Hint::Soon);
            self.next = self.next.wrapping_add(LINE);
        }
    }
}
