//! The reference device's queue, which runs each program at once on the caller's thread.

use std::sync::Arc;

use orlop_backend::{Bindings, Buffer, Claim, Claims, DeviceError, Program, Queue, RunOptions, StepValue};
use orlop_graph::{AccessKind, TensorDesc, TensorId};

use crate::execute::{Memory, execute, gather, scatter};
use crate::program::ReferenceProgram;

/// A synchronous queue.
#[derive(Debug)]
pub(crate) struct ReferenceQueue {
    device: Arc<str>,
}

impl ReferenceQueue {
    pub(crate) fn new(device: Arc<str>) -> ReferenceQueue {
        ReferenceQueue { device }
    }

    fn own<'a>(&self, program: &'a Arc<dyn Program>) -> Result<&'a ReferenceProgram, DeviceError> {
        let found = program.as_any().downcast_ref::<ReferenceProgram>();
        match found {
            Some(program) if Arc::ptr_eq(&program.device, &self.device) => Ok(program),
            other => Err(DeviceError::Foreign {
                what: "a program",
                owner: other.map_or("another kind of device", |program| &program.device).to_owned(),
                device: self.device.to_string(),
            }),
        }
    }
}

impl Queue for ReferenceQueue {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        let program = self.own(program)?;
        let max = program.max_threads;
        if let Some(asked) = options.threads.filter(|asked| *asked == 0 || *asked > max) {
            return Err(DeviceError::BadThreads { asked, max });
        }
        let mut claimed = Vec::with_capacity(program.touches().len());
        for (buffer, kind) in program.touches() {
            claims.check(&**buffer, *kind)?;
            // SAFETY: `lend` asks that no other thread interferes while the claim is used. The claims end with
            // this call, everything in it runs on this thread, and our caller answers for other queues.
            claimed.push(unsafe { claims.lend(&**buffer, *kind)? });
        }
        let mut memory = Bound { bindings: &program.bindings, claims: claimed };
        let graph = &program.bindings.graph;
        for (step, node) in program.nodes.iter().enumerate() {
            if options.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
                return Err(DeviceError::Cancelled { step, steps: program.nodes.len() });
            }
            execute(&self.device, graph, graph.node(*node), &mut memory)?;
        }
        Ok(())
    }
}

/// Tensors in buffers, under the claims of one run.
struct Bound<'a> {
    bindings: &'a Bindings,
    claims: Vec<Claim>,
}

impl Bound<'_> {
    fn claim(&self, buffer: &dyn Buffer, kind: AccessKind) -> Result<&Claim, DeviceError> {
        self.claims
            .iter()
            .find(|claim| claim.allows(buffer, kind))
            .ok_or_else(|| DeviceError::NotClaimed { buffer_type: buffer.buffer_type().name().to_owned() })
    }
}

impl Memory for Bound<'_> {
    fn load(&self, tensor: TensorId, desc: &TensorDesc) -> Result<Vec<u8>, DeviceError> {
        let slot = self.bindings.slot(StepValue::Tensor(tensor))?;
        let claim = self.claim(&*slot.buffer, AccessKind::Read)?;
        gather(desc, |at, bytes| slot.buffer.read(claim, slot.offset + at, bytes))
    }

    fn store(
        &mut self,
        tensor: TensorId,
        offset: u64,
        part: &TensorDesc,
        packed: &[u8],
    ) -> Result<(), DeviceError> {
        let slot = self.bindings.slot(StepValue::Tensor(tensor))?;
        let claim = self.claim(&*slot.buffer, AccessKind::Write)?;
        scatter(part, packed, |at, bytes| slot.buffer.write(claim, slot.offset + offset + at, bytes))
    }
}
