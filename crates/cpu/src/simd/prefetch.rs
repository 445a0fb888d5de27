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

/// The same, for any place.
#[inline(always)]
pub(crate) fn prefetch_soon(start: *const u8, bytes: usize) {
    fetch_all(start, bytes, Hint::Soon);
}

/// A place that can be fetched, as one number: up to 255 lines, and the number of the first. None, if it is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Far(u64);

impl Far {
    pub(crate) fn of<T>(items: &[T]) -> Far {
        Far::at(items.as_ptr().cast(), size_of_val(items))
    }

    pub(crate) fn at(start: *const u8, bytes: usize) -> Far {
        let (first, end) = (start.addr() / LINE, (start.addr() + bytes).div_ceil(LINE));
        Far((first as u64) << 8 | (end - first).min(255) as u64)
    }

    pub(crate) fn is_nowhere(self) -> bool {
        self.0 == 0
    }

    /// It will be read soon, though not at once.
    #[inline(always)]
    pub(crate) fn fetch(&self) {
        let first = std::ptr::without_provenance((self.0 >> 8) as usize * LINE);
        fetch_all(first, (self.0 & 255) as usize * LINE, Hint::Soon);
    }
}

/// What will be read next.
#[inline(always)]
pub(crate) fn prefetch_next(start: *const u8, bytes: usize) {
    fetch_all(start, bytes, Hint::Next);
}

/// What will be written.
pub(crate) fn prefetch_to_write(start: *const u8, bytes: usize) {
    fetch_all(start, bytes, Hint::Write);
}

/// Memory that is fetched little by little, while something else is done.
pub(crate) struct Ahead {
    next: *const u8,
    lines: usize,
}

impl Ahead {
    /// Nothing.
    pub(crate) fn none() -> Ahead {
        Ahead { next: std::ptr::null(), lines: 0 }
    }

    /// This many lines at a time, for as long as [`Ahead::fetch`] is called.
    pub(crate) fn lines(start: *const u8, lines: usize) -> Ahead {
        Ahead { next: start, lines }
    }

    /// All of it, if [`Ahead::fetch`] is called this many times.
    pub(super) fn new(bytes: &[u8], times: usize) -> Ahead {
        Ahead { next: bytes.as_ptr(), lines: bytes.len().div_ceil(LINE).div_ceil(times.max(1)) }
    }

    #[inline(always)]
    pub(crate) fn fetch(&mut self) {
        for _ in 0..self.lines {
            fetch(self.next, Hint::Soon);
            self.next = self.next.wrapping_add(LINE);
        }
    }
}
