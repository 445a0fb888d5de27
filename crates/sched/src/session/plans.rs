//! Plans of a session: reserved, found again, released.

use std::sync::Arc;

use orlop_alloc::Externals;
use orlop_backend::StoredTensor;
use orlop_graph::Graph;

use crate::planned::signature::signature;
use crate::session::Request;
use crate::session::prepared::Prepared;
use crate::{Constraints, DeviceId, Error, PlanId, Session};

impl Session {
    /// Makes arenas large enough for a graph, placed by rules, without preparing it. [`Session::prepare_within`] then
    /// takes it, and whatever needs no more.
    ///
    /// # Errors
    /// As [`Session::prepare_with`].
    pub fn reserve(
        &mut self,
        graph: &Graph,
        externals: &Externals,
        constraints: &Constraints,
    ) -> Result<(), Error> {
        let planned = self.plan(&Request::new(graph, externals, constraints, None)?)?;
        self.make_room(&planned.memory)
    }

    /// Bytes that each device's arena would need for a graph, placed by rules. Nothing is allocated; devices that share
    /// an arena count it each.
    ///
    /// # Errors
    /// As [`Session::prepare_with`].
    pub fn reserve_size(
        &self,
        graph: &Graph,
        externals: &Externals,
        constraints: &Constraints,
    ) -> Result<Vec<(DeviceId, u64)>, Error> {
        let planned = self.plan(&Request::new(graph, externals, constraints, None)?)?;
        let bytes = |device: DeviceId| planned.memory.plans[self.domains.of(device)].total();
        Ok(self.machine.indices().map(|device| (device, bytes(device))).collect())
    }

    /// Forgets a plan: its programs, persistent leaves, and copies of weights that no other plan uses. Arenas stay as
    /// they are.
    ///
    /// # Errors
    /// [`Error::UnknownPlan`].
    pub fn release(&mut self, plan: PlanId) -> Result<(), Error> {
        self.get_prepared(plan)?;
        if self.occupant == Some(plan) {
            self.drain();
            self.occupant = None;
        }
        self.prepared.remove(&plan);
        let used = |number: usize| {
            self.prepared.values().any(|prepared| prepared.resident.values().any(|own| *own == number))
        };
        let unused: Vec<usize> = (0..self.residents.len()).filter(|number| !used(*number)).collect();
        unused.into_iter().for_each(|number| self.residents.remove(number));
        Ok(())
    }

    /// The plan of an equal graph with the same memory, if plans are to be found again.
    pub(crate) fn find_equal(&mut self, request: &Request<'_>) -> Option<PlanId> {
        self.options.cache?;
        let signature = signature(request.graph);
        let equal = |(_, prepared): &(&PlanId, &Prepared)| {
            prepared.planned.signature == signature && is_equal(prepared, request)
        };
        let found = self.prepared.iter().find(equal).map(|(id, _)| *id)?;
        let now = self.tick();
        self.prepared.get_mut(&found)?.used = now;
        Some(found)
    }

    /// Releases the plans that were not used for longest, until there are no more than are to be kept. The newest stays.
    pub(crate) fn release_oldest(&mut self) {
        let Some(most) = self.options.cache else { return };
        while self.prepared.len() > most.max(1) {
            let oldest = self.prepared.iter().min_by_key(|(_, prepared)| prepared.used).map(|(id, _)| *id);
            let Some(oldest) = oldest else { return };
            // It is there.
            let _ = self.release(oldest);
        }
    }
}

fn is_equal(prepared: &Prepared, request: &Request<'_>) -> bool {
    let Request { graph, externals, constraints, placement } = request;
    let placed = match placement {
        None => prepared.planned.by_rules,
        Some(placement) => !prepared.planned.by_rules && prepared.planned.placement == *placement,
    };
    let same = |a: Option<&StoredTensor>, b: Option<&StoredTensor>| match (a, b) {
        (Some(a), Some(b)) => {
            let (a, b) = (a.slot(), b.slot());
            Arc::ptr_eq(a.buffer.gate(), b.buffer.gate()) && a.offset == b.offset
        }
        (None, None) => true,
        _ => false,
    };
    let known = &prepared.planned.constraints;
    let same_wishes = constraints.observed == known.observed
        && constraints.assigned == known.assigned
        && constraints.spread == known.spread;
    placed
        && same_wishes
        && prepared.graph == **graph
        && graph.leaves().all(|(id, _)| same(externals.get(id), prepared.externals.get(id)))
}
