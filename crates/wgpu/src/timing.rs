//! Timing of single kernels.

use std::sync::Arc;
use std::time::Instant;

use orlop_backend::DeviceError;

use crate::counts::count;
use crate::gpu::Gpu;
use crate::program::{Dispatch, WgpuProgram};
use crate::staging::read_mapped;

/// The time and work of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// The op and its operands.
    pub kernel: String,
    /// Its duration.
    pub seconds: f64,
    /// Bytes of its operands and its result, each counted once.
    pub bytes: f64,
    /// Multiplications and additions of compute-bound kernels; else 0.
    pub operations: f64,
}

pub(crate) fn time(gpu: &Arc<Gpu>, program: &WgpuProgram) -> Result<Vec<KernelTime>, DeviceError> {
    gpu.check()?;
    gpu.staging()?.flush(gpu);
    gpu.wait(None)?;
    let by_device = gpu.features.contains(wgpu::Features::TIMESTAMP_QUERY);
    let clock = if by_device { Some(Clock::new(gpu)?) } else { None };
    let mut times = Vec::with_capacity(program.dispatches().len());
    for dispatch in program.dispatches() {
        let seconds = match &clock {
            Some(clock) => clock.seconds(gpu, dispatch)?,
            None => {
                let begin = Instant::now();
                let mut encoder = gpu.encoder();
                dispatch.encode(&mut encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()));
                gpu.wait(Some(gpu.submit(encoder)))?;
                begin.elapsed().as_secs_f64()
            }
        };
        times.push(KernelTime {
            kernel: dispatch.label.clone(),
            seconds,
            bytes: dispatch.work.bytes,
            operations: dispatch.work.operations,
        });
    }
    Ok(times)
}

/// Timestamp queries of the adapter.
struct Clock {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
    gpu: Arc<Gpu>,
}

impl Clock {
    fn new(gpu: &Arc<Gpu>) -> Result<Clock, DeviceError> {
        let resolve = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let map = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let (resolved, read) = (gpu.buffer("times", 16, resolve)?, gpu.buffer("times", 16, map)?);
        count(&gpu.counters.query_sets);
        let queries = gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count: 2,
        });
        Ok(Clock { queries, resolved, read, gpu: Arc::clone(gpu) })
    }

    fn seconds(&self, gpu: &Gpu, dispatch: &Dispatch) -> Result<f64, DeviceError> {
        let mut encoder = gpu.encoder();
        let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(0),
            end_of_pass_write_index: Some(1),
        });
        let description = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
        dispatch.encode(&mut encoder.begin_compute_pass(&description));
        encoder.resolve_query_set(&self.queries, 0..2, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.read, 0, 16);
        let submitted = gpu.submit(encoder);
        let mut bytes = [0; 16];
        read_mapped(gpu, &self.read, submitted, &mut bytes)?;
        let tick = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        let ticks = tick(1).saturating_sub(tick(0)) as f64;
        Ok(ticks * f64::from(gpu.queue.get_timestamp_period()) * 1e-9)
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.gpu.forget(self.resolved.size() + self.read.size());
    }
}
