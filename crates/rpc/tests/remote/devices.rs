//! A device between a server and the CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_backend::{
    Bindings, BufferType, Device, DeviceError, DeviceFacts, LowerOptions, Memory, NodeQuery, Program, Queue,
    Role, Segment, Steps, Support,
};
use orlop_cpu::{CpuDevice, ThreadPool};

/// A CPU that says how much memory is free, and may have a bug.
#[derive(Debug)]
pub(crate) struct OddDevice {
    inner: Arc<dyn Device>,
    free: u64,
    panics: AtomicBool,
}

impl OddDevice {
    /// With this many free bytes.
    pub(crate) fn with_free(free: u64) -> Arc<OddDevice> {
        let inner = CpuDevice::new(ThreadPool::new(1).unwrap());
        Arc::new(OddDevice { inner, free, panics: AtomicBool::new(false) })
    }

    /// That panics at the first graph.
    pub(crate) fn with_a_bug() -> Arc<OddDevice> {
        let inner = CpuDevice::new(ThreadPool::new(1).unwrap());
        Arc::new(OddDevice { inner, free: 1 << 40, panics: AtomicBool::new(true) })
    }
}

impl Device for OddDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn facts(&self) -> DeviceFacts {
        let memory = Some(Memory { total: 1 << 40, free: self.free });
        DeviceFacts { memory, ..self.inner.facts() }
    }

    fn buffer_types(&self, role: Role) -> &[Arc<dyn BufferType>] {
        self.inner.buffer_types(role)
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        self.inner.supports(node)
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        assert!(!self.panics.swap(false, Ordering::AcqRel), "the device has a bug");
        self.inner.lower(segment, options)
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        self.inner.compile(steps, bindings)
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        self.inner.queue()
    }
}
