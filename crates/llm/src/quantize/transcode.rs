//! Converting the values of a tensor from one type to another, by several threads, with bounded memory.

use std::io::{self, Write};
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use orlop_graph::DType;
use orlop_quant::{decode, encode};

/// Elements that a thread takes at a time: whole blocks of every type.
const PIECE: usize = 1 << 16;
/// Pieces for each thread between two writes.
const PIECES: usize = 8;
/// Maximum of threads, so that a large number cannot use up memory.
const THREADS: usize = 256;

/// Conversion of values of one type to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transcode {
    pub(super) from: DType,
    pub(super) to: DType,
    pub(super) threads: usize,
}

impl Transcode {
    /// Writes all values of a tensor, and reports bytes read. Both types have to have codecs, and blocks of both
    /// have to fill a row.
    pub(super) fn run(&self, bytes: &[u8], out: &mut dyn Write, report: &dyn Fn(u64)) -> io::Result<()> {
        if self.from == self.to {
            for bytes in bytes.chunks(piece_bytes(self.from) * PIECES) {
                out.write_all(bytes)?;
                report(bytes.len() as u64);
            }
            return Ok(());
        }
        let (read, made) = (piece_bytes(self.from), piece_bytes(self.to));
        let pieces = bytes.len().div_ceil(read);
        let threads = self.threads.min(THREADS).min(pieces).max(1);
        let at_once = pieces.min(PIECES * threads).max(1);
        let mut encoded = vec![0; made * at_once];
        for bytes in bytes.chunks(read * at_once) {
            let blocks = bytes.len() / self.from.block_bytes() as usize;
            let elements = (blocks as u64) * self.from.block_elements();
            let length = self.to.row_bytes(elements).ok_or_else(|| io::Error::other("no whole blocks"))?;
            let encoded = &mut encoded[..length as usize];
            self.round(threads, bytes.chunks(read).zip(encoded.chunks_mut(made)))?;
            out.write_all(encoded)?;
            report(bytes.len() as u64);
        }
        Ok(())
    }

    /// Converts all pieces; threads take them one by one.
    fn round<'a>(
        &self,
        threads: usize,
        pieces: impl ExactSizeIterator<Item = (&'a [u8], &'a mut [u8])> + Send,
    ) -> io::Result<()> {
        let threads = threads.min(pieces.len());
        let pieces = Mutex::new(pieces);
        let work = || {
            let mut values = Vec::with_capacity(PIECE);
            loop {
                let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((bytes, encoded)) = next else { return Ok(()) };
                self.piece(bytes, &mut values, encoded)?;
            }
        };
        thread::scope(|scope| {
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, work);
            let others = (1..threads).map(spawn).collect::<io::Result<Vec<_>>>()?;
            let mine = work();
            let theirs =
                others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            theirs.fold(mine, Result::and)
        })
    }

    fn piece(&self, bytes: &[u8], values: &mut Vec<f32>, encoded: &mut [u8]) -> io::Result<()> {
        let blocks = bytes.len() / self.from.block_bytes() as usize;
        values.resize(blocks * self.from.block_elements() as usize, 0.0);
        decode(self.from, bytes, values).map_err(io::Error::other)?;
        if !values.iter().all(|value| value.is_finite()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it has values that are not finite numbers",
            ));
        }
        encode(self.to, values, encoded).map_err(io::Error::other)
    }
}

fn piece_bytes(dtype: DType) -> usize {
    PIECE / dtype.block_elements() as usize * dtype.block_bytes() as usize
}
