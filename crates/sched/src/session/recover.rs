//! Going on without devices that are lost.

use std::sync::Arc;

use orlop_alloc::Error as AllocError;
use orlop_backend::{BufferType, Device, StoredTensor, copy};
use orlop_graph::Leaf;

use crate::machine::has_memory;
use crate::session::Request;
use crate::session::prepared::Prepared;
use crate::{Constraints, Error, Machine, Session, constraints};

impl Session {
    /// Goes on without the devices that are lost: every plan is placed anew, by rules, on those that are left, and keeps
    /// its id. Inputs must be set anew, and positions of devices are those of the smaller machine. Returns the names of
    /// the devices that are gone.
    ///
    /// # Errors
    /// [`Error::DataLost`] if weights, states or persistent leaves lay there, [`Error::NoDevices`] if nothing is left, and
    /// what preparing can refuse; the session is then as it was.
    pub fn recover(&mut self) -> Result<Vec<String>, Error> {
        let is_lost = |device: &&Arc<dyn Device>| device.facts().lost;
        let gone: Vec<String> =
            self.machine.devices().iter().filter(is_lost).map(|device| device.name().to_owned()).collect();
        if gone.is_empty() {
            return Ok(gone);
        }
        self.drain();
        let lost = |prepared: &Prepared| -> Vec<String> {
            gone.iter().flat_map(|device| self.lost_with(prepared, device)).collect()
        };
        let mut tensors: Vec<String> = self.prepared.values().flat_map(lost).collect();
        if !tensors.is_empty() {
            tensors.sort();
            tensors.dedup();
            return Err(Error::DataLost { tensors });
        }
        let machine = Machine::new(self.machine.devices().iter().filter(|device| !is_lost(device)).cloned())?;
        let mut options = self.options.clone();
        options.budgets = self
            .options
            .budgets
            .iter()
            .filter_map(|(old, bytes)| Some((machine.find(self.machine.name(*old)).ok()?, *bytes)))
            .collect();
        let mut fresh = Session::new(machine, options)?;
        for (id, prepared) in &self.prepared {
            let assigned = prepared.planned.constraints.assigned.iter().filter_map(|(tensor, old)| {
                Some((*tensor, fresh.machine.find(self.machine.name(*old)).ok()?))
            });
            let assigned = assigned.collect();
            let Prepared { graph, externals, .. } = prepared;
            let constraints = Constraints {
                assigned,
                observed: prepared.planned.constraints.observed.clone(),
                spread: prepared.planned.constraints.spread,
                ..constraints(graph, externals)
            };
            let request = Request { graph, externals, constraints, placement: None };
            let planned = fresh.plan(&request)?;
            let mut again = fresh.make(graph, externals, planned.into())?;
            for (leaf, from) in &prepared.persistent {
                if let Some(to) = again.persistent.get(leaf) {
                    copy(from, to).map_err(AllocError::from)?;
                }
            }
            again.used = prepared.used;
            fresh.prepared.insert(*id, again);
        }
        fresh.continue_from(self);
        *self = fresh;
        Ok(gone)
    }

    /// Names of what a plan keeps on a device: weights, states, persistent leaves.
    pub(crate) fn lost_with(&self, prepared: &Prepared, device: &str) -> Vec<String> {
        let Ok(ix) = self.machine.find(device) else { return Vec::new() };
        let device = self.machine.device(ix);
        // Memory that another device has as well is not this one's to lose.
        let others = || self.machine.devices().iter().filter(|other| other.name() != device.name());
        let own = |buffer_type: &Arc<dyn BufferType>| {
            has_memory(&**device, buffer_type)
                && !others().any(|other| !other.facts().lost && has_memory(&**other, buffer_type))
        };
        let there = |stored: &StoredTensor| own(stored.slot().buffer.buffer_type());
        let graph = &prepared.graph;
        let stored = graph.leaves().filter(|(_, leaf)| *leaf != Leaf::Input).filter_map(|(id, _)| {
            let stored = prepared.persistent.get(&id).or_else(|| prepared.externals.get(id))?;
            there(stored).then(|| graph.tensor(id).name.clone())
        });
        stored.collect()
    }
}
