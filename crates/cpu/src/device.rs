use std::fmt;
use std::path::Path;
use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Device, DeviceClass, DeviceError, DeviceFacts, ForeignBufferType, HostBufferType,
    Link, LowerOptions, MemoryLayout, NodeQuery, Program, Queue, Reason, Role, Segment, StagingMemory, Steps,
    Support, has_large_pages, same_type,
};
use orlop_graph::{Op, TensorDesc};

use crate::caches::last_level_bytes;
use crate::isa::Isa;
use crate::kernels::kernel;
use crate::lower::lower;
use crate::memory::memory;
use crate::pool::ThreadPool;
use crate::program::CpuProgram;
use crate::queue::CpuQueue;
use crate::repack::{PackedBufferType, PackedLayout};

/// Choices of a [`CpuDevice`].
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Its name. Default `cpu`.
    pub name: String,
    /// The instructions that kernels use; what the machine lacks is left out. Default: the best there are.
    pub isa: Isa,
    /// Whether weights are repacked into a layout that products are faster with, or copied to larger pages, rather than
    /// used where a file is mapped. Default yes.
    pub repack: bool,
}

impl Default for CpuOptions {
    fn default() -> CpuOptions {
        CpuOptions { name: "cpu".to_owned(), isa: Isa::detect(), repack: true }
    }
}

/// The processor as a device: computes in host memory, on the threads of a pool.
///
/// Its kinds of memory for weights are, best first: repacked, host memory where the system has large pages, mapped files,
/// host memory; the first two unless [`CpuOptions::repack`] is off. Repacked weights can only be the first operand of
/// products and of `get_rows`, which is what [`Device::supports`] says; other weights, and types that are not repacked, go
/// to the next kind.
pub struct CpuDevice {
    name: Arc<str>,
    pool: Arc<ThreadPool>,
    isa: Isa,
    host: [Arc<dyn BufferType>; 1],
    weights: Vec<Arc<dyn BufferType>>,
    packed: Option<Arc<dyn BufferType>>,
    mapped: Arc<ForeignBufferType>,
}

impl CpuDevice {
    /// A device named `cpu` on a pool, with the best instructions there are.
    pub fn new(pool: Arc<ThreadPool>) -> Arc<CpuDevice> {
        CpuDevice::with_options(pool, &CpuOptions::default())
    }

    /// A device with a name and instructions of the caller's choice; what the machine lacks is left out.
    pub fn with_isa(name: &str, pool: Arc<ThreadPool>, isa: Isa) -> Arc<CpuDevice> {
        CpuDevice::with_options(pool, &CpuOptions { name: name.to_owned(), isa, ..CpuOptions::default() })
    }

    /// A device of the caller's choice.
    pub fn with_options(pool: Arc<ThreadPool>, options: &CpuOptions) -> Arc<CpuDevice> {
        let name = &options.name;
        let host: Arc<dyn BufferType> = HostBufferType::new(name);
        let mapped = ForeignBufferType::mapped(format!("{name} mapped"));
        let isa = options.isa.or_best();
        let packed = || PackedBufferType::new(format!("{name} repacked"), isa, Arc::clone(&pool)) as _;
        let packed: Option<Arc<dyn BufferType>> = options.repack.then(packed);
        let mut plain = [Arc::clone(&mapped) as _, Arc::clone(&host)];
        // Files are mapped in small pages.
        if options.repack && has_large_pages() {
            plain.reverse();
        }
        Arc::new(CpuDevice {
            name: name.as_str().into(),
            pool,
            isa,
            weights: packed.iter().cloned().chain(plain).collect(),
            host: [host],
            packed,
            mapped,
        })
    }

    /// Whether an operand can lie in a kind of memory.
    fn reaches(&self, op: &Op, operand: usize, desc: &TensorDesc, memory: &Arc<dyn BufferType>) -> bool {
        if memory.layout() == MemoryLayout::Plain {
            return memory.is_host();
        }
        self.packed.as_ref().is_some_and(|packed| same_type(packed, memory))
            && operand == 0
            && matches!(op, Op::MulMat | Op::MulMatId | Op::MulMatSome | Op::GetRows)
            && desc.is_contiguous()
            && PackedLayout::of(desc).is_some()
    }

    /// The pool it runs on.
    pub fn pool(&self) -> &Arc<ThreadPool> {
        &self.pool
    }

    /// The instructions that its kernels use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The type of buffers over mapped files, in which weights are used in place.
    pub fn mapped(&self) -> &Arc<ForeignBufferType> {
        &self.mapped
    }
}

impl Device for CpuDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> DeviceFacts {
        let threads = self.pool.threads();
        DeviceFacts {
            description: format!("{threads} threads, {}", self.isa),
            class: DeviceClass::Cpu,
            memory: memory(Path::new("/")),
            flops: 3e10 * threads as f64,
            bytes_per_second: 1.5e10,
            cache_bytes: last_level_bytes(Path::new("/")).unwrap_or(0),
            launch_seconds: 1e-6,
            host_link: Link { bytes_per_second: 1.5e10, latency_seconds: 0.0 },
            staging: StagingMemory::default(),
            asynchronous: false,
            lost: false,
        }
    }

    fn buffer_types(&self, role: Role) -> &[Arc<dyn BufferType>] {
        match role {
            Role::Arena => &self.host,
            Role::Weight => &self.weights,
        }
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        for (operand, tensor) in node.inputs.iter().chain([&node.output]).enumerate() {
            if let Some(buffer_type) = tensor.buffer_type
                && !self.reaches(node.op, operand, tensor.desc, buffer_type)
            {
                let buffer_type = buffer_type.name().to_owned();
                return Support::No(Reason::BufferType { operand, buffer_type });
            }
        }
        if node.op.is_view() {
            return Support::YES;
        }
        let Some(kernel) = kernel(node.op) else { return Support::No(Reason::Op) };
        let operands: Vec<TensorDesc> = node.inputs.iter().map(|operand| *operand.desc).collect();
        match (kernel.accepts)(node.op, &operands, node.output.desc) {
            Ok(()) => Support::YES,
            Err(reason) => Support::No(reason),
        }
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        let max_threads = options.max_threads.clamp(1, self.pool.threads());
        lower(self, segment, &LowerOptions { max_threads, ..options.clone() })
    }

    fn steps_may_move(&self) -> bool {
        true
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        Ok(Arc::new(CpuProgram::new(steps, bindings, self.isa, &self.name)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(CpuQueue::new(Arc::clone(&self.name), Arc::clone(&self.pool))))
    }
}

impl fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} threads, {})", self.name, self.pool.threads(), self.isa)
    }
}
