use std::ops::Range;

use orlop_graph::{DIMS, TensorDesc};

/// A tensor in a file: what it is, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Its name, of which a model has no other.
    pub name: String,
    /// Element type and extents; tensors in files have no gaps.
    pub desc: TensorDesc,
    /// How many extents the file gives; those behind them are 1. None at all is a single element.
    pub dimensions: u32,
    /// Where its data begins, from the start of the file.
    pub offset: u64,
    /// Bytes of its data.
    pub bytes: u64,
    /// Which of a model's files it is in, from 0.
    pub part: usize,
}

impl TensorInfo {
    /// The extents that the file gives.
    pub fn extents(&self) -> &[u64] {
        &self.desc.extents[..(self.dimensions as usize).min(DIMS)]
    }

    /// The bytes of its data in a file of `length` bytes.
    pub(crate) fn range(&self, length: usize) -> Option<Range<usize>> {
        let start = usize::try_from(self.offset).ok()?;
        let end = start.checked_add(usize::try_from(self.bytes).ok()?)?;
        (end <= length).then_some(start..end)
    }
}
