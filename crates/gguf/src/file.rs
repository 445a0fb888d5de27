use std::fmt;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;
use orlop_graph::SharedBytes;

use crate::header::{self, Header};
use crate::{Error, Metadata, TensorInfo, mapping};

/// One GGUF file, checked.
#[derive(Clone)]
pub struct GgufPart {
    data: SharedBytes,
    /// The mapping behind the data, if that is one.
    mapped: Option<Arc<Mmap>>,
    header: Arc<Header>,
}

impl GgufPart {
    /// Maps a file. Only its header is read; the data of its tensors comes from the disk when it is used.
    ///
    /// While it is mapped, that is while this value or anything from [`GgufPart::data`] lives, nobody may change
    /// the file or cut it short, as with mapped files everywhere: what is read then is not defined, and
    /// reading where the file used to be ends the process. Replacing the file by renaming another over it is
    /// fine, and is what [`Writer::create`](crate::Writer::create) does. Where others may write to the file,
    /// read it into memory and use [`GgufPart::from_bytes`].
    ///
    /// # Errors
    /// [`Error::Open`], or what is wrong with the file.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufPart, Error> {
        let path = path.as_ref();
        let mapped = mapping::map(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
        let mapped = Arc::new(mapped);
        let file = GgufPart::from_bytes(Arc::clone(&mapped) as SharedBytes)?;
        Ok(GgufPart { mapped: Some(mapped), ..file })
    }

    /// Takes bytes for a file.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_bytes(data: SharedBytes) -> Result<GgufPart, Error> {
        let header = Arc::new(header::read((*data).as_ref())?);
        Ok(GgufPart { data, mapped: None, header })
    }

    /// The version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.header.version
    }

    /// What tensors are aligned to, from the start of the file: a power of two.
    pub fn alignment(&self) -> u32 {
        self.header.alignment
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.as_slice().len() as u64
    }

    /// What the file says about itself.
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// Its tensors, in the order of the file.
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
    /// If the tensor is another file's, and lies beyond the end of this one.
    pub fn bytes_of(&self, tensor: &TensorInfo) -> &[u8] {
        let bytes = self.as_slice();
        let range = tensor.range(bytes.len()).expect("the tensor is one of this file's");
        &bytes[range]
    }

    /// Tells the system that a tensor's data, if it is mapped, will not be read soon: its pages need not stay in memory.
    /// It can be read all the same.
    pub fn release(&self, tensor: &TensorInfo) {
        if let (Some(mapped), Some(range)) = (&self.mapped, tensor.range(self.as_slice().len())) {
            mapping::release(mapped, range);
        }
    }

    /// The bytes of the whole file, to be kept alive on their own: a buffer over them holds every tensor at
    /// its [`offset`](TensorInfo::offset).
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

/// Finds a tensor by its name, in a list and the order of its names.
pub(crate) fn find<'a>(tensors: &'a [TensorInfo], by_name: &[usize], name: &str) -> Option<&'a TensorInfo> {
    let place = by_name.binary_search_by(|index| tensors[*index].name.as_str().cmp(name)).ok()?;
    Some(&tensors[by_name[place]])
}

impl fmt::Debug for GgufPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("version", &self.version())
            .field("bytes", &self.bytes())
            .field("keys", &self.metadata().len())
            .field("tensors", &self.tensors().len())
            .finish_non_exhaustive()
    }
}
