//! Tensors of a file.

use std::ops::Range;

use orlop_graph::{DIMS, TensorDesc};

/// A tensor in a file: its description and its offset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Its name, unique in a model.
    pub name: String,
    /// Element type and extents; tensors in files are contiguous.
    pub desc: TensorDesc,
    /// Number of extents in the file; the others are 1. Zero dimensions are a single element.
    pub dimensions: u32,
    /// Offset of its data from the start of the file.
    pub offset: u64,
    /// Bytes of its data.
    pub bytes: u64,
    /// The index of its part.
    pub part: usize,
}

impl TensorInfo {
    /// The extents stored in the file.
    pub fn extents(&self) -> &[u64] {
        &self.desc.extents[..(self.dimensions as usize).min(DIMS)]
    }

    /// The range of its data in a file of `length` bytes.
    pub(crate) fn range(&self, length: usize) -> Option<Range<usize>> {
        let start = usize::try_from(self.offset).ok()?;
        let end = start.checked_add(usize::try_from(self.bytes).ok()?)?;
        (end <= length).then_some(start..end)
    }
}
