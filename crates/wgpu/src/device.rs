//! The device.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orlop_backend::{
    Bindings, BufferType, Device, DeviceClass, DeviceError, DeviceFacts, Link, LowerOptions, Memory,
    NodeQuery, Program, Queue, ReadRing, Reason, Role, Segment, StagingMemory, Steps, Support, same_type,
};
use orlop_graph::TensorDesc;

use crate::buffer::WgpuMemory;
use crate::gpu::Gpu;
use crate::kernels;
use crate::lower::lower;
use crate::program::WgpuProgram;
use crate::queue::WgpuQueue;
use crate::staging::{MappedBlock, STAGING, read_ring};
use crate::timing::{self, KernelTime};
use crate::{Adapter, Counts, Error};

/// Limit on the bytes of a buffer on any adapter: kernels address bytes in 32 bits.
const MAX_BYTES: u64 = (1 << 31) - (1 << 16);
/// Minimum number of storage buffers per kernel.
const MIN_BINDINGS: u32 = 8;

/// Options of a [`WgpuDevice`].
#[derive(Clone, Debug)]
pub struct WgpuOptions {
    /// Its name. Default: `wgpu`.
    pub name: String,
    /// Limit on the bytes of a buffer. Default: the adapter's largest binding.
    pub max_binding: Option<u64>,
    /// Limit on the bytes of all buffers. Default: the adapter's memory.
    pub memory: Option<u64>,
    /// Use subgroup operations if the adapter has them. Default: yes.
    pub subgroups: bool,
    /// Split the dot products of a matrix product over the invocations of a workgroup. Default: no for software adapters,
    /// where barriers cost more than they save; yes for others.
    pub cooperative: Option<bool>,
}

impl Default for WgpuOptions {
    fn default() -> WgpuOptions {
        WgpuOptions {
            name: "wgpu".to_owned(),
            max_binding: None,
            memory: None,
            subgroups: true,
            cooperative: None,
        }
    }
}

/// An adapter as a device.
///
/// A buffer is at most as large as the adapter's largest binding, which is the chunk limit of plans. [`Device::supports`]
/// rejects larger tensors.
pub struct WgpuDevice {
    gpu: Arc<Gpu>,
    adapter: Adapter,
    memory: [Arc<dyn BufferType>; 1],
    reads: ReadRing<MappedBlock>,
}

impl WgpuDevice {
    /// Opens an adapter under the name `wgpu`.
    ///
    /// # Errors
    /// [`Error`] if a limit of the adapter is too small, or its driver cannot open it.
    pub fn new(adapter: &Adapter) -> Result<Arc<WgpuDevice>, Error> {
        WgpuDevice::with_options(adapter, &WgpuOptions::default())
    }

    /// Opens an adapter with options.
    ///
    /// # Errors
    /// As [`WgpuDevice::new`].
    pub fn with_options(adapter: &Adapter, options: &WgpuOptions) -> Result<Arc<WgpuDevice>, Error> {
        let limits = adapter.inner.limits();
        let needs = [
            ("storage buffers", limits.max_storage_buffers_per_shader_stage, MIN_BINDINGS),
            (
                "invocations per workgroup",
                limits.max_compute_invocations_per_workgroup,
                crate::wgsl::WORKGROUP,
            ),
            ("bytes of workgroup memory", limits.max_compute_workgroup_storage_size, 12 << 10),
        ];
        for (limit, found, needed) in needs {
            if found < needed {
                let adapter = adapter.name().to_owned();
                return Err(Error::Limit { adapter, limit, found: found.into(), needed: needed.into() });
            }
        }
        let binding = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let max = binding.min(MAX_BYTES).min(options.max_binding.unwrap_or(u64::MAX));
        let alignment = u64::from(limits.min_storage_buffer_offset_alignment).max(16);
        let memory = options.memory.or(adapter.memory());
        let gpu = Gpu::open(adapter, options, limits, memory)?;
        let memory: Arc<dyn BufferType> = Arc::new(WgpuMemory {
            name: options.name.clone(),
            gpu: Arc::clone(&gpu),
            alignment,
            max_bytes: max & !(alignment - 1),
        });
        let reads = read_ring(&gpu)
            .map_err(|error| Error::Open { adapter: adapter.name().to_owned(), reason: error.to_string() })?;
        Ok(Arc::new(WgpuDevice { gpu, adapter: adapter.clone(), memory: [memory], reads }))
    }

