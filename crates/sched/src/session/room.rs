//! Room in the arenas for plans.

use std::sync::Arc;

use orlop_alloc::{Arenas, Growth, MemoryPlan};

use crate::planned::memory::PlannedMemory;
use crate::{Error, Session};

impl Session {
    /// Makes all arenas large enough. Under [`Growth::Keep`], a failure changes nothing on any device.
    pub(crate) fn make_room(&mut self, memory: &PlannedMemory) -> Result<(), Error> {
        let wanting: Vec<usize> = (0..memory.plans.len())
            .filter(|domain| !has_room(&self.arenas[*domain], &memory.plans[*domain]))
            .collect();
        if wanting.is_empty() {
            return Ok(());
        }
        self.drain();
        match self.options.growth {
            Growth::Keep => {
                let mut fresh = Vec::with_capacity(wanting.len());
                for domain in &wanting {
                    fresh.push(self.larger(*domain, &memory.plans[*domain])?);
                }
                self.forget();
                for (domain, arenas) in wanting.into_iter().zip(fresh) {
                    self.arenas[domain] = arenas;
                }
            }
            Growth::Replace => {
                // Programs hold the buffers they were compiled for, so they go before the new memory comes.
                self.forget();
                for domain in wanting {
                    let grown = self.arenas[domain].ensure(&memory.plans[domain], Growth::Replace);
                    grown.map_err(|source| self.no_room(domain, source))?;
                }
            }
        }
        Ok(())
    }

    /// Passes if all arenas are large enough.
    pub(crate) fn check_room(&self, memory: &PlannedMemory) -> Result<(), Error> {
        let narrow = |domain: &usize| !has_room(&self.arenas[*domain], &memory.plans[*domain]);
        match (0..memory.plans.len()).find(narrow) {
            Some(domain) => Err(Error::WouldGrow {
                device: self.domains.types[domain].name().to_owned(),
                needed: memory.plans[domain].total(),
                reserved: self.arenas[domain].bytes(0).unwrap_or(0),
            }),
            None => Ok(()),
        }
    }

    /// A domain's arena as large as it is and as a plan wants it, beside the one that is there.
    fn larger(&self, domain: usize, plan: &Arc<MemoryPlan>) -> Result<Arenas, Error> {
        let mut wanted = MemoryPlan::clone(plan);
        let sizes = &mut wanted.arenas[0].chunks;
        for (chunk, buffer) in self.arenas[domain].chunks().enumerate() {
            match sizes.get_mut(chunk) {
                Some(bytes) => *bytes = buffer.bytes().max(*bytes),
                None => sizes.push(buffer.bytes()),
            }
        }
        let mut larger = Arenas::new(vec![Arc::clone(&self.domains.types[domain])]);
        larger.ensure(&wanted, Growth::Keep).map_err(|source| self.no_room(domain, source))?;
        Ok(larger)
    }

    /// Gives up what depends on where the arenas are: programs, inputs that were set, results.
    fn forget(&mut self) {
        self.prepared.values_mut().for_each(|prepared| prepared.forget_places());
        self.occupant = None;
    }

    fn no_room(&self, domain: usize, source: orlop_alloc::Error) -> Error {
        Error::Memory { device: self.domains.types[domain].name().to_owned(), source: Box::new(source) }
    }
}

fn has_room(arenas: &Arenas, plan: &MemoryPlan) -> bool {
    let wanted = &plan.arenas[0].chunks;
    arenas.chunks().count() >= wanted.len().max(1)
        && arenas.chunks().zip(wanted).all(|(buffer, bytes)| buffer.bytes() >= *bytes)
}
