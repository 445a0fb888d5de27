//! Programs and transfers, bound to the places that the arenas have.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::Error as AllocError;
use orlop_backend::{
    Bindings, Buffer, Claims, CopyRoute, DeviceError, Program, Slot, StepValue, StoredTensor, Touch,
    copy_route,
};
use orlop_graph::{AccessKind, DType, Leaf, TensorDesc, TensorId};

use crate::error::failed;
use crate::planned::memory::Spot;
use crate::session::inputs::{leaves_of, unbound};
use crate::session::prepared::Prepared;
use crate::{Error, Session, SplitId, TransferId};

/// What depends on addresses.
pub(crate) struct Compiled {
    /// One for each run that may be in flight.
    pub(crate) slots: Vec<Bound>,
    /// Every buffer once; released while nothing runs.
    pub(crate) claims: Option<Claims>,
    touches: Vec<Touch>,
    /// The way of each transfer, once it was asked for.
    pub(crate) routes: Option<Vec<Option<CopyRoute>>>,
}

/// The programs and transfers of the runs that use one slot.
pub(crate) struct Bound {
    pub(crate) programs: Vec<Arc<dyn Program>>,
    /// Source and destination of each transfer that a run makes.
    pub(crate) transfers: Vec<Option<(StoredTensor, StoredTensor)>>,
    /// The observed result of each split.
    pub(crate) observed: Vec<Option<StoredTensor>>,
}

impl Compiled {
    /// Claims all buffers. Only the first time asks for memory.
    pub(crate) fn claim(&mut self) -> Result<(), DeviceError> {
        match &mut self.claims {
            Some(claims) => claims.retake(),
            None => {
                let wanted = self.touches.iter().map(|(buffer, kind)| (buffer, *kind));
                self.claims = Some(Claims::take(wanted)?);
                Ok(())
            }
        }
    }

    /// Gives them up again.
    pub(crate) fn release(&mut self) {
        // A queue that still holds them gives them up when it is done.
        if self.claims.as_mut().is_some_and(|claims| !claims.release()) {
            self.claims = None;
        }
    }

    /// The way of each transfer, asked for once. Everything must be claimed, and nothing run.
    pub(crate) fn find_routes(&mut self) -> Result<(), DeviceError> {
        let (None, Some(claims)) = (&self.routes, &self.claims) else { return Ok(()) };
        let route = |transfer: &Option<(StoredTensor, StoredTensor)>| {
            let Some((from, to)) = transfer else { return Ok(None) };
            // SAFETY: `lend` asks that conflicting claims of the run are not used meanwhile: nothing runs yet.
            let read = unsafe { claims.lend(&*from.slot().buffer, AccessKind::Read) }?;
            // SAFETY: as above.
            let write = unsafe { claims.lend(&*to.slot().buffer, AccessKind::Write) }?;
            copy_route(from, to, [&read, &write]).map(Some)
        };
        self.routes = Some(self.slots[0].transfers.iter().map(route).collect::<Result<_, _>>()?);
        Ok(())
    }
}

/// The buffers that a run touches, each once, however many splits do.
#[derive(Default)]
struct Touches {
    list: Vec<Touch>,
    /// Position in the list, by the address of the buffer's gate.
    known: HashMap<usize, usize>,
}

impl Touches {
    fn add(&mut self, buffer: &Arc<dyn Buffer>, kind: AccessKind) {
        let position = *self.known.entry(Arc::as_ptr(buffer.gate()).addr()).or_insert(self.list.len());
        match self.list.get_mut(position) {
            Some((_, known)) if kind == AccessKind::Write => *known = kind,
            Some(_) => {}
            None => self.list.push((Arc::clone(buffer), kind)),
        }
    }
}

impl Session {
    /// Programs and transfers at the places that the arenas have now.
    pub(crate) fn compile(&self, prepared: &Prepared) -> Result<Compiled, Error> {
        let mut touches = Touches::default();
        let slots = (0..prepared.slots.len()).map(|slot| self.bind(prepared, slot, &mut touches));
        let slots: Vec<Bound> = slots.collect::<Result<_, _>>()?;
        if slots.len() > 1 {
            // While some runs are in flight, the caller sets inputs of others and reads their results.
            let inputs = leaves_of(&prepared.graph, Leaf::Input).map(|id| (id, AccessKind::Write));
            let results = prepared.results.iter().map(|id| (*id, AccessKind::Read));
            let lie_here = inputs.chain(results).filter(|(id, _)| prepared.planned.memory.has(*id));
            for ((id, kind), slot) in lie_here.flat_map(|both| (0..slots.len()).map(move |slot| (both, slot)))
            {
                touches.add(&self.in_arena(prepared, slot, id)?.slot().buffer, kind);
            }
        }
        Ok(Compiled { slots, claims: None, touches: touches.list, routes: None })
    }

