//! [Large pages](https://docs.kernel.org/admin-guide/mm/transhuge.html) for large buffers: fewer page faults when they are
//! filled, and far fewer TLB misses when they are read. On virtual machines a TLB miss costs several accesses to memory, and
//! a stream over small pages runs at two thirds of the speed.

use std::ptr::NonNull;

/// Bytes of a large page.
#[cfg(target_os = "linux")]
const LARGE: usize = 2 << 20;

/// The size and alignment to allocate instead of these, so that the memory can lie on large pages alone.
pub(crate) fn rounded(bytes: usize, alignment: usize) -> Option<(usize, usize)> {
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        return Some((bytes.checked_next_multiple_of(LARGE)?, alignment.max(LARGE)));
    }
    Some((bytes, alignment))
}

/// Whether the system gives large pages on request.
pub fn has_large_pages() -> bool {
    #[cfg(target_os = "linux")]
    {
        static GIVEN: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
            let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
            setting.is_ok_and(|setting| setting.contains("[always]") || setting.contains("[madvise]"))
        });
        *GIVEN
    }
    #[cfg(not(target_os = "linux"))]
    false
}

/// Asks the system for large pages for fresh memory; it may or may not give them.
#[cfg(target_os = "linux")]
pub(crate) fn prefer_large(start: NonNull<u8>, bytes: usize) {
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
