//! Buffers of repacked weights.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{
    Buffer, BufferType, Claim, DeviceError, Gate, HostBufferType, HostSpan, MemoryLayout, PrivateRows,
};
use orlop_graph::{AccessKind, TensorDesc};

use super::{PackedLayout, ROWS};
use crate::isa::Isa;
use crate::pool::ThreadPool;

/// Bytes that one thread packs at a time.
const PIECE: usize = 256 << 10;

/// Host memory in which weights lie in tiles. Tensors of types that are not repacked cannot lie here.
#[derive(Debug)]
pub(crate) struct PackedBufferType {
    name: String,
    host: Arc<HostBufferType>,
    /// What rows are packed with.
    isa: Isa,
    pool: Arc<ThreadPool>,
}

impl PackedBufferType {
    pub(crate) fn new(name: impl Into<String>, isa: Isa, pool: Arc<ThreadPool>) -> Arc<PackedBufferType> {
        let name = name.into();
        Arc::new(PackedBufferType { host: HostBufferType::new(name.clone()), name, isa, pool })
    }
}

impl BufferType for PackedBufferType {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> u64 {
        self.host.alignment()
    }

    fn layout(&self) -> MemoryLayout {
        MemoryLayout::Private
    }

    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        PackedLayout::of(tensor).map_or_else(|| tensor.bytes(), |layout| layout.bytes() as u64)
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        let memory = Arc::clone(&self.host).allocate(bytes)?;
        Ok(Arc::new(PackedBuffer { erased: Arc::clone(&self) as _, buffer_type: self, memory }))
    }
}

/// A buffer of tiles in another buffer's memory.
#[derive(Debug)]
struct PackedBuffer {
    buffer_type: Arc<PackedBufferType>,
    /// The same.
    erased: Arc<dyn BufferType>,
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

    /// Does `work` with some of the memory, under a claim to write it.
    fn with_memory(
        &self,
        claim: &Claim,
        offset: u64,
        bytes: usize,
        work: impl FnOnce(&mut [u8]),
    ) -> Result<(), DeviceError> {
        let name = self.buffer_type.name();
        if !claim.allows(self, AccessKind::Write) {
            return Err(DeviceError::NotClaimed { buffer_type: name.to_owned() });
        }
        let (span, end) = (self.memory.host(), offset.checked_add(bytes as u64));
        let Some(span) = span.filter(|span| end.is_some_and(|end| end <= span.bytes)) else {
            let (tensor, available) = (name.to_owned(), self.memory.bytes());
            return Err(DeviceError::OutOfBounds { tensor, offset, bytes: bytes as u64, available });
        };
        let start = span.base.as_ptr().wrapping_add(offset as usize);
        // SAFETY: `from_raw_parts_mut` asks for initialised bytes that only the result reaches: they are the buffer's,
        // checked above, and were zeroed when it was made; the claim to write excludes all other holders, cannot be
        // used on another thread, and `work`, which only packs, does not use it on this one.
        work(unsafe { std::slice::from_raw_parts_mut(start, bytes) });
        Ok(())
    }

    /// Packs rows on several threads if there are many. The pool may be at work, and this be called from there: then
    /// one has to do.
    fn pack(&self, layout: &PackedLayout, rows: Range<usize>, bytes: &[u8], groups: &mut [u8]) {
        let (isa, pool) = (self.buffer_type.isa, &self.buffer_type.pool);
        let pieces: Vec<_> =
            Pieces { layout, rows, bytes, groups }.map(|piece| Mutex::new(Some(piece))).collect();
        let next = AtomicUsize::new(0);
        let work = |_| {
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(piece) = piece.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    piece.pack(isa);
                }
            }
        };
        if pieces.len() == 1 || !pool.try_run(pieces.len(), &work) {
            work(0);
        }
    }
}

// SAFETY: the memory, its gate and every access to it are those of `memory`, which answers for them.
unsafe impl Buffer for PackedBuffer {
    fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.erased
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
        let (layout, _, rows) = self.rows(at, bytes.len())?;
        if rows.is_empty() {
            return Ok(());
        }
        let (first, last) = (layout.place(rows.start).0, layout.place(rows.end - 1).0);
        let offset = at.offset + (first * layout.group_bytes()) as u64;
        let tiles = (last + 1 - first) * layout.group_bytes();
        self.with_memory(claim, offset, tiles, |groups| self.pack(&layout, rows, bytes, groups))
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

/// Rows to be packed, and the groups that they lie in. As an iterator, pieces of that for one thread each.
struct Pieces<'a> {
    layout: &'a PackedLayout,
    rows: Range<usize>,
    bytes: &'a [u8],
    groups: &'a mut [u8],
}

impl<'a> Pieces<'a> {
    /// The rows of the first groups, which are at least as many `bytes`, or all.
    fn split(&mut self, bytes: usize) -> Pieces<'a> {
        let (layout, start) = (self.layout, self.rows.start);
        let (mut end, mut groups) = (start, 0);
        while end < self.rows.end && (groups == 0 || (end - start) * layout.row_bytes() < bytes) {
            end = layout.first_of(&(end..self.rows.end)).end;
            groups += 1;
        }
        let (these, rest) = self.bytes.split_at((end - start) * layout.row_bytes());
        let (tiles, others) = std::mem::take(&mut self.groups).split_at_mut(groups * layout.group_bytes());
        (self.rows.start, self.bytes, self.groups) = (end, rest, others);
        Pieces { layout, rows: start..end, bytes: these, groups: tiles }
    }

    fn pack(mut self, isa: Isa) {
        while !self.rows.is_empty() {
            let one = self.split(0);
            let whole = one.layout.first_of(&(one.rows.start..usize::MAX)) == one.rows;
            let first = one.layout.place(one.rows.start).1;
            // Other rows of the group stay as they are; where there are none, zeros.
            if whole && first == 0 && one.rows.len() < ROWS {
                one.groups.fill(0);
            }
            one.layout.pack_rows(isa, one.bytes, first, one.groups);
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Pieces<'a>;

    fn next(&mut self) -> Option<Pieces<'a>> {
        (!self.rows.is_empty()).then(|| self.split(PIECE))
    }
}
