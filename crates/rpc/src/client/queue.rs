//! Queues of a remote device. The connection orders all work, so a queue is done with what it passed on.

use std::sync::Arc;

use orlop_backend::{Claim, Claims, DeviceError, Program, Queue, RunOptions, StoredTensor, copy_claimed};
use orlop_graph::AccessKind;

use super::endpoint::Endpoint;
use super::program::{RpcProgram, check_claims};

#[derive(Debug)]
pub(super) struct RpcQueue {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) device: u32,
}

#[allow(unsafe_code)]
mod contract {
    use super::*;

    impl Queue for RpcQueue {
        unsafe fn submit(
            &mut self,
            program: &Arc<dyn Program>,
            claims: &Claims,
            options: &RunOptions,
        ) -> Result<(), DeviceError> {
            let own = program.as_any().downcast_ref::<RpcProgram>();
            let own =
                own.filter(|own| Arc::ptr_eq(own.endpoint(), &self.endpoint) && own.device() == self.device);
            let Some(own) = own else {
                return Err(DeviceError::Foreign {
                    what: "a program",
                    owner: "another device".to_owned(),
                    device: self.endpoint.name.clone(),
                });
            };
            check_claims(own, claims)?;
            if options.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
                return Err(DeviceError::Cancelled { step: 0, steps: 1 });
            }
            own.run()
        }

        unsafe fn copy(
            &mut self,
            from: &StoredTensor,
            to: &StoredTensor,
            claims: &Claims,
        ) -> Result<(), DeviceError> {
            // SAFETY: `lend` asks that conflicting uses of the run's claims are ordered: `copy`'s contract.
            let read = unsafe { claims.lend(&*from.slot().buffer, AccessKind::Read) }?;
            // SAFETY: `lend` asks that conflicting uses of the run's claims are ordered: `copy`'s contract.
            let write = unsafe { claims.lend(&*to.slot().buffer, AccessKind::Write) }?;
            copy_at_once(from, to, [&read, &write])
        }
    }
}

/// Copies a tensor with one read where the source is far, too: pieces would take a round trip each.
fn copy_at_once(from: &StoredTensor, to: &StoredTensor, claims: [&Claim; 2]) -> Result<(), DeviceError> {
    let (a, b) = (from.desc(), to.desc());
    let source = &*from.slot().buffer;
    let plain = (a.dtype, a.extents) == (b.dtype, b.extents) && a.is_contiguous() && b.is_contiguous();
    if source.host().is_some() || !plain || Arc::ptr_eq(source.gate(), to.slot().buffer.gate()) {
        return copy_claimed(from, to, claims).map(|_| ());
    }
    let mut bytes = vec![0; a.bytes() as usize];
    source.read(claims[0], from.slot().offset, &mut bytes)?;
    to.slot().buffer.write(claims[1], to.slot().offset, &bytes)
}
