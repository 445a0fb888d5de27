//! How kernels report indices out of range: through host memory that the GPU writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use orlop_backend::{Bindings, DeviceError, Step, Steps};

use crate::context::Context;
use crate::modules::Modules;
use crate::sys::{DevicePtr, PinnedMemory};

/// A place in host memory in which a program's kernels note what was wrong with their data: the step, counted from 1, the
/// index found, and how many rows there are.
#[derive(Debug)]
pub(crate) struct KernelErrors {
    memory: PinnedMemory,
    /// Op and result of each step.
    names: Vec<(String, String)>,
    /// The kernels: like the memory, they stay for as long as a program or work under way needs them.
    #[allow(dead_code)]
    modules: Arc<Modules>,
}

const BYTES: u64 = 64;

impl KernelErrors {
    pub(crate) fn new(
        context: &Arc<Context>,
        modules: &Arc<Modules>,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<KernelErrors, DeviceError> {
        let name = |step: &Step| {
            let node = step.nodes.last().map(|node| bindings.graph.node(*node));
            let result = node.map(|node| bindings.graph.tensor(node.output).name.clone());
            (
                node.map_or_else(|| step.kernel.to_string(), |node| node.op.name().to_owned()),
                result.unwrap_or_default(),
            )
        };
        let allocated = PinnedMemory::allocate(context.enter()?, BYTES);
        Ok(KernelErrors {
            memory: context.note_memory(allocated, "kernel errors", BYTES)?,
            names: steps.steps.iter().map(name).collect(),
            modules: Arc::clone(modules),
        })
    }

    /// Where kernels write.
    pub(crate) fn address(&self) -> DevicePtr {
        self.memory.address()
    }

    fn words(&self) -> (&AtomicU64, &AtomicI64, &AtomicU64) {
        let base = self.memory.host().as_ptr();
        // SAFETY: `from_ptr` asks for aligned memory that lives as long as the result and is reached through atomics only: the
        // memory is this object's, begins a page, and on the host only this function reaches it; the GPU writes whole words.
        let step = unsafe { AtomicU64::from_ptr(base.cast()) };
        // SAFETY: as for the first word; the second begins at byte 8 of 64.
        let index = unsafe { AtomicI64::from_ptr(base.wrapping_add(8).cast()) };
        // SAFETY: as for the first word; the third begins at byte 16 of 64.
        let rows = unsafe { AtomicU64::from_ptr(base.wrapping_add(16).cast()) };
        (step, index, rows)
    }

    /// The error that a kernel noted, if one did.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        let (step, index, rows) = self.words();
        let Some(step) = step.load(Ordering::Acquire).checked_sub(1) else { return Ok(()) };
        let (op, tensor) = self.names.get(step as usize).cloned().unwrap_or_default();
        Err(DeviceError::BadIndex {
            op,
            tensor,
            index: index.load(Ordering::Relaxed),
            rows: rows.load(Ordering::Relaxed),
        })
    }

    pub(crate) fn clear(&self) {
        self.words().0.store(0, Ordering::Release);
    }
}
