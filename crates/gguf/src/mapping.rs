//! Files mapped into memory. The one unsafe module of this crate.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// Maps a file to be read.
pub(crate) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no plain file, so it cannot be mapped",
        ));
    }
    // SAFETY: `map` asks that nobody changes or cuts the file while it is mapped. This process cannot make
    // others keep that, and no check here could: `GgufPart::open` passes the duty on to whoever calls it, in its
    // documentation. On our side, the mapping is private and only ever read, lengths and offsets are copied
    // out before they are checked, and `Writer::create` replaces files instead of writing into them.
    unsafe { Mmap::map(&file) }
}

/// Tells the system that a range will not be read soon, so that its pages need not stay in memory. What is read there
/// all the same comes from the file again.
pub(crate) fn release(map: &Mmap, range: Range<usize>) {
    #[cfg(unix)]
    {
        let page = 4096;
        let start = range.start.next_multiple_of(page);
        let end = range.end / page * page;
        if start < end {
            // SAFETY: `unchecked_advise_range` asks that nobody relies on the pages' contents being kept: they are the
            // file's, in a mapping that is only read, and come from there again. Advice that is refused costs nothing.
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
        }
    }
    #[cfg(not(unix))]
    let _ = (map, range);
}
