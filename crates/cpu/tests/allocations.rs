//! What runs on a pool takes no memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_cpu::ThreadPool;
use orlop_testkit::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

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
        let before = CountingAllocator::calls();
        (0..1000).for_each(|_| run());
        assert_eq!(CountingAllocator::calls() - before, 0, "{threads} threads");
        assert_eq!(calls.load(Ordering::SeqCst), 1100 * threads);
    }
}
