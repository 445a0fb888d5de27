//! Files mapped into memory. The one unsafe module of this crate.

use std::fs::File;
use std::io;
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
    // others keep that, and no check here could: `File::open` passes the duty on to whoever calls it, in its
    // documentation. On our side, the mapping is private and only ever read, lengths and offsets are copied
    // out before they are checked, and `Writer::create` replaces files instead of writing into them.
    unsafe { Mmap::map(&file) }
}
