use orlop_alloc::TensorSet;
use orlop_backend::MemoryLayout;
use orlop_sched::DeviceId;

use crate::blueprint::set_tensors;
use crate::{Blueprint, Error};

/// Tensors that stay in a device's memory from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSet {
    /// The device.
    pub device: DeviceId,
    /// What they are.
    pub kind: StoredKind,
    /// Where each of them lies.
    pub tensors: Vec<StoredPlace>,
}

/// What stays in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoredKind {
    /// Weights as they are in the file.
    Weights,
    /// Weights in the device's own layout.
    Repacked,
    /// Keys and values.
    Cache,
}

/// Where a tensor lies that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPlace {
    /// Its name.
    pub name: String,
    /// Which of the set's buffers.
    pub buffer: usize,
    /// Bytes from the buffer's beginning; for weights that are used in the file, from the first of them.
    pub offset: u64,
    /// Bytes that it takes.
    pub bytes: u64,
}

impl Blueprint {
    /// Weights and caches of each device, where they will lie.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn stored(&self) -> Result<Vec<StoredSet>, Error> {
        let mut sets = Vec::new();
        for device in self.machine.indices() {
            for (memory, set) in self.weight_sets(device) {
                let names = set.iter().map(|weight| weight.name.to_string());
                let (kind, places) = if memory.is_borrowed() {
                    let mut next = 0;
                    let places = set.iter().map(|weight| {
                        let offset = next;
                        next += weight.desc.bytes();
                        (0, offset, weight.desc.bytes())
                    });
                    (StoredKind::Weights, places.collect())
                } else {
                    let kind = match memory.layout() {
                        MemoryLayout::Private => StoredKind::Repacked,
                        MemoryLayout::Plain => StoredKind::Weights,
                    };
                    (kind, TensorSet::places(&*memory, &set_tensors(&set))?)
                };
                sets.push(StoredSet { device, kind, tensors: placed(names, places) });
            }
            let caches = self.cache_set(device);
            let places = TensorSet::places(&**self.machine.arena(device), &caches)?;
            let names = caches.iter().map(|cache| cache.name.to_string());
            sets.push(StoredSet { device, kind: StoredKind::Cache, tensors: placed(names, places) });
        }
        sets.retain(|set| !set.tensors.is_empty());
        Ok(sets)
    }
}

fn placed(names: impl Iterator<Item = String>, places: Vec<(usize, u64, u64)>) -> Vec<StoredPlace> {
    let place = |(name, (buffer, offset, bytes))| StoredPlace { name, buffer, offset, bytes };
    names.zip(places).map(place).collect()
}
