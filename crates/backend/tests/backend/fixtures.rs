//! Memory that the host cannot reach, memory in a layout of its own, and a device that computes nothing.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use orlop_backend::{
    Bindings, Buffer, BufferType, Claim, Device, DeviceClass, DeviceError, DeviceFacts, Gate, HostBufferType,
    Link, LowerOptions, MemoryLayout, NodeQuery, PrivateRows, Program, Queue, Reason, Role, Segment, Slot,
    StagingMemory, Steps, StoredTensor, Support,
};
use orlop_graph::{AccessKind, DType, TensorDesc};

pub(crate) fn f32(extents: &[u64]) -> TensorDesc {
    TensorDesc::contiguous(DType::F32, extents).expect("a small tensor")
}

pub(crate) fn strided(dtype: DType, extents: [u64; 4], strides: [u64; 4]) -> TensorDesc {
    TensorDesc::strided(dtype, extents, strides).expect("a small tensor")
}

pub(crate) fn host(bytes: u64) -> Arc<dyn Buffer> {
    HostBufferType::new("host").allocate(bytes).expect("a small buffer")
}

pub(crate) fn remote(bytes: u64) -> Arc<dyn Buffer> {
    RemoteType::new(MemoryLayout::Plain).allocate(bytes).expect("a small buffer")
}

pub(crate) fn stored(desc: TensorDesc, buffer: &Arc<dyn Buffer>, offset: u64) -> StoredTensor {
    StoredTensor::new("x", desc, Slot { buffer: Arc::clone(buffer), offset }).expect("it fits")
}

/// The whole buffer, as bytes.
pub(crate) fn contents(buffer: &Arc<dyn Buffer>) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    let claim = Claim::take(&**buffer, AccessKind::Read).expect("no writer");
    buffer.read(&claim, 0, &mut bytes).expect("all of it");
    bytes
}

pub(crate) fn fill_with(buffer: &Arc<dyn Buffer>, bytes: &[u8]) {
    let claim = Claim::take(&**buffer, AccessKind::Write).expect("no other claim");
    buffer.write(&claim, 0, bytes).expect("it fits");
}

/// Different bytes everywhere, as far as bytes can be.
pub(crate) fn pattern(bytes: u64, seed: u64) -> Vec<u8> {
    (0..bytes).map(|i| ((i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// Memory out of the host's reach. With [`MemoryLayout::Private`], rows are stored back to front and four bytes
/// longer than they are.
#[derive(Debug)]
pub(crate) struct RemoteType(MemoryLayout);

impl RemoteType {
    pub(crate) fn new(layout: MemoryLayout) -> Arc<RemoteType> {
        Arc::new(RemoteType(layout))
    }
}

impl BufferType for RemoteType {
    fn name(&self) -> &str {
        "remote"
    }

    fn alignment(&self) -> u64 {
        32
    }

    fn layout(&self) -> MemoryLayout {
        self.0
    }

    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        match self.0 {
            MemoryLayout::Plain => tensor.bytes(),
            MemoryLayout::Private => tensor.rows() * (tensor.row_bytes() + 4),
        }
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        let memory = Mutex::new(vec![0; bytes as usize]);
        Ok(Arc::new(Remote { buffer_type: self, gate: Gate::new(), memory }))
    }
}

#[derive(Debug)]
struct Remote {
    buffer_type: Arc<dyn BufferType>,
    gate: Arc<Gate>,
    memory: Mutex<Vec<u8>>,
}

impl Remote {
    fn with<T>(
        &self,
        claim: &Claim,
        kind: AccessKind,
        range: Range<u64>,
        work: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, DeviceError> {
        if !claim.allows(self, kind) {
            return Err(DeviceError::NotClaimed { buffer_type: "remote".to_owned() });
        }
        let mut memory = self.memory.lock().expect("nothing panics under it");
        let available = memory.len() as u64;
        let (offset, bytes) = (range.start, range.end - range.start);
        let part = memory.get_mut(range.start as usize..range.end as usize);
        part.map(work).ok_or(DeviceError::OutOfBounds {
            tensor: "remote".to_owned(),
            offset,
            bytes,
            available,
        })
    }

    fn rows(at: &PrivateRows<'_>) -> impl Iterator<Item = (Range<u64>, Range<usize>)> {
        let (row, offset, first) = (at.desc.row_bytes(), at.offset, at.rows.start);
        at.rows.clone().map(move |index| {
            let start = offset + index * (row + 4);
            let data = ((index - first) * row) as usize;
            (start..start + row, data..data + row as usize)
        })
    }
}

// SAFETY: no host memory is reported, or that of a buffer which answers for it under the same gate.

unsafe impl Buffer for Remote {
    fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    fn bytes(&self) -> u64 {
        self.memory.lock().expect("nothing panics under it").len() as u64
    }

    fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    fn write(&self, claim: &Claim, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = offset..offset + bytes.len() as u64;
        self.with(claim, AccessKind::Write, range, |memory| memory.copy_from_slice(bytes))
    }

    fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let range = offset..offset + bytes.len() as u64;
        self.with(claim, AccessKind::Read, range, |memory| bytes.copy_from_slice(memory))
    }

    fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError> {
        self.with(claim, AccessKind::Write, range, |memory| memory.fill(value))
    }

    fn write_rows(&self, claim: &Claim, at: &PrivateRows<'_>, bytes: &[u8]) -> Result<(), DeviceError> {
        for (range, data) in Remote::rows(at) {
            self.with(claim, AccessKind::Write, range, |memory| {
                memory.copy_from_slice(&bytes[data]);
                memory.reverse();
            })?;
        }
        Ok(())
    }

    fn read_rows(&self, claim: &Claim, at: &PrivateRows<'_>, bytes: &mut [u8]) -> Result<(), DeviceError> {
        for (range, data) in Remote::rows(at) {
            let row = &mut bytes[data];
            self.with(claim, AccessKind::Read, range, |memory| row.copy_from_slice(memory))?;
            row.reverse();
        }
        Ok(())
    }
}

/// Accepts every op but the one it refuses.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) name: &'static str,
    pub(crate) refuses: Option<&'static str>,
}

impl Idle {
    fn lost<T>(&self) -> Result<T, DeviceError> {
        Err(DeviceError::Lost { device: self.name.to_owned(), reason: "it computes nothing".to_owned() })
    }
}

impl Device for Idle {
    fn name(&self) -> &str {
        self.name
    }

    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            description: "computes nothing".to_owned(),
            class: DeviceClass::Test,
            memory: None,
            flops: 1.0,
            bytes_per_second: 1.0,
            cache_bytes: 0,
            launch_seconds: 0.0,
            host_link: Link { bytes_per_second: 1.0, latency_seconds: 0.0 },
            staging: StagingMemory::default(),
            asynchronous: false,
            lost: false,
        }
    }

    fn buffer_types(&self, _: Role) -> &[Arc<dyn BufferType>] {
        &[]
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        if self.refuses == Some(node.op.name()) { Support::No(Reason::Op) } else { Support::YES }
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        segment.one_step_per_node(self, options)
    }

    fn compile(&self, _: &Steps, _: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        self.lost()
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        self.lost()
    }
}
