//! Importance data: how large the inputs of each matrix are, so that quantizing keeps what they meet most exact.
//!
//! The files are those of llama.cpp's
//! [`llama-imatrix`](https://github.com/ggml-org/llama.cpp/tree/master/tools/imatrix): GGUF, or the older format without a
//! header.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use orlop_gguf::{GgufFile, TensorInfo};
use orlop_graph::DType;

use crate::Error;

mod sums;

pub(crate) use sums::ExpertSquares;
pub use sums::ImportanceSums;

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

/// The mean squares of the inputs of each matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Importance {
    means: BTreeMap<String, Vec<f32>>,
}

impl Importance {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::File`] for a damaged GGUF file or one that cannot be read, [`Error::Importance`] for what it says.
    pub fn open(path: &Path) -> Result<Importance, Error> {
        let opened = |source| Error::File(orlop_gguf::Error::Open { path: path.to_owned(), source });
        let mut magic = [0; 4];
        let length =
            io::Read::read(&mut fs::File::open(path).map_err(opened)?, &mut magic).map_err(opened)?;
        if magic[..length] == *b"GGUF" {
            return Importance::from_gguf(&GgufFile::open(path)?);
        }
        Importance::from_plain(&fs::read(path).map_err(opened)?)
    }

    fn from_gguf(file: &GgufFile) -> Result<Importance, Error> {
        let floats = |tensor: &TensorInfo| match tensor.desc.dtype {
            DType::F32 => Ok(floats(file.bytes_of(tensor))),
            _ => Err(wrong(&tensor.name, "it is not F32")),
        };
        let mut means = BTreeMap::new();
        for tensor in file.tensors() {
            let Some(name) = tensor.name.strip_suffix(SUMS) else { continue };
            let counts = file.tensor(&format!("{name}{COUNTS}"));
            let counts = floats(counts.ok_or_else(|| wrong(name, "its counts are missing"))?)?;
            let mut values = floats(tensor)?;
            let width = values.len() / counts.len().max(1);
            if width == 0 || values.len() != width * counts.len() {
                let what = format!("{} sums for {} counts", values.len(), counts.len());
                return Err(wrong(name, &what));
            }
            for (values, count) in values.chunks_exact_mut(width).zip(counts) {
                // An expert that was never chosen: all its inputs count the same.
                values.iter_mut().for_each(|value| *value = if count > 0.0 { *value / count } else { 1.0 });
            }
            means.insert(name.to_owned(), values);
        }
        Importance { means }.checked()
    }

    /// Entries of a name, a number of calls and sums, each with its length before it.
    fn from_plain(bytes: &[u8]) -> Result<Importance, Error> {
        let mut rest = bytes;
        let mut means = BTreeMap::new();
        for _ in 0..number(&mut rest)? {
            let length = number(&mut rest)?;
            let name = String::from_utf8_lossy(take(&mut rest, length)?).into_owned();
            let calls = number(&mut rest)?.max(1) as f32;
            let length = number(&mut rest)?;
            let bytes = take(&mut rest, length.saturating_mul(4))?;
            means.insert(name, floats(bytes).into_iter().map(|sum| sum / calls).collect());
        }
        Importance { means }.checked()
    }

    fn checked(self) -> Result<Importance, Error> {
        let bad = |values: &Vec<f32>| !values.iter().all(|value| *value >= 0.0 && value.is_finite());
        if let Some((name, _)) = self.means.iter().find(|(_, values)| bad(values)) {
            return Err(wrong(name, "it has numbers that are negative or not finite"));
        }
        match self.means.is_empty() {
            true => Err(wrong("any tensor", "the file has none")),
            false => Ok(self),
        }
    }

    /// The number of matrices that it knows.
    pub fn matrices(&self) -> usize {
        self.means.len()
    }

    /// The importance of each column of a matrix; experts after one another.
    ///
    /// # Errors
    /// [`Error::Importance`] if the tensor has other extents.
    pub fn of(&self, name: &str, extents: &[u64]) -> Result<Option<&[f32]>, Error> {
        let Some(values) = self.means.get(name) else { return Ok(None) };
        let wanted = extents[0].saturating_mul(extents.iter().skip(2).product());
        if wanted != values.len() as u64 {
            return Err(wrong(name, &format!("{} numbers for {wanted} columns", values.len())));
        }
        Ok(Some(values))
    }
}

fn wrong(tensor: &str, what: &str) -> Error {
    Error::Importance { tensor: tensor.to_owned(), what: what.to_owned() }
}

/// The numbers of an F32 tensor.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Error> {
    let (taken, others) = rest
        .split_at_checked(length)
        .ok_or_else(|| wrong("any tensor", "the file is not importance data"))?;
    *rest = others;
    Ok(taken)
}

fn number(rest: &mut &[u8]) -> Result<usize, Error> {
    let bytes = take(rest, 4)?.as_chunks().0[0];
    usize::try_from(i32::from_le_bytes(bytes)).map_err(|_| wrong("any tensor", "a length is negative"))
}

#[cfg(test)]
mod tests;
