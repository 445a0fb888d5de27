//! Buffers of repacked weights.

use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{
    Buffer, BufferType, Claim, DeviceError, Gate, HostBufferType, HostSpan, Layout, PrivateRows,
};
use orlop_graph::TensorDesc;

use super::PackedLayout;

/// Host memory in which weights lie in tiles. Tensors of types that are not repacked cannot lie here.
#[derive(Debug)]
pub(crate) struct PackedBufferType {
    name: String,
    host: Arc<HostBufferType>,
}

impl PackedBufferType {
    pub(crate) fn new(name: impl Into<String>) -> Arc<PackedBufferType> {
        let name = name.into();
        Arc::new(PackedBufferType { host: HostBufferType::new(name.clone()), name })
    }
}

impl BufferType for PackedBufferType {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> u64 {
        self.host.alignment()
    }

    fn layout(&self) -> Layout {
        Layout::Private
    }

    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        PackedLayout::of(tensor).map_or_else(|| tensor.bytes(), |layout| layout.bytes() as u64)
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        let memory = Arc::clone(&self.host).allocate(bytes)?;
        Ok(Arc::new(PackedBuffer { buffer_type: self, memory }))
    }
}

/// A buffer of tiles in another buffer's memory.
#[derive(Debug)]
struct PackedBuffer {
    buffer_type: Arc<dyn BufferType>,
    memory: Arc<dyn Buffer>,
}

impl PackedBuffer {
    /// The tensor's layout and the rows to go through, if they are the tensor's and the host memory has their length.
    fn rows(
        &self,
        at: &PrivateRows<'_>,
        given: usize,
    ) -> Result<(PackedLayout, usize, Range<usize>), DeviceError> {
        let Some(layout) = PackedLayout::of(at.desc).filter(|_| at.desc.is_contiguous()) else {
            return Err(DeviceError::PrivateLayout {
                tensor: at.tensor.to_owned(),
                buffer_type: self.buffer_type.name().to_owned(),
                rule: "only whole tensors of types that are repacked",
            });
        };
        let row = at.desc.row_bytes();
        let expected = (at.rows.end.saturating_sub(at.rows.start)).saturating_mul(row);
        if expected != given as u64 {
            let (tensor, given) = (at.tensor.to_owned(), given as u64);
            return Err(DeviceError::WrongLength { tensor, expected, given });
        }
        if at.rows.end > at.desc.rows() {
            return Err(DeviceError::OutOfBounds {
                tensor: at.tensor.to_owned(),
                offset: at.rows.start.saturating_mul(row),
                bytes: expected,
                available: at.desc.bytes(),
            });
        }
        let rows = at.rows.start as usize..at.rows.end as usize;
        Ok((layout, row as usize, if given == 0 { 0..0 } else { rows }))
    }
}

// SAFETY: the memory, its gate and every access to it are those of `memory`, which answers for them.
unsafe impl Buffer for PackedBuffer {
    fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn gate(&self) -> &Arc<Gate> {
        self.memory.gate()
    }

    fn write(&self, claim: &Claim, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(claim, offset, bytes)
    }

    fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read(claim, offset, bytes)
    }

    fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError> {
        self.memory.fill(claim, range, value)
    }

    fn write_rows(&self, claim: &Claim, at: &PrivateRows<'_>, bytes: &[u8]) -> Result<(), DeviceError> {
        let (layout, row_bytes, mut rows) = self.rows(at, bytes.len())?;
        let mut group = vec![0; layout.group_bytes()];
        let mut left = bytes;
        while !rows.is_empty() {
            let part = layout.first_of(&rows);
            let (number, first) = layout.place(part.start);
            let offset = at.offset + (number * group.len()) as u64;
            let (these, rest) = left.split_at(part.len() * row_bytes);
            let whole = first == 0 && layout.first_of(&(part.start..usize::MAX)) == part;
            if !whole {
                // Other rows of the group stay as they are.
                self.memory.read(claim, offset, &mut group)?;
            } else {
                group.fill(0);
            }
            layout.pack_rows(these, first, &mut group);
            self.memory.write(claim, offset, &group)?;
            (left, rows.start) = (rest, part.end);
        }
        Ok(())
    }

    fn read_rows(&self, claim: &Claim, at: &PrivateRows<'_>, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let (layout, row_bytes, mut rows) = self.rows(at, bytes.len())?;
        let mut group = vec![0; layout.group_bytes()];
        let mut left = bytes;
        while !rows.is_empty() {
            let part = layout.first_of(&rows);
            let (number, first) = layout.place(part.start);
            self.memory.read(claim, at.offset + (number * group.len()) as u64, &mut group)?;
            let (these, rest) = left.split_at_mut(part.len() * row_bytes);
            for (place, row) in (first..).zip(these.chunks_exact_mut(row_bytes)) {
                layout.unpack(&group, place, 0, row);
            }
            (left, rows.start) = (rest, part.end);
        }
        Ok(())
    }

    fn host(&self) -> Option<HostSpan> {
        self.memory.host()
    }
}
