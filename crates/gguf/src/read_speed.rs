//! How fast a model's file is read.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const PIECE: u64 = 4 << 20;

/// Bytes a second that are read from a file, by pieces all over it that are read for about this time, at least one. What the
/// system keeps in memory is read as fast as that.
///
/// # Errors
/// What the system says of the file; a file without a byte.
pub fn read_speed(path: &Path, time: Duration) -> io::Result<f64> {
    let mut file = File::open(path)?;
    let pieces = file.metadata()?.len().div_ceil(PIECE);
    let mut buffer = Vec::with_capacity(PIECE as usize);
    let (begin, mut bytes) = (Instant::now(), 0u64);
    for index in 0..pieces {
        // Each as far from those before as can be, by the golden ratio: nothing is read ahead for it.
        let piece = (index as f64 * 0.618_033_988_75).fract() * pieces as f64;
        file.seek(SeekFrom::Start(piece as u64 * PIECE))?;
        buffer.clear();
        bytes += (&mut file).take(PIECE).read_to_end(&mut buffer)? as u64;
        if begin.elapsed() >= time {
            break;
        }
    }
    if bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes as f64 / begin.elapsed().as_secs_f64().max(1e-9))
}
