//! A program that is guarded as a whole: what it may write, and what it changed.

use std::any::Any;
use std::sync::Arc;

use orlop_backend::{Bindings, Buffer, Claims, DeviceError, Program, StepValue, Steps, Touch};
use orlop_graph::AccessKind;

use super::device::ZONE;
use super::queue::{changed, lend};
use super::spans::Spans;
use super::trespass::{Offence, Trespass, Victim};

/// A program of the inner device's, and what it may write.
#[derive(Debug)]
pub(super) struct WholeProgram {
    device: Arc<str>,
    pub(super) inner: Arc<dyn Program>,
    written: Vec<Written>,
}

/// A buffer that a program writes, and where it may.
#[derive(Debug)]
struct Written {
    buffer: Arc<dyn Buffer>,
    allowed: Spans,
}

impl WholeProgram {
    pub(super) fn new(
        device: &Arc<str>,
        inner: Arc<dyn Program>,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<WholeProgram, DeviceError> {
        let mut written = Vec::new();
        for (buffer, _) in inner.touches().iter().filter(|(_, kind)| *kind == AccessKind::Write) {
            let mut ranges = Vec::new();
            for value in steps.steps.iter().flat_map(|step| &step.writes) {
                let slot = bindings.slot(*value)?;
                if Arc::ptr_eq(slot.buffer.gate(), buffer.gate()) {
                    let bytes = match value {
                        StepValue::Tensor(id) => bindings.graph.tensor(*id).desc.bytes(),
                        StepValue::Temporary(index) => steps.temporaries[*index].bytes.saturating_sub(ZONE),
                    };
                    ranges.push(slot.offset..slot.offset + bytes);
                }
            }
            written.push(Written { buffer: Arc::clone(buffer), allowed: Spans::new(ranges) });
        }
        Ok(WholeProgram { device: Arc::clone(device), inner, written })
    }

    pub(super) fn of<'a>(program: &'a Arc<dyn Program>, device: &Arc<str>) -> Option<&'a WholeProgram> {
        let own = program.as_any().downcast_ref::<WholeProgram>();
        own.filter(|program| Arc::ptr_eq(&program.device, device))
    }

    /// All memory that it may write.
    pub(super) fn contents(&self, claims: &Claims) -> Result<Vec<Vec<u8>>, DeviceError> {
        let read = |Written { buffer, .. }: &Written| {
            let claim = lend(claims, &**buffer, AccessKind::Read)?;
            let mut bytes = vec![0; buffer.bytes() as usize];
            buffer.read(&claim, 0, &mut bytes)?;
            Ok(bytes)
        };
        self.written.iter().map(read).collect()
    }

    /// What it changed although it may not.
    pub(super) fn changes(&self, before: &[Vec<u8>], now: &[Vec<u8>]) -> Vec<Trespass> {
        let mut found = Vec::new();
        for ((written, before), now) in self.written.iter().zip(before).zip(now) {
            for bytes in changed(before, now, &written.allowed) {
                let buffer_type = written.buffer.buffer_type().name().to_owned();
                let offence = Offence::WroteOutside { buffer_type, bytes, victim: Victim::Unused };
                found.push(Trespass { step: 0, kernel: "program".to_owned(), node: String::new(), offence });
            }
        }
        found
    }
}

impl Program for WholeProgram {
    fn touches(&self) -> &[Touch] {
        self.inner.touches()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