    fn bind(&self, prepared: &Prepared, slot: usize, touches: &mut Touches) -> Result<Bound, Error> {
        let schedule = &prepared.planned.schedule;
        let mut transfers = Vec::with_capacity(schedule.transfers.len());
        for index in (0..schedule.transfers.len()).map(TransferId::new) {
            let ends = self.ends_of_copy(prepared, slot, index)?;
            if let Some((from, to)) = &ends {
                touches.add(&from.slot().buffer, AccessKind::Read);
                touches.add(&to.slot().buffer, AccessKind::Write);
            }
            transfers.push(ends);
        }
        let mut programs = Vec::with_capacity(schedule.splits.len());
        for (id, steps) in schedule.ids().zip(&prepared.planned.steps) {
            let device = self.machine.device(schedule[id].device);
            let bindings = self.bindings(prepared, slot, id)?;
            let program =
                device.compile(steps, &bindings).map_err(|source| failed(device.name(), id, source))?;
            program.touches().iter().for_each(|(buffer, kind)| touches.add(buffer, *kind));
            programs.push(program);
        }
        let observed =
            |split: &crate::Split| split.observed.map(|id| self.observed(prepared, slot, id)).transpose();
        let observed = schedule.splits.iter().map(observed).collect::<Result<_, _>>()?;
        Ok(Bound { programs, transfers, observed })
    }

    /// A result that is observed, where it lies.
    pub(crate) fn observed(
        &self,
        prepared: &Prepared,
        slot: usize,
        id: TensorId,
    ) -> Result<StoredTensor, Error> {
        match prepared.planned.memory.has(id) {
            true => self.in_arena(prepared, slot, id),
            false => prepared.outside(id),
        }
    }

    /// Source and destination of a transfer; `None` if it is resident.
    pub(crate) fn ends_of_copy(
        &self,
        prepared: &Prepared,
        slot: usize,
        index: TransferId,
    ) -> Result<Option<(StoredTensor, StoredTensor)>, Error> {
        let transfer = &prepared.planned.schedule[index];
        if transfer.resident {
            return Ok(None);
        }
        let memory = &prepared.planned.memory;
        let source = match memory.has(transfer.root) {
            true => self.in_arena(prepared, slot, transfer.root)?,
            false => prepared.outside(transfer.root)?,
        };
        let from = copied_bytes(Some(&source), transfer)?;
        let place = self.slot(memory.transfer(index)).ok_or_else(|| unbound(&transfer.name))?;
        let to = StoredTensor::new(transfer.name.as_str(), *from.desc(), place).map_err(AllocError::from)?;
        Ok(Some((from, to)))
    }

    pub(crate) fn bindings(
        &self,
        prepared: &Prepared,
        run_slot: usize,
        id: SplitId,
    ) -> Result<Bindings, Error> {
        let planned = &prepared.planned;
        let (graph, split, steps) = (&prepared.graph, &planned.schedule[id], &planned.steps[id.index()]);
        let mut tensors: HashMap<TensorId, Slot> = HashMap::new();
        for value in steps.steps.iter().flat_map(|step| step.reads.iter().chain(&step.writes)) {
            let StepValue::Tensor(tensor) = value else { continue };
            if tensors.contains_key(tensor) {
                continue;
            }
            let slot = match split.reads_transfer.get(tensor) {
                Some(transfer) => match prepared.resident.get(transfer) {
                    Some(number) => self.residents.stored(*number).map(|stored| stored.slot().clone()),
                    None => self.slot(planned.memory.transfer(*transfer)),
                },
                None if planned.memory.has(*tensor) => {
                    self.slot(planned.memory.tensor(graph, *tensor, run_slot))
                }
                None => Some(prepared.outside(*tensor)?.slot().clone()),
            };
            let slot = slot.ok_or_else(|| unbound(&graph.tensor(*tensor).name))?;
            let desc = &graph.tensor(*tensor).desc;
            let ready = slot.buffer.init_tensor(desc, slot.offset);
            ready.map_err(|source| failed(self.machine.name(split.device), id, source))?;
            tensors.insert(*tensor, slot);
        }
        let temporary = |(number, temporary): (usize, &orlop_backend::Temporary)| {
            let slot = self.slot(planned.memory.temporary(id, number));
            slot.ok_or_else(|| unbound(&temporary.name))
        };
        let temporaries =
            steps.temporaries.iter().enumerate().map(temporary).collect::<Result<_, Error>>()?;
        Ok(Bindings { graph: graph.clone(), tensors, temporaries })
    }

    pub(crate) fn slot(&self, spot: Option<Spot>) -> Option<Slot> {
        let (domain, place) = spot?;
        self.arenas[domain].slot(place)
    }

    /// A tensor where it lies in the runs that use a slot.
    pub(crate) fn in_arena(
        &self,
        prepared: &Prepared,
        slot: usize,
        id: TensorId,
    ) -> Result<StoredTensor, Error> {
        let tensor = prepared.graph.tensor(id);
        let place = self.slot(prepared.planned.memory.tensor(&prepared.graph, id, slot));
        let place = place.ok_or_else(|| unbound(&tensor.name))?;
        Ok(StoredTensor::new(tensor.name.as_str(), tensor.desc, place).map_err(AllocError::from)?)
    }
}

/// The bytes of a storage that a transfer copies, as a tensor.
pub(crate) fn copied_bytes(
    whole: Option<&StoredTensor>,
    transfer: &crate::Transfer,
) -> Result<StoredTensor, Error> {
    let whole = whole.ok_or_else(|| unbound(&transfer.name))?;
    let bytes = TensorDesc::contiguous(DType::I8, &[transfer.range.end - transfer.range.start]);
    let desc = bytes.map_err(|source| {
        AllocError::Graph(orlop_graph::GraphError::Leaf {
            name: transfer.name.clone(),
            source: source.into(),
        })
    })?;
    let slot = Slot { offset: whole.slot().offset + transfer.range.start, ..whole.slot().clone() };
    Ok(StoredTensor::new(transfer.name.as_str(), desc, slot).map_err(AllocError::from)?)
}
