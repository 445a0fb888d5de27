//! Memory-mapped files. The only unsafe module of this crate.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::{Mmap, MmapMut, MmapOptions};

/// Maps a file for reading.
pub(crate) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // SAFETY: `map` requires that the file is not modified or truncated while it is mapped. No check can enforce
    // that for other processes: the documentation of `GgufPart::open` passes the requirement to its caller. On
    // our side, the mapping is private and read-only, lengths and offsets are copied before they are checked,
    // and `Writer::create` replaces files instead of writing into them.
    unsafe { Mmap::map(&file) }
}

/// Zeros that take memory only where they are written.
pub(crate) fn zeros(bytes: usize) -> io::Result<MmapMut> {
    MmapOptions::new().len(bytes).no_reserve_swap().map_anon()
}

/// Advises the system that a range is read in order (`MADV_SEQUENTIAL`): it reads ahead, and keeps pages that were read no
/// longer than others.
pub(crate) fn read_in_order(map: &Mmap, range: Range<usize>) {
    // Failure of the advice is harmless.
    #[cfg(unix)]
    let _ = map.advise_range(memmap2::Advice::Sequential, range.start, range.len());
    #[cfg(not(unix))]
    let _ = (map, range);
}

/// Advises the system to drop the pages of a range (`MADV_DONTNEED`). A later read loads them from the file again.
pub(crate) fn release(map: &Mmap, range: Range<usize>) {
    #[cfg(unix)]
    {
        let page = 4096;
        let start = range.start.next_multiple_of(page);
        let end = range.end / page * page;
        if start < end {
            // SAFETY: `unchecked_advise_range` requires that the pages' contents may be lost: the mapping is read-only,
            // so they are reloaded from the file. Failure of the advice is harmless.
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
        }
    }
    #[cfg(not(unix))]
    let _ = (map, range);
}