    /// Its adapter.
    pub fn adapter(&self) -> &Adapter {
        &self.adapter
    }

    /// The numbers of created objects.
    pub fn counts(&self) -> Counts {
        self.gpu.counters.read()
    }

    /// Bytes currently allocated: arenas, weights, parameters of programs, and staging.
    pub fn allocated(&self) -> u64 {
        self.gpu.allocated.load(Ordering::Acquire)
    }

    /// Bytes of the buffers of tensors, as counted by plans.
    pub fn tensor_bytes(&self) -> u64 {
        self.gpu.held.load(Ordering::Acquire)
    }

    /// Destroys the device, as if it had been lost: all later calls fail.
    pub fn destroy(&self) {
        self.gpu.destroy();
    }

    /// Runs a program's kernels one by one and times each, with timestamp queries if the adapter has them.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`], [`DeviceError::Lost`].
    pub fn time_kernels(&self, program: &Arc<dyn Program>) -> Result<Vec<KernelTime>, DeviceError> {
        timing::time(&self.gpu, WgpuProgram::of(program, &self.gpu)?)
    }

    /// Whether kernels are timed with timestamp queries.
    pub fn has_timestamps(&self) -> bool {
        self.gpu.features.contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    fn refusal(&self, node: &NodeQuery<'_>) -> Result<(), Reason> {
        let [memory] = &self.memory;
        let max_bytes = memory.max_bytes();
        for (operand, tensor) in node.inputs.iter().chain([&node.output]).enumerate() {
            if let Some(buffer_type) = tensor.buffer_type
                && !same_type(buffer_type, memory)
            {
                let buffer_type = buffer_type.name().to_owned();
                return Err(Reason::BufferType { operand, buffer_type });
            }
            let value = tensor.desc.bytes();
            if value > max_bytes {
                return Err(Reason::Limit { limit: "bytes of a tensor", value, max: max_bytes });
            }
            let (value, max) = (tensor.desc.elements(), u64::from(u32::MAX >> 1));
            if value > max {
                return Err(Reason::Limit { limit: "elements of a tensor", value, max });
            }
        }
        let operands: Vec<TensorDesc> = node.inputs.iter().map(|operand| *operand.desc).collect();
        kernels::accepts(node.op, &operands, node.output.desc)
    }
}

impl Device for WgpuDevice {
    fn name(&self) -> &str {
        &self.gpu.name
    }

    fn facts(&self) -> DeviceFacts {
        let software = self.adapter.is_software();
        let own = |total: u64| Memory { total, free: total.saturating_sub(self.allocated()) };
        DeviceFacts {
            description: self.adapter.description(),
            // Software adapters, too: they run the same kernels.
            class: DeviceClass::Gpu,
            memory: self.gpu.memory.map(own),
            flops: if software { 4e9 } else { 4e12 },
            bytes_per_second: if software { 4e9 } else { 2e11 },
            cache_bytes: 0,
            launch_seconds: if software { 5e-5 } else { 5e-6 },
            host_link: Link {
                bytes_per_second: if software { 4e9 } else { 1e10 },
                latency_seconds: if software { 5e-5 } else { 2e-5 },
            },
            staging: StagingMemory { device: STAGING, queue: 0 },
            asynchronous: true,
            lost: self.gpu.is_lost(),
        }
    }

    fn buffer_types(&self, _: Role) -> &[Arc<dyn BufferType>] {
        &self.memory
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        match self.refusal(node) {
            Ok(()) => Support::YES,
            Err(reason) => Support::No(reason),
        }
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        lower(self, segment, options)
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        self.gpu.check()?;
        Ok(Arc::new(WgpuProgram::new(&self.gpu, steps, bindings)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        self.gpu.check()?;
        Ok(Box::new(WgpuQueue::new(&self.gpu, &self.reads)))
    }
}

impl fmt::Debug for WgpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.gpu.name, self.adapter.description())
    }
}
