//! An open adapter: creates and counts all driver objects.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use orlop_backend::{DeviceError, Gate};

use crate::adapter::block_on;
use crate::counts::{Counters, count};
use crate::staging::Staging;
use crate::{Adapter, Error, WgpuOptions};

/// An open adapter.
pub(crate) struct Gpu {
    pub(crate) name: Arc<str>,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) limits: wgpu::Limits,
    pub(crate) features: wgpu::Features,
    /// See [`WgpuOptions::cooperative`].
    pub(crate) cooperative: bool,
    pub(crate) counters: Counters,
    /// Bytes of all buffers.
    pub(crate) allocated: AtomicU64,
    /// Bytes of the buffers of tensors.
    pub(crate) held: AtomicU64,
    /// Limit on `allocated`.
    pub(crate) memory: Option<u64>,
    lost: Arc<Lost>,
    pipelines: Mutex<HashMap<String, Arc<Pipeline>>>,
    /// The driver's buffer by the address of its gate, which identifies a buffer even through wrappers.
    raw: Mutex<HashMap<usize, wgpu::Buffer>>,
    staging: OnceLock<Mutex<Staging>>,
    /// The latest submission.
    last: Mutex<Option<wgpu::SubmissionIndex>>,
}

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// Whether and why the device is lost.
#[derive(Debug, Default)]
struct Lost {
    is: AtomicBool,
    reason: OnceLock<String>,
}

impl Lost {
    fn note(&self, reason: String) {
        self.reason.get_or_init(|| reason);
        self.is.store(true, Ordering::Release);
    }
}

