//! Large pages for large buffers: fewer faults when they are filled, and far fewer misses when they are read: on virtual
//! machines a miss costs several trips to memory.

use std::ptr::NonNull;

/// Asks the system for large pages for fresh memory; it may or may not give them.
#[cfg(target_os = "linux")]
pub(crate) fn prefer_large(start: NonNull<u8>, bytes: usize) {
    const LARGE: usize = 2 << 20;
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(address: *mut u8, bytes: usize, advice: i32) -> i32;
    }
    let start = start.as_ptr();
    let skipped = start.addr().next_multiple_of(LARGE) - start.addr();
    let whole = bytes.saturating_sub(skipped) / LARGE * LARGE;
    if whole > 0 {
        // SAFETY: `madvise` asks for a range of mapped pages: these are whole pages inside memory that the caller has
        // just allocated. The advice changes neither contents nor rights.
        unsafe { madvise(start.wrapping_add(skipped), whole, MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn prefer_large(_: NonNull<u8>, _: usize) {}
