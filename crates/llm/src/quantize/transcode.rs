//! Converting the values of a tensor from one type to another, by several threads, with bounded memory.

use std::io::{self, Write};
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use orlop_graph::DType;
use orlop_quant::{QuantError, decode, encode, encode_weighted};

/// Elements that a thread takes at a time: whole blocks of every type.
const PIECE: usize = 1 << 16;
/// Pieces for each thread between two writes.
const PIECES: usize = 8;
/// Maximum of threads, so that a large number cannot use up memory.
const THREADS: usize = 256;

/// The importance of the elements of a tensor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights<'a> {
    /// Those of a row of each matrix.
    pub(super) values: &'a [f32],
    /// Elements of a row.
    pub(super) columns: usize,
    /// Elements of a matrix.
    pub(super) matrix: usize,
}

impl Weights<'_> {
    /// Those of the elements from `first` on.
    fn put(&self, first: usize, out: &mut [f32]) {
        let mut element = first;
        let mut rest = out;
        while !rest.is_empty() {
            let column = element % self.columns;
            let length = rest.len().min(self.columns - column);
            let (row, others) = rest.split_at_mut(length);
            row.copy_from_slice(&self.values[element / self.matrix * self.columns + column..][..length]);
            (rest, element) = (others, element + length);
        }
    }
}

/// Conversion of values of one type to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transcode<'a> {
    pub(super) from: DType,
    pub(super) to: DType,
    pub(super) threads: usize,
    pub(super) weights: Option<Weights<'a>>,
}

impl Transcode<'_> {
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
        for (round, bytes) in bytes.chunks(read * at_once).enumerate() {
            let blocks = bytes.len() / self.from.block_bytes() as usize;
            let elements = (blocks as u64) * self.from.block_elements();
            let length = self.to.row_bytes(elements).ok_or_else(|| io::Error::other("no whole blocks"))?;
            let encoded = &mut encoded[..length as usize];
            let firsts = (round * at_once..).map(|piece| piece * PIECE);
            let pieces = bytes.chunks(read).zip(encoded.chunks_mut(made)).zip(firsts);
            self.round(threads, pieces.map(|((bytes, encoded), first)| (first, bytes, encoded)))?;
            out.write_all(encoded)?;
            report(bytes.len() as u64);
        }
        Ok(())
    }

    /// Converts all pieces; threads take them one by one.
    fn round<'a>(
        &self,
        threads: usize,
        pieces: impl Iterator<Item = (usize, &'a [u8], &'a mut [u8])> + Send,
    ) -> io::Result<()> {
        let pieces = Mutex::new(pieces);
        let work = || {
            let mut values = Vec::with_capacity(PIECE);
            let mut weights = Vec::new();
            loop {
                let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((first, bytes, encoded)) = next else { return Ok(()) };
                self.piece(bytes, &mut values, |values| match &self.weights {
                    Some(all) => {
                        weights.resize(values.len(), 0.0);
                        all.put(first, &mut weights);
                        encode_weighted(self.to, values, &weights, encoded)
                    }
                    None => encode(self.to, values, encoded),
                })?;
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

    /// Decodes a piece, checks it and encodes it.
    fn piece(
        &self,
        bytes: &[u8],
        values: &mut Vec<f32>,
        encode: impl FnOnce(&[f32]) -> Result<(), QuantError>,
    ) -> io::Result<()> {
        let blocks = bytes.len() / self.from.block_bytes() as usize;
        values.resize(blocks * self.from.block_elements() as usize, 0.0);
        decode(self.from, bytes, values).map_err(io::Error::other)?;
        if !values.iter().all(|value| value.is_finite()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it has values that are not finite numbers",
            ));
        }
        encode(values).map_err(io::Error::other)
    }
}

fn piece_bytes(dtype: DType) -> usize {
    PIECE / dtype.block_elements() as usize * dtype.block_bytes() as usize
}
