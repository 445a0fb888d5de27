//! What runs on a pool takes no memory.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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
        // Threads take memory when they begin, which may be late.
        let came = Mutex::new(HashSet::new());
        while came.lock().unwrap().len() < threads {
            pool.run(threads, &|_| {
                std::thread::sleep(Duration::from_millis(1));
                came.lock().unwrap().insert(std::thread::current().id());
            });
        }
        let before = CountingAllocator::calls();
        (0..1000).for_each(|_| run());
        assert_eq!(CountingAllocator::calls() - before, 0, "{threads} threads");
        assert_eq!(calls.load(Ordering::SeqCst), 1000 * threads);
    }
}
