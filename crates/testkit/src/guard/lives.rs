//! Where values lie in memory, and during which steps they are live.

use std::ops::Range;
use std::sync::Arc;

use orlop_backend::{Bindings, Buffer, DeviceError, Slot, Step, StepValue};
use orlop_graph::{Leaf, Origin, TensorId, may_overwrite};

use super::device::ZONE;
use super::spans::{Spans, overlap};
use super::trespass::Offence;

/// A tensor that owns storage, or a temporary, and its place.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) name: String,
    what: What,
    /// Position in [`Lives::buffers`].
    pub(super) buffer: usize,
    pub(super) bytes: Range<u64>,
    /// The step that writes it first; `None` if it is there from the beginning.
    made: Option<usize>,
    /// The last step that touches it; `usize::MAX` if it is kept.
    last: usize,
    /// In memory that is not the run's own: nothing there is ever dead.
    external: bool,
    /// A temporary that no step lists among its writes: any step during its life may write it.
    free: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Root(TensorId),
    Temporary(usize),
}

impl Life {
    fn before(&self, step: usize) -> bool {
        self.external || (self.made.is_none_or(|made| made < step) && step <= self.last)
    }

    fn after(&self, step: usize) -> bool {
        self.external || (self.made.is_none_or(|made| made <= step) && step < self.last)
    }

    /// The unused bytes after it.
    pub(super) fn zone(&self) -> Range<u64> {
        self.bytes.end..self.bytes.end.saturating_add(ZONE)
    }
}

/// Everything that the steps of a program touch.
#[derive(Debug)]
pub(super) struct Lives {
    pub(super) lives: Vec<Life>,
    pub(super) buffers: Vec<Arc<dyn Buffer>>,
}

/// Memory of steps as it was asked for, without red zones: bytes, first and last step.
pub(super) type Scratch = (String, u64, Range<usize>);

impl Lives {
    pub(super) fn new(
        steps: &[Step],
        kept: &[TensorId],
        scratch: &[Scratch],
        bindings: &Bindings,
    ) -> Result<Lives, DeviceError> {
        let mut lives = Lives { lives: Vec::new(), buffers: Vec::new() };
        for (index, (name, bytes, used)) in scratch.iter().enumerate() {
            let value = StepValue::Temporary(index);
            let slot = bindings.slot(value)?;
            let (buffer, bytes) = (lives.buffer(slot), slot.offset..slot.offset + bytes);
            lives.lives.push(Life {
                name: name.clone(),
                what: What::Temporary(index),
                buffer,
                bytes,
                made: Some(used.start),
                last: used.end.saturating_sub(1),
                external: false,
                free: !steps.iter().any(|step| step.writes.contains(&value)),
            });
        }
        for (index, step) in steps.iter().enumerate() {
            for value in &step.reads {
                lives.touch(*value, index, false, bindings)?;
            }
            for value in &step.writes {
                lives.touch(*value, index, true, bindings)?;
            }
        }
        for id in kept {
            lives.touch(StepValue::Tensor(*id), usize::MAX, false, bindings)?;
        }
        Ok(lives)
    }

    pub(super) fn buffer(&mut self, slot: &Slot) -> usize {
        let known = self.buffers.iter().position(|known| Arc::ptr_eq(known.gate(), slot.buffer.gate()));
        known.unwrap_or_else(|| {
            self.buffers.push(Arc::clone(&slot.buffer));
            self.buffers.len() - 1
        })
    }

    fn touch(
        &mut self,
        value: StepValue,
        step: usize,
        writes: bool,
        bindings: &Bindings,
    ) -> Result<(), DeviceError> {
        let StepValue::Tensor(id) = value else { return Ok(()) };
        let storage = bindings.graph.tensor(id).storage;
        if let Some(life) = self.lives.iter_mut().find(|life| life.what == What::Root(storage.root)) {
            life.last = life.last.max(step);
            return Ok(());
        }
        let slot = bindings.slot(value)?;
        let root = bindings.graph.tensor(storage.root);
        let start = slot.offset.saturating_sub(storage.offset);
        let made_here = writes && id == storage.root && matches!(root.origin, Origin::Node(_));
        let external = matches!(root.origin, Origin::Leaf(Leaf::Weight | Leaf::State | Leaf::Persistent));
        let buffer = self.buffer(slot);
        self.lives.push(Life {
            name: root.name.clone(),
            what: What::Root(storage.root),
            buffer,
            bytes: start..start + root.desc.bytes(),
            made: made_here.then_some(step),
            last: step,
            external,
            free: false,
        });
        Ok(())
    }

    /// Whether a buffer holds values that live only for a part of the run.
    pub(super) fn is_arena(&self, buffer: usize) -> bool {
        let mut here = self.lives.iter().filter(|life| life.buffer == buffer);
        here.any(|life| !life.external)
    }

