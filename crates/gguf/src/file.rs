//! A model in one file or in several parts.

use std::io;
use std::path::{Path, PathBuf};

use crate::part::find;
use crate::{Error, GgufPart, Metadata, TensorInfo, header, split_name};

const NUMBER_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSORS_KEY: &str = "split.tensors.count";

/// A model in one file or in several parts, presented as one.
#[derive(Clone, Debug)]
pub struct GgufFile {
    parts: Vec<GgufPart>,
    paths: Vec<PathBuf>,
    tensors: Vec<TensorInfo>,
    by_name: Vec<usize>,
}

impl GgufFile {
    /// Maps a file and, if it is a part of a split model, all other parts, whose names in the same folder end in
    /// `-00001-of-00003.gguf`. Any part may be given.
    ///
    /// The requirements of [`GgufPart::open`] apply to each part.
    ///
    /// # Errors
    /// Those of [`GgufPart::open`]; [`Error::SplitName`], [`Error::MissingPart`], [`Error::SplitMismatch`] and
    /// [`Error::SplitTensors`] if the parts do not fit together; [`Error::Part`] for an error in another part.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufFile, Error> {
        let path = path.as_ref();
        let given = GgufPart::open(path)?;
        let count = u32::from(given.metadata().optional(COUNT_KEY, Metadata::u16)?.unwrap_or(1));
        if count <= 1 {
            return GgufFile::of_parts(vec![given], vec![path.to_owned()]);
        }
        let number = u32::from(given.metadata().u16(NUMBER_KEY)?);
        let stem = split_name::stem(path, number, count).ok_or_else(|| Error::SplitName {
            path: path.to_owned(),
            number,
            count,
        })?;
        let (mut parts, mut paths) = (Vec::new(), Vec::new());
        for part in 0..count {
            if part == number {
                parts.push(given.clone());
                paths.push(path.to_owned());
            } else {
                let path = split_name::sibling(path, stem, part, count);
                parts.push(open_part(&path, part, count)?);
                paths.push(path);
            }
        }
        let model = GgufFile::of_parts(parts, paths)?;
        model.check_tensor_count()?;
        Ok(model)
    }

    /// A model of one file.
    pub fn from_file(file: GgufPart) -> GgufFile {
        let (tensors, by_name) = (file.tensors().to_vec(), file.by_name().to_vec());
        GgufFile { parts: vec![file], paths: Vec::new(), tensors, by_name }
    }

    /// This file with the tensors of another one under names that begin with `prefix`. The metadata is this file's.
    ///
    /// # Errors
    /// [`Error::DuplicateTensor`] for a name that both have then.
    pub fn joined(&self, other: &GgufFile, prefix: &str) -> Result<GgufFile, Error> {
        let first = self.parts.len();
        let renamed = other.tensors.iter().map(|tensor| TensorInfo {
            name: format!("{prefix}{}", tensor.name),
            part: first + tensor.part,
            ..tensor.clone()
        });
        let tensors: Vec<TensorInfo> = self.tensors.iter().cloned().chain(renamed).collect();
        let by_name = header::sort_by_name(&tensors)?;
        let parts = self.parts.iter().chain(&other.parts).cloned().collect();
        let paths = self.paths.iter().chain(&other.paths).cloned().collect();
        Ok(GgufFile { parts, paths, tensors, by_name })
    }

    fn of_parts(parts: Vec<GgufPart>, paths: Vec<PathBuf>) -> Result<GgufFile, Error> {
        let mut tensors = Vec::new();
        for (part, file) in parts.iter().enumerate() {
            tensors.extend(file.tensors().iter().map(|tensor| TensorInfo { part, ..tensor.clone() }));
        }
        let by_name = header::sort_by_name(&tensors)?;
        Ok(GgufFile { parts, paths, tensors, by_name })
    }

    /// Checks `split.tensors.count`, which is required in the first part and optional in the others.
    fn check_tensor_count(&self) -> Result<(), Error> {
        let found = self.tensors.len() as u64;
        let expected = self.metadata().u64(TENSORS_KEY)?;
        if expected != found {
            return Err(Error::SplitTensors { parts: self.parts.len(), expected, found });
        }
        for (file, path) in self.parts.iter().zip(&self.paths) {
            if let Some(other) = file.metadata().optional(TENSORS_KEY, Metadata::u64)? {
                check_key(path, TENSORS_KEY, expected, other)?;
            }
        }
        Ok(())
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[GgufPart] {
        &self.parts
    }

    /// The paths of the parts; empty for a model that was not opened from a path.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Total bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(GgufPart::bytes).fold(0, u64::saturating_add)
    }

    /// The metadata of the first part.
    pub fn metadata(&self) -> &Metadata {
        self.parts[0].metadata()
    }

    /// The tensors of all parts, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name, if there is one.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        find(&self.tensors, &self.by_name, name)
    }

    /// Passes if what was read up to now was in the files: after [`handle_bus_errors`](crate::handle_bus_errors), a file that
    /// has become shorter is read as zeros.
    ///
    /// # Errors
    /// [`Error::Unreadable`].
    pub fn check_readable(&self) -> Result<(), Error> {
        match self.parts.iter().position(GgufPart::is_damaged) {
            None => Ok(()),
            Some(part) => Err(Error::Unreadable { path: self.paths.get(part).cloned().unwrap_or_default() }),
        }
    }

    /// See [`GgufPart::release`].
    pub fn release(&self, tensor: &TensorInfo) {
        if let Some(part) = self.parts.get(tensor.part) {
            part.release(tensor);
        }
    }

    /// See [`GgufPart::read_in_order`].
    pub fn read_in_order(&self, tensor: &TensorInfo) {
        if let Some(part) = self.parts.get(tensor.part) {
            part.read_in_order(tensor);
        }
    }

    /// The data of a tensor of this model.
    ///
    /// # Panics
    /// If the tensor belongs to another model and exceeds this one's parts.
    pub fn bytes_of(&self, tensor: &TensorInfo) -> &[u8] {
        self.parts[tensor.part].bytes_of(tensor)
    }
}

fn open_part(path: &Path, number: u32, count: u32) -> Result<GgufPart, Error> {
    let file = GgufPart::open(path).map_err(|error| match error {
        Error::Open { path, source } if source.kind() == io::ErrorKind::NotFound => {
            Error::MissingPart { path, number, count }
        }
        Error::Open { .. } => error,
        error => Error::Part { path: path.to_owned(), source: Box::new(error) },
    })?;
    let value = |key| {
        let in_part = |error| Error::Part { path: path.to_owned(), source: Box::new(error) };
        file.metadata().u16(key).map(u64::from).map_err(in_part)
    };
    check_key(path, NUMBER_KEY, u64::from(number), value(NUMBER_KEY)?)?;
    check_key(path, COUNT_KEY, u64::from(count), value(COUNT_KEY)?)?;
    Ok(file)
}

fn check_key(path: &Path, key: &'static str, expected: u64, found: u64) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    Err(Error::SplitMismatch { path: path.to_owned(), key, expected, found })
}
