//! One GGUF file.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use orlop_graph::SharedBytes;

use crate::header::{self, Header};
use crate::mapping::Mapping;
use crate::{Error, Metadata, TensorInfo, mapping};

/// One validated GGUF file: a whole model, or a part of a split one.
#[derive(Clone)]
pub struct GgufPart {
    data: SharedBytes,
    /// The mapping behind `data`, if any.
    mapped: Option<Arc<Mapping>>,
    header: Arc<Header>,
}

impl GgufPart {
    /// Memory-maps a file. Only its header is read; tensor data is read from disk on use.
    ///
    /// While it is mapped (while this value or anything from [`GgufPart::data`] exists), the file must not be
    /// modified or truncated: the data read is then undefined, and reading past the new end kills the process, unless
    /// [`handle_bus_errors`](crate::handle_bus_errors) was called. Replacing the file by a rename is safe, and is what [`Writer::create`](crate::Writer::create) does. If
    /// other processes may write to the file, read it into memory and use [`GgufPart::from_bytes`].
    ///
    /// # Errors
    /// [`Error::Open`], or an error in the file.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufPart, Error> {
        let path = path.as_ref();
        let mapped = mapping::map(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
        let mapped = Arc::new(mapped);
        let file = GgufPart::from_bytes(Arc::clone(&mapped) as SharedBytes)?;
        Ok(GgufPart { mapped: Some(mapped), ..file })
    }

    /// Reads a file from memory.
    ///
    /// # Errors
    /// An error in the file.
    pub fn from_bytes(data: SharedBytes) -> Result<GgufPart, Error> {
        let header = Arc::new(header::read((*data).as_ref())?);
        Ok(GgufPart { data, mapped: None, header })
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// The alignment of tensors in the file: a power of two.
    pub fn alignment(&self) -> u32 {
        self.header.alignment
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.as_slice().len() as u64
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// The tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// The tensor with this name, if there is one.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        find(&self.header.tensors, &self.header.by_name, name)
    }

    /// The data of a tensor of this file.
    ///
    /// # Panics
    /// If the tensor belongs to another file and exceeds this one.
    pub fn bytes_of(&self, tensor: &TensorInfo) -> &[u8] {
        let bytes = self.as_slice();
        let range = tensor.range(bytes.len()).expect("a tensor of this file");
        &bytes[range]
    }

    /// Advises the system that a tensor's mapped data is not needed soon, so that its pages can be dropped. It can still be
    /// read.
    pub fn release(&self, tensor: &TensorInfo) {
        if let (Some(mapped), Some(range)) = (&self.mapped, tensor.range(self.as_slice().len())) {
            mapping::release(mapped, range);
        }
    }

    /// Advises the system that a tensor's mapped data is read from its beginning to its end, again and again: it is read
    /// ahead, and its pages are the first that are dropped.
    pub fn read_in_order(&self, tensor: &TensorInfo) {
        if let (Some(mapped), Some(range)) = (&self.mapped, tensor.range(self.as_slice().len())) {
            mapping::read_in_order(mapped, range);
        }
    }

    /// Whether zeros were read in place of data since the file was opened, because it has become shorter or its disk fails.
    /// Known after [`handle_bus_errors`](crate::handle_bus_errors).
    pub fn is_damaged(&self) -> bool {
        self.mapped.as_ref().is_some_and(|mapped| mapped.is_damaged())
    }

    /// The bytes of the whole file, which holds every tensor at its [`offset`](TensorInfo::offset).
    pub fn data(&self) -> SharedBytes {
        Arc::clone(&self.data)
    }

    pub(crate) fn by_name(&self) -> &[usize] {
        &self.header.by_name
    }

    fn as_slice(&self) -> &[u8] {
        (*self.data).as_ref()
    }
}

/// Finds a tensor by its name; `by_name` holds the indices sorted by name.
pub(crate) fn find<'a>(tensors: &'a [TensorInfo], by_name: &[usize], name: &str) -> Option<&'a TensorInfo> {
    let place = by_name.binary_search_by(|index| tensors[*index].name.as_str().cmp(name)).ok()?;
    Some(&tensors[by_name[place]])
}

impl fmt::Debug for GgufPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufPart")
            .field("version", &self.version())
            .field("bytes", &self.bytes())
            .field("keys", &self.metadata().len())
            .field("tensors", &self.tensors().len())
            .finish_non_exhaustive()
    }
}
