//! Contents that are set and read: inputs, results, persistent leaves.

use orlop_alloc::Error as AllocError;
use orlop_backend::StoredTensor;
use orlop_graph::{AccessKind, Leaf, Origin, TensorId};

use crate::session::inputs::{check_length, get_at, set_whole, unbound};
use crate::session::prepared::{Prepared, State};
use crate::{Error, PlanId, RunId, Session};

impl Session {
    /// Sets an input of the next run, or a persistent leaf, all of it.
    ///
    /// # Errors
    /// [`Error::NotInput`], [`Error::UnknownPlan`], [`Error::InFlight`] while the run that uses these inputs
    /// has not been waited for, and what the buffer refuses.
    pub fn set(&mut self, plan: PlanId, input: TensorId, bytes: &[u8]) -> Result<(), Error> {
        self.room_for(plan)?;
        let prepared = self.get_prepared(plan)?;
        let tensor = prepared.tensor(input)?;
        if prepared.persistent.contains_key(&input) {
            self.drain();
            let stored = self.get_prepared(plan)?.persistent.get(&input);
            return stored.map_or(Ok(()), |stored| set_whole(stored, bytes));
        }
        if tensor.origin != Origin::Leaf(Leaf::Input) {
            return Err(Error::NotInput { tensor: tensor.name.clone() });
        }
        let slot = prepared.next;
        if matches!(prepared.slots[slot].state, State::InFlight(_)) {
            return Err(Error::InFlight { runs: prepared.slots.len() });
        }
        self.bind_places(plan, slot)?;
        check_length(self.place(self.get_prepared(plan)?, slot, input)?, bytes.len())?;
        self.occupy(plan);
        let prepared = self.get_prepared(plan)?;
        let stored = self.place(prepared, slot, input)?;
        if self.in_flight.is_empty() {
            set_whole(stored, bytes)?;
        } else {
            write_beside(prepared, stored, bytes)?;
        }
        let prepared = self.get_prepared_mut(plan)?;
        let own = &mut prepared.slots[slot];
        own.inputs.set(input);
        (own.state, own.readable) = (State::Idle, false);
        prepared.latest = prepared.latest.filter(|latest| *latest != slot);
        Ok(())
    }

    /// Reads an output of the last run, a persistent leaf or a view of one, all of it.
    ///
    /// # Errors
    /// [`Error::NotOutput`], [`Error::NotRun`], and what the buffer refuses.
    pub fn get(&self, plan: PlanId, output: TensorId, bytes: &mut [u8]) -> Result<(), Error> {
        self.read(plan, self.get_prepared(plan)?.latest, output, None, bytes)
    }

    /// Reads bytes at an offset of an output of the last run, such as some of its rows.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub fn get_part(
        &self,
        plan: PlanId,
        output: TensorId,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        self.read(plan, self.get_prepared(plan)?.latest, output, Some(offset), bytes)
    }

    /// Reads an output of a run that was waited for.
    ///
    /// # Errors
    /// As [`Session::get`]; [`Error::NotRun`] also once another run has taken its place.
    pub fn get_of(&self, run: RunId, output: TensorId, bytes: &mut [u8]) -> Result<(), Error> {
        self.read(run.plan, Some(run.slot).filter(|_| self.is_done(run)), output, None, bytes)
    }

    /// Reads bytes at an offset of an output, or all of it.
    fn read(
        &self,
        plan: PlanId,
        slot: Option<usize>,
        output: TensorId,
        offset: Option<u64>,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let prepared = self.get_prepared(plan)?;
        let tensor = prepared.tensor(output)?;
        if !matches!(prepared.graph.root_leaf(output), None | Some(Leaf::Input)) {
            return get_at(&prepared.outside(output)?, offset, bytes);
        }
        if !prepared.results.contains(&output) {
            return Err(Error::NotOutput { tensor: tensor.name.clone() });
        }
        let Some(slot) = slot else {
            return Err(Error::NotRun { tensor: tensor.name.clone() });
        };
        let stored = self.place(prepared, slot, output)?;
        if self.in_flight.is_empty() {
            return get_at(stored, offset, bytes);
        }
        if offset.is_none() {
            check_length(stored, bytes.len())?;
        }
        read_beside(prepared, stored, offset.unwrap_or(0), bytes)
    }

    /// Finds out where a slot's inputs and results lie, once for each time that the arenas are made.
    pub(crate) fn bind_places(&mut self, plan: PlanId, slot: usize) -> Result<(), Error> {
        let prepared = self.get_prepared(plan)?;
        if !prepared.slots[slot].places.is_empty() {
            return Ok(());
        }
        let inputs = prepared.graph.leaves().filter(|(_, leaf)| *leaf == Leaf::Input).map(|(id, _)| id);
        let ids = inputs.chain(prepared.results.iter().copied());
        let ids = ids.filter(|id| prepared.planned.memory.has(*id));
        let places = ids.map(|id| Ok((id, self.in_arena(prepared, slot, id)?)));
        let places = places.collect::<Result<_, Error>>()?;
        self.get_prepared_mut(plan)?.slots[slot].places = places;
        Ok(())
    }

    fn place<'a>(
        &self,
        prepared: &'a Prepared,
        slot: usize,
        id: TensorId,
    ) -> Result<&'a StoredTensor, Error> {
        let place = prepared.slots[slot].places.get(&id);
        place.ok_or_else(|| unbound(&prepared.graph.tensor(id).name))
    }
}

/// Writes an input while other runs are in flight, whose claims cover its buffer.
fn write_beside(prepared: &Prepared, stored: &StoredTensor, bytes: &[u8]) -> Result<(), Error> {
    let claims = prepared.compiled.as_ref().and_then(|compiled| compiled.claims.as_ref());
    let claims = claims.ok_or(AllocError::NotReserved)?;
    let slot = stored.slot();
    // SAFETY: `lend` asks that no other claim of these runs is used on the bytes meanwhile: inputs and results of each
    // slot have bytes of their own for all of the plan, and no run that uses this slot is in flight.
    let claim = unsafe { claims.lend(&*slot.buffer, AccessKind::Write) }.map_err(AllocError::from)?;
    Ok(slot.buffer.write(&claim, slot.offset, bytes).map_err(AllocError::from)?)
}

/// Reads a result while other runs are in flight.
fn read_beside(
    prepared: &Prepared,
    stored: &StoredTensor,
    offset: u64,
    bytes: &mut [u8],
) -> Result<(), Error> {
    let claims = prepared.compiled.as_ref().and_then(|compiled| compiled.claims.as_ref());
    let claims = claims.ok_or(AllocError::NotReserved)?;
    let (slot, place) = (stored.slot(), stored.place(offset, bytes.len() as u64).map_err(AllocError::from)?);
    // SAFETY: as in `write_beside`.
    let claim = unsafe { claims.lend(&*slot.buffer, AccessKind::Read) }.map_err(AllocError::from)?;
    Ok(slot.buffer.read(&claim, place.start, bytes).map_err(AllocError::from)?)
}
