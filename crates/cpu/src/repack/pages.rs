//! Large pages for large buffers: fewer faults when weights are loaded, fewer misses when they are read.

use orlop_backend::Buffer;

/// Asks the system for large pages; it may or may not give them.
#[cfg(target_os = "linux")]
pub(super) fn prefer_large(buffer: &dyn Buffer) {
    const LARGE: usize = 2 << 20;
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(address: *mut u8, bytes: usize, advice: i32) -> i32;
    }
    let Some(span) = buffer.host() else { return };
    let (start, bytes) = (span.base.as_ptr(), span.bytes as usize);
    let skipped = start.addr().next_multiple_of(LARGE) - start.addr();
    let whole = bytes.saturating_sub(skipped) / LARGE * LARGE;
    if whole > 0 {
        // SAFETY: `madvise` asks for a range of mapped pages, and these are whole pages inside the buffer, mapped for as
        // long as that lives. The advice changes neither contents nor rights.
        unsafe { madvise(start.wrapping_add(skipped), whole, MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn prefer_large(_: &dyn Buffer) {}