    /// The bytes of a buffer that a step may not read: values that are dead or not yet written, and red zones.
    pub(super) fn dead_before(&self, step: usize, buffer: usize) -> Spans {
        let here = || self.lives.iter().filter(|life| life.buffer == buffer);
        let size = self.buffers[buffer].bytes();
        let inside = |range: Range<u64>| range.start.min(size)..range.end.min(size);
        let own = here().filter(|life| !life.external);
        let all = Spans::new(own.flat_map(|life| [inside(life.bytes.clone()), inside(life.zone())]));
        let needed = here().filter(|life| life.before(step)).map(|life| life.bytes.clone());
        all.without(&Spans::new(needed))
    }

    fn life_of(&self, value: StepValue, bindings: &Bindings) -> Option<&Life> {
        let what = match value {
            StepValue::Tensor(id) => What::Root(bindings.graph.tensor(id).storage.root),
            StepValue::Temporary(index) => What::Temporary(index),
        };
        self.lives.iter().find(|life| life.what == what)
    }

    /// The bytes that a step may change, by buffer.
    pub(super) fn writable(&self, index: usize, step: &Step, bindings: &Bindings) -> Vec<Spans> {
        let mut ranges: Vec<Vec<Range<u64>>> = vec![Vec::new(); self.buffers.len()];
        for life in self.lives.iter().filter(|life| life.free) {
            if life.made.is_some_and(|made| made <= index) && index <= life.last {
                ranges[life.buffer].push(life.bytes.clone());
            }
        }
        for value in &step.writes {
            let Some(life) = self.life_of(*value, bindings) else { continue };
            match value {
                StepValue::Temporary(_) => ranges[life.buffer].push(life.bytes.clone()),
                StepValue::Tensor(id) => {
                    let tensor = bindings.graph.tensor(*id);
                    let start = life.bytes.start + tensor.storage.offset;
                    let runs = tensor.desc.runs();
                    let run = runs.run_bytes();
                    ranges[life.buffer].extend(runs.map(|at| start + at..start + at + run));
                }
            }
        }
        ranges.into_iter().map(Spans::new).collect()
    }

    /// What is wrong with the places of a step's results.
    pub(super) fn offences(&self, index: usize, step: &Step, bindings: &Bindings) -> Vec<Offence> {
        let mut found = Vec::new();
        for (slot, value) in step.writes.iter().enumerate() {
            let Some(own) = self.life_of(*value, bindings) else { continue };
            let others = self.lives.iter().filter(|other| {
                other.what != own.what
                    && other.buffer == own.buffer
                    && overlap(&other.bytes, &own.bytes)
                    && !(other.external && own.external)
            });
            for other in others {
                if other.after(index) {
                    found.push(Offence::OverwritesLive {
                        value: own.name.clone(),
                        victim: other.name.clone(),
                    });
                } else if other.before(index) && !self.may_take(step, slot, own, other, bindings) {
                    found.push(Offence::OverwritesOperand {
                        value: own.name.clone(),
                        operand: other.name.clone(),
                    });
                }
            }
        }
        found
    }

    /// Whether every read of the other's bytes is one whose place the write may take.
    fn may_take(&self, step: &Step, write: usize, own: &Life, other: &Life, bindings: &Bindings) -> bool {
        let desc = |value: StepValue| match value {
            StepValue::Tensor(id) => Some(bindings.graph.tensor(id).desc),
            StepValue::Temporary(_) => None,
        };
        let allowed = |(read, value): (usize, &StepValue)| {
            if self.life_of(*value, bindings).is_none_or(|life| life.what != other.what) {
                return true;
            }
            let offered = step.may_overwrite.iter().any(|pair| (pair.write, pair.read) == (write, read));
            // A step of several nodes may carry the right through; of one node the graph knows the limit.
            let legal = match step.nodes[..] {
                [node] => may_overwrite(&bindings.graph.node(node).op, read),
                _ => true,
            };
            offered
                && legal
                && own.bytes.start == other.bytes.start
                && desc(*value) == desc(step.writes[write])
        };
        step.reads.iter().enumerate().all(allowed)
    }

    /// The step's results that lie where one of its operands does.
    pub(super) fn in_place(&self, index: usize, step: &Step, bindings: &Bindings) -> Vec<TensorId> {
        let takes_place = |id: &TensorId| {
            let own = self.life_of(StepValue::Tensor(*id), bindings);
            own.is_some_and(|own| {
                own.made == Some(index)
                    && self.lives.iter().any(|other| {
                        other.what != own.what
                            && other.buffer == own.buffer
                            && overlap(&other.bytes, &own.bytes)
                            && other.before(index)
                    })
            })
        };
        let tensors = step.writes.iter().filter_map(|value| match value {
            StepValue::Tensor(id) => Some(*id),
            StepValue::Temporary(_) => None,
        });
        tensors.filter(takes_place).collect()
    }
}
