use std::collections::HashMap;
use std::sync::Arc;

use orlop_backend::{Bindings, Buffer, Slot, Steps, StoredTensor, Value};
use orlop_graph::{Access, AccessKind, Hazard, dependencies};

use crate::Schedule;

/// Two splits that touch the same bytes, one of them writing, with nothing that keeps them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("splits {before} and {after} touch the same bytes ({hazard:?}), and neither waits for the other")]
pub struct Race {
    /// The one that comes first in the schedule.
    pub before: usize,
    /// The other.
    pub after: usize,
    /// What goes wrong if they change places.
    pub hazard: Hazard,
}

/// Collects which bytes of which buffer each split touches, as it is bound, and compares with who waits for whom.
/// It knows nothing of lifetimes or plans.
#[derive(Debug, Default)]
pub(crate) struct RaceChecker {
    /// Numbers of the buffers, by the address of their gates.
    buffers: HashMap<usize, (u32, Arc<dyn Buffer>)>,
    accesses: Vec<Access>,
}

impl RaceChecker {
    pub(crate) fn copy(&mut self, split: usize, from: &StoredTensor, to: &StoredTensor) {
        self.touch(split, from.slot(), from.desc().bytes(), AccessKind::Read);
        self.touch(split, to.slot(), to.desc().bytes(), AccessKind::Write);
    }

    pub(crate) fn steps(&mut self, split: usize, steps: &Steps, bindings: &Bindings) {
        for step in &steps.steps {
            let reads = step.reads.iter().map(|value| (*value, AccessKind::Read));
            let writes = step.writes.iter().map(|value| (*value, AccessKind::Write));
            for (value, kind) in reads.chain(writes) {
                let Ok(slot) = bindings.slot(value) else { continue };
                let bytes = match value {
                    Value::Tensor(id) => bindings.graph.tensor(id).desc.bytes(),
                    Value::Temporary(number) => steps.temporaries[number].bytes,
                };
                self.touch(split, slot, bytes, kind);
            }
        }
    }

    fn touch(&mut self, split: usize, slot: &Slot, bytes: u64, kind: AccessKind) {
        let fresh = self.buffers.len() as u32;
        let gate = Arc::as_ptr(slot.buffer.gate()).addr();
        let (root, _) = self.buffers.entry(gate).or_insert_with(|| (fresh, Arc::clone(&slot.buffer)));
        let root = *root;
        let range = slot.offset..slot.offset.saturating_add(bytes);
        self.accesses.push(Access { step: split as u32, root, range, kind });
    }

    /// The first pair that nothing keeps apart.
    pub(crate) fn check(&self, schedule: &Schedule, devices: usize) -> Result<(), Race> {
        let clocks = schedule.clocks(devices);
        for edge in dependencies(&self.accesses) {
            let (before, after) = (edge.before as usize, edge.after as usize);
            let device = schedule.splits[before].device;
            let same_queue = device == schedule.splits[after].device;
            if !same_queue && clocks[after][device.index()] < Some(before) {
                return Err(Race { before, after, hazard: edge.hazard });
            }
        }
        Ok(())
    }
}
