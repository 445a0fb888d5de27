//! How a guarded program runs: step by step, with a comparison of all memory after each.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{Buffer, Claim, Claims, DeviceError, Program, Queue, RunOptions, StepValue};
use orlop_graph::{AccessKind, TensorDesc};

use super::program::{Apart, GuardProgram, GuardedStep, trespass};
use super::spans::Spans;
use super::trespass::{Offence, Trespass, Victim};
use super::whole::WholeProgram;
use crate::QueueHooks;
use crate::execute::gather;

/// What dead memory is filled with.
const DEAD: u8 = 0xff;

/// Runs guarded programs step by step on the inner device's queue.
#[derive(Debug)]
pub(super) struct GuardedRuns {
    pub(super) device: Arc<str>,
    pub(super) log: Arc<Mutex<Vec<Trespass>>>,
}

/// Notes trespasses and says the first of them.
pub(super) fn refuse(device: &str, log: &Mutex<Vec<Trespass>>, found: Vec<Trespass>) -> DeviceError {
    let reason = found.first().map_or_else(String::new, Trespass::to_string);
    log.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
    DeviceError::Lost { device: device.to_owned(), reason }
}

impl GuardedRuns {
    fn own<'a>(&self, program: &'a Arc<dyn Program>) -> Result<&'a GuardProgram, DeviceError> {
        match program.as_any().downcast_ref::<GuardProgram>() {
            Some(program) if Arc::ptr_eq(&program.device, &self.device) => Ok(program),
            other => Err(DeviceError::Foreign {
                what: "a program",
                owner: other.map_or("another kind of device", |program| &program.device).to_owned(),
                device: self.device.to_string(),
            }),
        }
    }
}

/// Runs a program of the inner device to its end.
///
/// # Safety
/// As [`Queue::submit`].
unsafe fn complete(
    queue: &mut dyn Queue,
    program: &Arc<dyn Program>,
    claims: &Claims,
    options: &RunOptions,
) -> Result<(), DeviceError> {
    // SAFETY: `submit` asks for what `complete`'s contract, the same, says.
    let submitted = unsafe { queue.submit(program, claims, options) };
    let finished = queue.sync();
    submitted.and(finished)
}

impl QueueHooks for GuardedRuns {
    unsafe fn submit(
        &mut self,
        inner: &mut dyn Queue,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        if let Some(whole) = WholeProgram::of(program, &self.device) {
            let before = whole.contents(claims)?;
            // SAFETY: as our caller promises.
            unsafe { complete(inner, &whole.inner, claims, options)? };
            let found = whole.changes(&before, &whole.contents(claims)?);
            return if found.is_empty() { Ok(()) } else { Err(refuse(&self.device, &self.log, found)) };
        }
        let program = self.own(program)?;
        let mut memory = Memory::new(program, claims)?;
        for (index, guarded) in program.steps.iter().enumerate() {
            if options.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
                return Err(DeviceError::Cancelled { step: index, steps: program.steps.len() });
            }
            memory.poison(index)?;
            let GuardedStep { step, program: alone, apart } = guarded;
            let mut results = Vec::new();
            if let Some(Apart { program: elsewhere, results: places }) = apart {
                // SAFETY: as our caller promises.
                unsafe { complete(inner, elsewhere, claims, options)? };
                for (id, slot) in places {
                    let desc = program.bindings.graph.tensor(*id).desc;
                    results.push((*id, elements(claims, &slot.buffer, slot.offset, &desc)?));
                }
                memory.restore()?;
            }
            // SAFETY: as our caller promises.
            unsafe { complete(inner, alone, claims, options)? };
            let mut offences = memory.changes(index, guarded)?;
            for (id, expected) in results {
                let tensor = program.bindings.graph.tensor(id);
                let slot = program.bindings.slot(StepValue::Tensor(id))?;
                let found = elements(claims, &slot.buffer, slot.offset, &tensor.desc)?;
                if let Some(byte) = found.iter().zip(&expected).position(|(a, b)| a != b) {
                    offences.push(Offence::DiffersInPlace { value: tensor.name.clone(), byte: byte as u64 });
                }
            }
            if !offences.is_empty() {
                let named = |offence| trespass(index, step, &program.bindings, offence);
                return Err(refuse(&self.device, &self.log, offences.into_iter().map(named).collect()));
            }
        }
        Ok(())
    }
}