impl Gpu {
    pub(crate) fn open(
        adapter: &Adapter,
        options: &WgpuOptions,
        limits: wgpu::Limits,
        memory: Option<u64>,
    ) -> Result<Arc<Gpu>, Error> {
        let name = options.name.as_str();
        let mut wanted = wgpu::Features::SUBGROUP | wgpu::Features::TIMESTAMP_QUERY;
        wanted.set(wgpu::Features::SUBGROUP, options.subgroups);
        let features = adapter.inner.features() & wanted;
        let description = wgpu::DeviceDescriptor {
            label: Some(name),
            required_features: features,
            required_limits: limits.clone(),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let refused = |reason: String| Error::Open { adapter: adapter.name().to_owned(), reason };
        let (device, queue) = block_on(adapter.inner.request_device(&description))
            .map_err(|error| refused(error.to_string()))?;
        let lost = Arc::new(Lost::default());
        let noted = Arc::clone(&lost);
        device.set_device_lost_callback(move |reason, message| noted.note(format!("{reason:?}: {message}")));
        let noted = Arc::clone(&lost);
        // An uncaptured error is a bug or a lost device; both end the device.
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| noted.note(error.to_string())));
        let gpu = Gpu {
            name: name.into(),
            device,
            queue,
            limits,
            features,
            cooperative: options.cooperative.unwrap_or(!adapter.is_software()),
            counters: Counters::default(),
            allocated: AtomicU64::new(0),
            held: AtomicU64::new(0),
            memory,
            lost,
            pipelines: Mutex::default(),
            raw: Mutex::default(),
            staging: OnceLock::new(),
            last: Mutex::default(),
        };
        let staging = Staging::new(&gpu).map_err(|error| refused(error.to_string()))?;
        gpu.staging.get_or_init(|| Mutex::new(staging));
        Ok(Arc::new(gpu))
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is.load(Ordering::Acquire)
    }

    /// Fails if the device is lost.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        if self.is_lost() { Err(self.lost_error("it was lost before")) } else { Ok(()) }
    }

    /// Marks the device as lost and returns the error, with the first reason.
    pub(crate) fn lost_error(&self, reason: &str) -> DeviceError {
        self.lost.note(reason.to_owned());
        let reason = self.lost.reason.get().map_or(reason, String::as_str).to_owned();
        DeviceError::Lost { device: self.name.to_string(), reason }
    }

    /// Destroys the device, as if it had been lost.
    pub(crate) fn destroy(&self) {
        self.lost.note("it was destroyed".to_owned());
        self.device.destroy();
    }

    /// Runs `work` and returns the driver's error, if any.
    pub(crate) fn scoped<T>(&self, work: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        let filters =
            [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal];
        let [a, b, c] = filters.map(|filter| self.device.push_error_scope(filter));
        let made = work();
        let errors = [block_on(c.pop()), block_on(b.pop()), block_on(a.pop())];
        errors.into_iter().flatten().next().map_or(Ok(made), Err)
    }

    /// Creates a buffer. Its bytes are counted until [`Gpu::forget`].
    pub(crate) fn buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, DeviceError> {
        self.check()?;
        let none = || DeviceError::OutOfMemory { buffer_type: label.to_owned(), bytes };
        let size = bytes.max(4).checked_next_multiple_of(4).ok_or_else(none)?;
        let taken = self.allocated.fetch_add(size, Ordering::AcqRel);
        let fits = |max: u64| taken.checked_add(size).is_some_and(|all| all <= max);
        let description =
            wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
        let made = match self.memory.is_none_or(fits) {
            true => self.scoped(|| self.device.create_buffer(&description)).map_err(|error| match error {
                wgpu::Error::OutOfMemory { .. } => none(),
                _ if self.is_lost() => self.lost_error(""),
                // Sizes were checked against the limits, so other errors mean out of memory.
                _ => none(),
            }),
            false => Err(none()),
        };
        match &made {
            Ok(_) => count(&self.counters.buffers),
            Err(_) => self.forget(size),
        }
        made
    }

    /// Subtracts the bytes of a dropped buffer.
    pub(crate) fn forget(&self, bytes: u64) {
        self.allocated.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// The driver's buffer of a gate, if it belongs to this device.
    pub(crate) fn raw(&self, gate: &Arc<Gate>) -> Option<wgpu::Buffer> {
        self.known().get(&Arc::as_ptr(gate).addr()).cloned()
    }

    pub(crate) fn adopt(&self, gate: &Arc<Gate>, raw: &wgpu::Buffer) {
        self.known().insert(Arc::as_ptr(gate).addr(), raw.clone());
    }

    pub(crate) fn disown(&self, gate: &Arc<Gate>) {
        self.known().remove(&Arc::as_ptr(gate).addr());
    }

    fn known(&self) -> MutexGuard<'_, HashMap<usize, wgpu::Buffer>> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pipeline of a source, compiled at its first use. `bindings` states for each storage buffer whether it is
    /// written.
    pub(crate) fn pipeline(&self, source: &str, bindings: &[bool]) -> Result<Arc<Pipeline>, DeviceError> {
        self.check()?;
        let mut known = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = known.get(source) {
            return Ok(Arc::clone(pipeline));
        }
        let made = self.scoped(|| self.compile(source, bindings));
        let made =
            Arc::new(made.map_err(|error| self.lost_error(&format!("a kernel does not compile: {error}")))?);
        count(&self.counters.pipelines);
        known.insert(source.to_owned(), Arc::clone(&made));
        Ok(made)
    }

    fn compile(&self, source: &str, bindings: &[bool]) -> Pipeline {
        let shader = wgpu::ShaderSource::Wgsl(source.into());
        let module =
            self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source: shader });
        let entry = |binding: usize, ty: wgpu::BufferBindingType| wgpu::BindGroupLayoutEntry {
            binding: binding as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let storage = |(index, written): (usize, &bool)| {
            entry(index + 1, wgpu::BufferBindingType::Storage { read_only: !written })
        };
        let parameters = entry(0, wgpu::BufferBindingType::Uniform);
        let entries: Vec<_> =
            std::iter::once(parameters).chain(bindings.iter().enumerate().map(storage)).collect();
        let layout = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        Pipeline { pipeline, layout }
    }

    /// The bind group of a kernel: its parameters, then whole buffers.
    pub(crate) fn bind_group(
        &self,
        layout: &wgpu::BindGroupLayout,
        parameters: wgpu::BufferBinding<'_>,
        buffers: &[&wgpu::Buffer],
    ) -> wgpu::BindGroup {
        count(&self.counters.bind_groups);
        let first = wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(parameters) };
        let rest = buffers.iter().enumerate().map(|(index, buffer)| wgpu::BindGroupEntry {
            binding: index as u32 + 1,
            resource: buffer.as_entire_binding(),
        });
        let entries: Vec<_> = std::iter::once(first).chain(rest).collect();
        self.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
    }

    pub(crate) fn encoder(&self) -> wgpu::CommandEncoder {
        count(&self.counters.encoders);
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
    }

    pub(crate) fn submit(&self, encoder: wgpu::CommandEncoder) -> wgpu::SubmissionIndex {
        count(&self.counters.submissions);
        let commands = encoder.finish();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let submitted = self.queue.submit([commands]);
        *last = Some(submitted.clone());
        submitted
    }

    /// The latest submission of all queues, which the driver runs after all earlier ones.
    pub(crate) fn last_submission(&self) -> Option<wgpu::SubmissionIndex> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the driver report what is done, without waiting.
    pub(crate) fn poll(&self) -> Result<(), DeviceError> {
        let polled = self.device.poll(wgpu::PollType::Poll);
        polled.map(|_| ()).map_err(|error| self.lost_error(&error.to_string()))
    }

    /// Waits for a submission, or for all of them.
    pub(crate) fn wait(&self, submission_index: Option<wgpu::SubmissionIndex>) -> Result<(), DeviceError> {
        count(&self.counters.waits);
        let waited = self.device.poll(wgpu::PollType::Wait { submission_index, timeout: None });
        waited.map_err(|error| self.lost_error(&error.to_string()))?;
        self.check()
    }

    /// The staging memory.
    pub(crate) fn staging(&self) -> Result<MutexGuard<'_, Staging>, DeviceError> {
        let staging = self.staging.get().ok_or_else(|| self.lost_error("it has no staging memory"))?;
        Ok(staging.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
