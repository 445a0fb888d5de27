//! A guarded program: the steps one by one, with the lives of all values.

use std::any::Any;
use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Device, DeviceError, Program, Slot, Step, StepValue, Steps, Temporary, Touch,
};
use orlop_graph::{AccessKind, TensorId};

use super::device::{KEEP, ZONE};
use super::lives::{Lives, Scratch};
use super::trespass::{Offence, Trespass};

/// The inner device's programs, one a step, and what the queue must know to watch them.
#[derive(Debug)]
pub(super) struct GuardProgram {
    /// The name of the device that compiled it; all objects of the device share the allocation.
    pub(super) device: Arc<str>,
    pub(super) steps: Vec<GuardedStep>,
    pub(super) bindings: Bindings,
    pub(super) lives: Lives,
    touches: Vec<Touch>,
}

#[derive(Debug)]
pub(super) struct GuardedStep {
    pub(super) step: Step,
    pub(super) program: Arc<dyn Program>,
    /// The same step with results in buffers of their own, if it works in place.
    pub(super) apart: Option<Apart>,
}

#[derive(Debug)]
pub(super) struct Apart {
    pub(super) program: Arc<dyn Program>,
    pub(super) results: Vec<(TensorId, Slot)>,
}

impl GuardProgram {
    /// Compiles every step by itself. `Err` with trespasses if the places are wrong.
    pub(super) fn new(
        inner: &dyn Device,
        device: &Arc<str>,
        arena: &Arc<dyn BufferType>,
        given: &Steps,
        bindings: &Bindings,
    ) -> Result<Result<GuardProgram, Vec<Trespass>>, DeviceError> {
        let given = &with_keep_last(given);
        // Steps that come from elsewhere have neither red zones nor a list of what is kept.
        let (steps, kept, zone) = match given.steps.split_last() {
            Some((last, steps)) if last.kernel == KEEP => (steps, tensors(&last.reads), ZONE),
            _ => (&given.steps[..], bound_results(bindings), 0),
        };
        let mut scratch: Vec<Scratch> = Vec::with_capacity(given.temporaries.len());
        let mut alone: Vec<Temporary> = given.temporaries.clone();
        for temporary in &mut alone {
            temporary.bytes = temporary.bytes.saturating_sub(zone);
            scratch.push((temporary.name.clone(), temporary.bytes, temporary.first..temporary.last + 1));
            (temporary.first, temporary.last) = (0, 0);
        }
        let lives = Lives::new(steps, &kept, &scratch, bindings)?;
        let trespass = |(index, step): (usize, &Step)| {
            let offences = lives.offences(index, step, bindings);
            offences.into_iter().map(|offence| trespass(index, step, bindings, offence)).collect::<Vec<_>>()
        };
        let trespasses: Vec<Trespass> = steps.iter().enumerate().flat_map(trespass).collect();
        if !trespasses.is_empty() {
            return Ok(Err(trespasses));
        }
        let compile = |step: &Step, bindings: &Bindings| {
            let one = Steps {
                options: given.options.clone(),
                steps: vec![step.clone()],
                temporaries: alone.clone(),
            };
            inner.compile(&one, bindings)
        };
        let mut touches = orlop_backend::touched(given, bindings)?;
        let mut guarded = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let mut elsewhere = bindings.clone();
            let mut results = Vec::new();
            for id in lives.in_place(index, step, bindings) {
                let bytes = arena.alloc_bytes(&bindings.graph.tensor(id).desc);
                let slot = Slot { buffer: Arc::clone(arena).allocate(bytes)?, offset: 0 };
                touches.push((Arc::clone(&slot.buffer), AccessKind::Write));
                elsewhere.tensors.insert(id, slot.clone());
                results.push((id, slot));
            }
            let apart = match results.is_empty() {
                true => None,
                false => Some(Apart { program: compile(step, &elsewhere)?, results }),
            };
            guarded.push(GuardedStep { step: step.clone(), program: compile(step, bindings)?, apart });
        }
        // Dead memory is filled, so what holds it is claimed for writing.
        let arenas = lives.buffers.iter().enumerate().filter(|(index, _)| lives.is_arena(*index));
        for (_, buffer) in arenas {
            let known = touches.iter_mut().find(|(known, _)| Arc::ptr_eq(known.gate(), buffer.gate()));
            match known {
                Some((_, kind)) => *kind = AccessKind::Write,
                None => touches.push((Arc::clone(buffer), AccessKind::Write)),
            }
        }
        let program = GuardProgram {
            device: Arc::clone(device),
            steps: guarded,
            bindings: bindings.clone(),
            lives,
            touches,
        };
        Ok(Ok(program))
    }
}

impl Program for GuardProgram {
    fn touches(&self) -> &[Touch] {
        &self.touches
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The steps as they are in the order that was chosen, but for the one that computes nothing.
fn with_keep_last(steps: &Steps) -> Steps {
    let mut order: Vec<usize> = (0..steps.steps.len()).collect();
    order.sort_by_key(|index| steps.steps[*index].kernel == KEEP);
    steps.in_order(&order)
}

/// An offence with the step that committed it.
pub(super) fn trespass(index: usize, step: &Step, bindings: &Bindings, offence: Offence) -> Trespass {
    let node = step.nodes.last().map(|id| bindings.graph.node(*id).output);
    let node = node.map_or_else(String::new, |id| bindings.graph.tensor(id).name.clone());
    Trespass { step: index, kernel: step.kernel.to_string(), node, offence }
}

fn tensors(values: &[StepValue]) -> Vec<TensorId> {
    let tensor = |value: &StepValue| match value {
        StepValue::Tensor(id) => Some(*id),
        StepValue::Temporary(_) => None,
    };
    values.iter().filter_map(tensor).collect()
}

fn bound_results(bindings: &Bindings) -> Vec<TensorId> {
    let mut results = bindings.graph.results();
    results.retain(|id| bindings.slot(StepValue::Tensor(*id)).is_ok());
    results
}
