//! Memory-mapped files.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::{Mmap, MmapMut, MmapOptions};

#[cfg(unix)]
use crate::bus_error::{self, Watch};

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Dropped before the mapping, whose addresses may then be another's.
    #[cfg(unix)]
    watch: Watch,
    map: Mmap,
}

impl Mapping {
    /// Whether a page could not be read.
    pub(crate) fn is_damaged(&self) -> bool {
        #[cfg(unix)]
        return self.watch.is_damaged();
        #[cfg(not(unix))]
        false
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

/// Handles SIGBUS for mapped model files, from now on and for the whole process: where a file cannot be read any more because
/// another program has shortened it, or its disk fails, zeros are read, and
/// [`GgufFile::check_readable`](crate::GgufFile::check_readable) says so. Without this, the process ends.
///
/// For programs, at their start; a library leaves it to the program that it is part of. Other signals of this kind go to the
/// handler that was set before. Does nothing on systems without SIGBUS.
///
/// # Errors
/// If the system refuses the handler.
pub fn handle_bus_errors() -> io::Result<()> {
    #[cfg(unix)]
    bus_error::handle()?;
    Ok(())
}

/// Maps a file for reading.
pub(crate) fn map(path: &Path) -> io::Result<Mapping> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    // SAFETY: `map` requires that the file is not modified while it is mapped. No check can enforce that for other
    // processes: the documentation of `GgufPart::open` passes the requirement to its caller. On our side, the mapping is
    // private and read-only, lengths and offsets are copied before they are checked, and `Writer::create` replaces files
    // instead of writing into them.
    let map = unsafe { Mmap::map(&file) }?;
    Ok(Mapping {
        #[cfg(unix)]
        watch: Watch::new(&map),
        map,
    })
}

/// Zeros that take memory only where they are written.
pub(crate) fn zeros(bytes: usize) -> io::Result<MmapMut> {
    MmapOptions::new().len(bytes).no_reserve_swap().map_anon()
}

/// Advises the system that a range is read in order (`MADV_SEQUENTIAL`): it reads ahead, and keeps pages that were read no
/// longer than others.
pub(crate) fn read_in_order(file: &Mapping, range: Range<usize>) {
    // Failure of the advice is harmless.
    #[cfg(unix)]
    let _ = file.map.advise_range(memmap2::Advice::Sequential, range.start, range.len());
    #[cfg(not(unix))]
    let _ = (file, range);
}

/// Advises the system to drop the pages of a range (`MADV_DONTNEED`). A later read loads them from the file again.
pub(crate) fn release(file: &Mapping, range: Range<usize>) {
    #[cfg(unix)]
    {
        let page = 4096;
        let start = range.start.next_multiple_of(page);
        let end = range.end / page * page;
        if start < end {
            // SAFETY: `unchecked_advise_range` requires that the pages' contents may be lost: the mapping is read-only,
            // so they are reloaded from the file. Failure of the advice is harmless.
            let _ = unsafe {
                file.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start)
            };
        }
    }
    #[cfg(not(unix))]
    let _ = (file, range);
}