/// A claim for one look at a buffer, between two steps.
pub(super) fn lend(claims: &Claims, buffer: &dyn Buffer, kind: AccessKind) -> Result<Claim, DeviceError> {
    // SAFETY: `lend` asks that no other thread uses claims of the run to the same bytes meanwhile: the inner queue
    // has finished all it was given, and our caller answers for other queues.
    unsafe { claims.lend(buffer, kind) }
}

fn elements(
    claims: &Claims,
    buffer: &Arc<dyn Buffer>,
    offset: u64,
    desc: &TensorDesc,
) -> Result<Vec<u8>, DeviceError> {
    let claim = lend(claims, &**buffer, AccessKind::Read)?;
    gather(desc, |at, bytes| buffer.read(&claim, offset + at, bytes))
}

/// All memory that a program touches, and a copy of it.
struct Memory<'a> {
    program: &'a GuardProgram,
    claims: &'a Claims,
    shadows: Vec<Vec<u8>>,
}

impl<'a> Memory<'a> {
    fn new(program: &'a GuardProgram, claims: &'a Claims) -> Result<Memory<'a>, DeviceError> {
        let mut memory = Memory { program, claims, shadows: Vec::new() };
        for index in 0..program.lives.buffers.len() {
            memory.shadows.push(memory.contents(index)?);
        }
        Ok(memory)
    }

    fn contents(&self, index: usize) -> Result<Vec<u8>, DeviceError> {
        let buffer = &self.program.lives.buffers[index];
        let claim = lend(self.claims, &**buffer, AccessKind::Read)?;
        let mut bytes = vec![0; buffer.bytes() as usize];
        buffer.read(&claim, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills what the step may not read.
    fn poison(&mut self, step: usize) -> Result<(), DeviceError> {
        let lives = &self.program.lives;
        for (index, buffer) in lives.buffers.iter().enumerate() {
            let dead = lives.dead_before(step, index);
            if dead.ranges().is_empty() {
                continue;
            }
            let claim = lend(self.claims, &**buffer, AccessKind::Write)?;
            for range in dead.ranges() {
                buffer.fill(&claim, range.clone(), DEAD)?;
                self.shadows[index][range.start as usize..range.end as usize].fill(DEAD);
            }
        }
        Ok(())
    }

    /// Puts everything back as it was before the step.
    fn restore(&mut self) -> Result<(), DeviceError> {
        for (index, buffer) in self.program.lives.buffers.iter().enumerate() {
            if self.contents(index)? == self.shadows[index] {
                continue;
            }
            // What is claimed only for reading stays as it is, and shows as changed after the step.
            if let Ok(claim) = lend(self.claims, &**buffer, AccessKind::Write) {
                buffer.write(&claim, 0, &self.shadows[index])?;
            }
        }
        Ok(())
    }

    /// What the step changed although it may not, and a new copy.
    fn changes(&mut self, step: usize, guarded: &GuardedStep) -> Result<Vec<Offence>, DeviceError> {
        let writable = self.program.lives.writable(step, &guarded.step, &self.program.bindings);
        let mut offences = Vec::new();
        for (index, allowed) in writable.iter().enumerate() {
            let now = self.contents(index)?;
            let before = std::mem::replace(&mut self.shadows[index], now);
            for bytes in changed(&before, &self.shadows[index], allowed) {
                let buffer_type = self.program.lives.buffers[index].buffer_type().name().to_owned();
                let victim = self.victim(index, &bytes);
                offences.push(Offence::WroteOutside { buffer_type, bytes, victim });
            }
        }
        Ok(offences)
    }

    fn victim(&self, buffer: usize, bytes: &Range<u64>) -> Victim {
        let here = || self.program.lives.lives.iter().filter(|life| life.buffer == buffer);
        if let Some(life) = here().find(|life| life.bytes.contains(&bytes.start)) {
            return Victim::Value(life.name.clone());
        }
        let zone = here().find(|life| life.zone().contains(&bytes.start));
        zone.map_or(Victim::Unused, |life| Victim::Zone(life.name.clone()))
    }
}

/// Runs of bytes that differ outside of what is allowed.
pub(super) fn changed(before: &[u8], now: &[u8], allowed: &Spans) -> Vec<Range<u64>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    for range in allowed.outside(0..before.len() as u64) {
        let (start, end) = (range.start as usize, range.end as usize);
        if before[start..end] == now[start..end] {
            continue;
        }
        for at in (start..end).filter(|at| before[*at] != now[*at]) {
            let at = at as u64;
            match found.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => found.push(at..at + 1),
            }
        }
    }
    found
}
