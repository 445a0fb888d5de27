//! Writes GGUF files.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use orlop_graph::{DType, TensorDesc};

use crate::{
    Error, GgufPart, MAGIC, Metadata, MetadataValue, TemporaryFile, TensorInfo, VERSION, encode, header,
    mapping,
};

/// Writes a GGUF file of metadata and tensors, in the order given.
///
/// Data comes from slices or from closures that are called during writing, so a file may be larger than memory.
///
/// ```
/// use orlop_gguf::Writer;
/// use orlop_graph::DType;
///
/// let mut writer = Writer::new();
/// writer.set("general.architecture", "none")?;
/// writer.tensor_with("zeros", DType::F32, &[1024, 16], |out| {
///     (0..1024 * 16).try_for_each(|_| out.write_all(&0f32.to_le_bytes()))
/// })?;
/// let mut file = Vec::new();
/// assert_eq!(writer.write(&mut file)?, file.len() as u64);
/// # Ok::<(), orlop_gguf::Error>(())
/// ```
#[derive(Default)]
pub struct Writer<'a> {
    metadata: Metadata,
    tensors: Vec<Tensor<'a>>,
    names: HashSet<String>,
}

struct Tensor<'a> {
    name: String,
    desc: TensorDesc,
    dimensions: usize,
    data: Data<'a>,
}

