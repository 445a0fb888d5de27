//! What runs on a pool takes no memory.
#![allow(clippy::unwrap_used)] // whatever is here is a test

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_cpu::ThreadPool;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The only test of this binary: another one's allocations would be counted as well.
#[test]
fn a_run_takes_no_memory() {
    for threads in [1, 2, 4] {
        let (pool, calls) = (ThreadPool::new(threads).unwrap(), AtomicUsize::new(0));
        let run = || {
            pool.run(threads, &|_| {
                calls.fetch_add(1, Ordering::SeqCst);
            });
        };
        // Threads take memory when they begin.
        (0..100).for_each(|_| run());
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        (0..1000).for_each(|_| run());
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst) - before, 0, "{threads} threads");
        assert_eq!(calls.load(Ordering::SeqCst), 1100 * threads);
    }
}
