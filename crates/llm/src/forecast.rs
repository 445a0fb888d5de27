//! What a model takes on each device, and where weights and caches will lie, before anything is allocated.

use std::sync::Arc;

use orlop_alloc::{ArenaId, SetTensor, TensorSet};
use orlop_backend::{BufferType, MemoryLayout, same_type};
use orlop_sched::DeviceId;

use crate::blueprint::set_tensors;
use crate::weight_memory::WeightPlace;
use crate::{Blueprint, Error};

/// What a model takes on each device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Tokens that the cache holds.
    pub context: u64,
    /// Every device, most preferred first.
    pub devices: Vec<DeviceMemory>,
    /// Layers on each device.
    pub layers: Vec<usize>,
}

/// Bytes on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The device.
    pub name: String,
    /// Weights in the file's layout: mapped, loaded, or kept as copies.
    pub weights: u64,
    /// Weights in the device's own layout.
    pub repacked: u64,
    /// Weights that runs read from the mapped file, and that need not stay in memory.
    pub streamed: u64,
    /// Keys and values.
    pub kv: u64,
    /// The arena of runs.
    pub compute: u64,
    /// Bytes that may be used, if that is known.
    pub free: Option<u64>,
}

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

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoredKind {
    /// Weights as they are in the file.
    Weights,
    /// Weights in the device's own layout.
    Repacked,
    /// Keys and values.
    Cache,
}

/// Where a stored tensor lies.
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

impl DeviceMemory {
    /// The sum of what stays in memory.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.repacked).saturating_add(self.kv).saturating_add(self.compute)
    }

    /// Counts a weight that is used from the mapped file.
    pub(crate) fn add_mapped(&mut self, weight: &WeightPlace) {
        let sum = if weight.streamed { &mut self.streamed } else { &mut self.weights };
        *sum = sum.saturating_add(weight.desc.bytes());
    }

    /// Whether it fits.
    pub fn fits(&self) -> bool {
        self.free.is_none_or(|free| self.total() <= free)
    }
}

impl Forecast {
    /// Whether everything fits.
    pub fn fits(&self) -> bool {
        self.devices.iter().all(DeviceMemory::fits)
    }

    /// Together with another model on the same devices. Context and layers stay this one's.
    #[must_use]
    pub fn with(mut self, other: &Forecast) -> Forecast {
        for (share, other) in self.devices.iter_mut().zip(&other.devices) {
            share.weights = share.weights.saturating_add(other.weights);
            share.repacked = share.repacked.saturating_add(other.repacked);
            share.streamed = share.streamed.saturating_add(other.streamed);
            share.kv = share.kv.saturating_add(other.kv);
            share.compute = share.compute.saturating_add(other.compute);
        }
        self
    }
}

impl Blueprint {
    /// A device with nothing on it, and what may be used there.
    pub(crate) fn empty_share(&self, device: DeviceId) -> DeviceMemory {
        let budget = self.settings.budgets.get(&device).copied();
        let free = self.machine.facts(device).memory.map(|memory| memory.free);
        DeviceMemory {
            name: self.machine.name(device).to_owned(),
            free: budget.or(free),
            ..DeviceMemory::default()
        }
    }

    /// What it takes on each device, to the byte.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn forecast(&self) -> Result<Forecast, Error> {
        let mut devices: Vec<DeviceMemory> = Vec::new();
        for device in self.machine.indices() {
            let mut share = self.empty_share(device);
            for (memory, set) in self.weight_sets(device) {
                if memory.is_borrowed() {
                    set.iter().for_each(|weight| share.add_mapped(weight));
                    continue;
                }
                let sizes = TensorSet::sizes(&*memory, &set_tensors(&set))?;
                let bytes = sizes.into_iter().fold(0u64, u64::saturating_add);
                match memory.layout() {
                    MemoryLayout::Private => share.repacked += bytes,
                    MemoryLayout::Plain => share.weights += bytes,
                }
            }
            let caches = self.cache_set(device);
            share.kv = TensorSet::sizes(&**self.machine.arena(device), &caches)?.into_iter().sum();
            let resident =
                self.graphs.iter().map(|graph| graph.planned.resident_bytes(device)).max().unwrap_or(0);
            share.weights += resident;
            let chunks = self.graphs.iter().map(|graph| {
                let plan = graph.planned.memory_plan(&self.machine, device);
                plan.arenas[ArenaId::new(0).index()].chunks.as_slice()
            });
            share.compute = largest_chunks(chunks).into_iter().sum();
            devices.push(share);
        }
        let layers = self.machine.indices().map(|device| self.layout.layers_on(device)).collect();
        Ok(Forecast { context: self.context, devices, layers })
    }

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

    /// The weights of a device, by the kind of memory that they go to, in the model's order.
    pub(crate) fn weight_sets(&self, device: DeviceId) -> Vec<(Arc<dyn BufferType>, Vec<&WeightPlace>)> {
        let mut sets: Vec<(Arc<dyn BufferType>, Vec<&WeightPlace>)> = Vec::new();
        for weight in self.weights.iter().filter(|weight| weight.device == device) {
            match sets.iter_mut().find(|(memory, _)| same_type(memory, &weight.memory)) {
                Some((_, set)) => set.push(weight),
                None => sets.push((Arc::clone(&weight.memory), vec![weight])),
            }
        }
        sets
    }

    /// The caches of a device.
    pub(crate) fn cache_set(&self, device: DeviceId) -> Vec<SetTensor> {
        let decode = &self.decode.graph;
        let caches = decode.caches.iter().filter(|cache| self.layout.caches[cache.layer] == device);
        caches
            .map(|cache| {
                let tensor = decode.graph.tensor(cache.tensor);
                SetTensor::new(tensor.name.as_str(), tensor.desc)
            })
            .collect()
    }
}

/// The sizes of chunks that are large enough for every plan.
fn largest_chunks<'a>(plans: impl Iterator<Item = &'a [u64]>) -> Vec<u64> {
    let mut largest: Vec<u64> = Vec::new();
    for chunks in plans {
        largest.resize(largest.len().max(chunks.len()), 0);
        for (largest, bytes) in largest.iter_mut().zip(chunks) {
            *largest = (*largest).max(*bytes);
        }
    }
    largest
}

fn placed(names: impl Iterator<Item = String>, places: Vec<(usize, u64, u64)>) -> Vec<StoredPlace> {
    let place = |(name, (buffer, offset, bytes))| StoredPlace { name, buffer, offset, bytes };
    names.zip(places).map(place).collect()
}