enum Data<'a> {
    Slice(&'a [u8]),
    Made(Box<Make<'a>>),
}

type Make<'a> = dyn FnOnce(&mut dyn Write) -> io::Result<()> + 'a;

impl<'a> Writer<'a> {
    /// An empty file.
    pub fn new() -> Writer<'a> {
        Writer::default()
    }

    /// A file with this metadata, including `general.alignment`.
    pub fn with_metadata(metadata: Metadata) -> Writer<'a> {
        Writer { metadata, ..Writer::default() }
    }

    /// A file with the metadata and tensors of another. A file written by [`Writer`] is reproduced byte for byte.
    ///
    /// # Errors
    /// None for a valid file.
    pub fn copy_of(file: &'a GgufPart) -> Result<Writer<'a>, Error> {
        let mut writer = Writer::with_metadata(file.metadata().clone());
        for tensor in file.tensors() {
            writer.copy(file, tensor)?;
        }
        Ok(writer)
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The mutable metadata.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Sets the value of a key; see [`Metadata::set`].
    ///
    /// # Errors
    /// [`Error::EmptyKey`].
    pub fn set(&mut self, key: &str, value: impl Into<MetadataValue>) -> Result<(), Error> {
        self.metadata.set(key, value)
    }

    /// Adds a tensor with its data.
    ///
    /// # Errors
    /// [`Error::DuplicateTensor`], [`Error::Tensor`] for invalid extents, [`Error::DataLength`].
    pub fn tensor(&mut self, name: &str, dtype: DType, extents: &[u64], data: &'a [u8]) -> Result<(), Error> {
        self.add(name, dtype, extents, Data::Slice(data))
    }

    /// Adds a tensor whose data `make` writes later; it must have exactly the length of its type and extents.
    ///
    /// # Errors
    /// [`Error::DuplicateTensor`], [`Error::Tensor`] for invalid extents.
    pub fn tensor_with(
        &mut self,
        name: &str,
        dtype: DType,
        extents: &[u64],
        make: impl FnOnce(&mut dyn Write) -> io::Result<()> + 'a,
    ) -> Result<(), Error> {
        self.add(name, dtype, extents, Data::Made(Box::new(make)))
    }

    /// Adds a tensor of another file.
    ///
    /// # Errors
    /// [`Error::DuplicateTensor`].
    ///
    /// # Panics
    /// See [`GgufPart::bytes_of`].
    pub fn copy(&mut self, file: &'a GgufPart, tensor: &TensorInfo) -> Result<(), Error> {
        self.tensor(&tensor.name, tensor.desc.dtype, tensor.extents(), file.bytes_of(tensor))
    }

    fn add(&mut self, name: &str, dtype: DType, extents: &[u64], data: Data<'a>) -> Result<(), Error> {
        let desc = TensorDesc::contiguous(dtype, extents)
            .map_err(|source| Error::Tensor { tensor: name.to_owned(), source })?;
        if let Data::Slice(slice) = data {
            check_length(name, desc.bytes(), slice.len() as u64)?;
        }
        if !self.names.insert(name.to_owned()) {
            return Err(Error::DuplicateTensor(name.to_owned()));
        }
        self.tensors.push(Tensor { name: name.to_owned(), desc, dimensions: extents.len(), data });
        Ok(())
    }

    /// Writes the file and returns its size. Makes many small writes: use a [`BufWriter`].
    ///
    /// # Errors
    /// [`Error::Alignment`] or [`Error::WrongType`] for an invalid `general.alignment`, [`Error::Nesting`],
    /// [`Error::DataLength`], [`Error::Data`], [`Error::Write`].
    pub fn write(self, out: &mut impl Write) -> Result<u64, Error> {
        let alignment = u64::from(header::alignment(&self.metadata)?);
        let mut out = Counted { out, written: 0, limit: u64::MAX };
        let header = self.header(alignment)?;
        out.write_all(&header).map_err(Error::Write)?;
        drop(header);
        if !self.tensors.is_empty() {
            out.pad(alignment).map_err(Error::Write)?;
        }
        for tensor in self.tensors {
            tensor.write(&mut out)?;
            out.pad(alignment).map_err(Error::Write)?;
        }
        out.flush().map_err(Error::Write)?;
        Ok(out.written)
    }

    /// Writes the file under a temporary name and renames it to `path`, so that a mapping of the old file stays
    /// valid and the new one appears complete. Replaces the target of a symbolic link.
    ///
    /// # Errors
    /// Those of [`Writer::write`], and [`Error::Open`] if no file can be created in the folder of `path`.
    pub fn create(self, path: impl AsRef<Path>) -> Result<u64, Error> {
        let path = path.as_ref();
        let unusable = |source| Error::Open { path: path.to_owned(), source };
        let path =
            &if path.is_symlink() { fs::canonicalize(path).map_err(unusable)? } else { path.to_owned() };
        let (temporary, file) = TemporaryFile::beside(path).map_err(unusable)?;
        let written = self.write(&mut BufWriter::with_capacity(1 << 18, file))?;
        temporary.rename(path).map_err(Error::Write)?;
        Ok(written)
    }

    /// The file as it would be with zeros for data. They take no memory, so models of any size can be planned.
    ///
    /// # Errors
    /// [`Error::Alignment`] or [`Error::WrongType`] for an invalid `general.alignment`, [`Error::Nesting`],
    /// [`Error::TooFar`], [`Error::Outline`] for more bytes than the system maps.
    pub fn outline(self) -> Result<GgufPart, Error> {
        let alignment = u64::from(header::alignment(&self.metadata)?);
        let header = self.header(alignment)?;
        let sizes = self.tensors.iter().map(|tensor| tensor.desc.bytes().next_multiple_of(alignment));
        let bytes = sizes.fold((header.len() as u64).next_multiple_of(alignment), u64::saturating_add);
        let refused = |source| Error::Outline { bytes, source };
        let length = usize::try_from(bytes).map_err(|error| refused(io::Error::other(error)))?;
        let mut zeros = mapping::zeros(length).map_err(refused)?;
        zeros[..header.len()].copy_from_slice(&header);
        GgufPart::from_bytes(Arc::new(zeros))
    }

    fn header(&self, alignment: u64) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        encode::metadata(&mut out, &self.metadata)?;
        let mut offset = 0u64;
        for tensor in &self.tensors {
            encode::string(&mut out, tensor.name.as_bytes());
            out.extend((tensor.dimensions as u32).to_le_bytes());
            for extent in &tensor.desc.extents[..tensor.dimensions] {
                out.extend(extent.to_le_bytes());
            }
            out.extend(tensor.desc.dtype.gguf_id().to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = offset
                .checked_add(tensor.desc.bytes())
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .ok_or_else(|| Error::TooFar { tensor: tensor.name.clone() })?;
        }
        Ok(out)
    }
}

impl Tensor<'_> {
    fn write<W: Write>(self, out: &mut Counted<'_, W>) -> Result<(), Error> {
        let name = self.name;
        let expected = self.desc.bytes();
        let start = out.written;
        out.limit = start.saturating_add(expected);
        let result = match self.data {
            Data::Slice(slice) => out.write_all(slice),
            Data::Made(make) => make(out),
        };
        let written = out.written - start;
        // Excess data is our own error, which a closure may have wrapped or ignored.
        if written <= expected {
            result.map_err(|source| Error::Data { tensor: name.clone(), source })?;
        }
        out.limit = u64::MAX;
        check_length(&name, expected, written)
    }
}

fn check_length(tensor: &str, expected: u64, written: u64) -> Result<(), Error> {
    if expected == written {
        return Ok(());
    }
    Err(Error::DataLength { tensor: tensor.to_owned(), expected, written })
}

/// Counts written bytes, and fails beyond the limit.
struct Counted<'a, W> {
    out: &'a mut W,
    written: u64,
    limit: u64,
}

impl<W: Write> Counted<'_, W> {
    /// Writes zeros up to the next multiple.
    fn pad(&mut self, alignment: u64) -> io::Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut left = self.written.next_multiple_of(alignment) - self.written;
        while left > 0 {
            let now = left.min(ZEROS.len() as u64);
            self.write_all(&ZEROS[..now as usize])?;
            left -= now;
        }
        Ok(())
    }
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.written.saturating_add(bytes.len() as u64);
        if end > self.limit {
            self.written = end;
            return Err(io::Error::other("more data than the tensor takes"));
        }
        let count = self.out.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensors: Vec<_> = self.tensors.iter().map(|tensor| (&tensor.name, tensor.desc)).collect();
        f.debug_struct("Writer").field("metadata", &self.metadata).field("tensors", &tensors).finish()
    }
}
