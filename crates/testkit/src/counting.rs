//! An allocator that counts, for tests of how much memory code takes.
//!
//! ```
//! use orlop_testkit::CountingAllocator;
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let before = CountingAllocator::thread_calls();
//! let (list, peak) = CountingAllocator::thread_peak(|| vec![0u8; 1000]);
//! assert_eq!((list.len(), peak), (1000, 1000));
//! assert_eq!(CountingAllocator::thread_calls() - before, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, which counts calls that allocate and the bytes that each thread holds. The counts are those
/// of the process, so they stay 0 unless it is the `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

static CALLS: AtomicU64 = AtomicU64::new(0);

// Without destructors, so that they can be used while a thread starts and ends.
thread_local! {
    static THREAD_CALLS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

impl CountingAllocator {
    /// Allocations of all threads so far.
    pub fn calls() -> u64 {
        CALLS.load(Ordering::SeqCst)
    }

    /// Allocations of this thread so far.
    pub fn thread_calls() -> u64 {
        THREAD_CALLS.get()
    }

    /// What `work` gives, and the most bytes that it held at once on this thread.
    pub fn thread_peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
        let before = HELD.get();
        PEAK.set(before);
        let result = work();
        (result, PEAK.get().abs_diff(before))
    }

    fn count(bytes: usize) {
        CALLS.fetch_add(1, Ordering::SeqCst);
        THREAD_CALLS.set(THREAD_CALLS.get() + 1);
        HELD.set(HELD.get() + bytes as isize);
        PEAK.set(PEAK.get().max(HELD.get()));
    }
}

// SAFETY: `GlobalAlloc` asks for blocks that fit their layouts. Every call goes to the system's allocator as it came;
// counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CountingAllocator::count(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: the caller's promise, passed on: every block is one of the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }

    /// Counted as a new block beside the old one, as it may be.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        CountingAllocator::count(bytes);
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: the caller's promise, passed on: every block is one of the system's allocator.
        unsafe { System.realloc(block, layout, bytes) }
    }
}
