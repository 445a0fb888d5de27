//! Loading: every weight is copied to its place ([`weight_memory`](crate::weight_memory) decided which), and caches
//! are allocated. What can be used mapped meanwhile only gets a place, and stays pending.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use orlop_alloc::TensorSet;
use orlop_backend::{Buffer, BufferType, MemoryLayout, Slot, StoredTensor, same_type};
use orlop_gguf::TensorInfo;
use orlop_sched::{DeviceId, Session};

use crate::blueprint::{Blueprint, set_tensors};
use crate::cache_rotation::hadamard;
use crate::draft::WeightContent;
use crate::planned_graph::MappedLeaf;
use crate::weight_memory::WeightPlace;
use crate::{DeviceMemory, Error, Forecast};

/// How far loading has come: bytes of weights done, of all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Weights and caches, which stay from run to run, and their bytes on each device.
#[derive(Debug, Default)]
pub(crate) struct LoadedTensors {
    pub(crate) tensors: Vec<StoredTensor>,
    /// By name, weights in the mapped file that have a place among the tensors, too: those that are or were pending, and
    /// those that a graph offloads.
    pub(crate) mapped: HashMap<Arc<str>, StoredTensor>,
    /// Weights that have their places, and are still to be copied there.
    pub(crate) pending: Vec<PendingWeight>,
    pub(crate) devices: Vec<DeviceMemory>,
}

/// A weight that is still to be loaded or repacked.
#[derive(Debug)]
pub(crate) struct PendingWeight {
    name: Arc<str>,
    /// Which of the tensors it becomes.
    index: usize,
    /// Its name in the file.
    source: String,
    /// Its bytes in the file.
    bytes: u64,
}

impl LoadedTensors {
    /// Bytes, in the file, of weights that are pending.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending.iter().map(|pending| pending.bytes).sum()
    }

    /// Bytes that are allocated on each device, with those of a session.
    pub(crate) fn memory(&self, blueprint: &Blueprint, session: &Session) -> Forecast {
        let compute = |(share, device): (&DeviceMemory, DeviceId)| DeviceMemory {
            weights: share.weights + session.resident_bytes(device),
            compute: session.arena_bytes(device),
            ..share.clone()
        };
        let (machine, layout) = (session.machine(), blueprint.layout());
        Forecast {
            context: blueprint.context,
            devices: self.devices.iter().zip(machine.indices()).map(compute).collect(),
            layers: machine.indices().map(|device| layout.layers_on(device)).collect(),
        }
    }

    /// Names of weights that are pending.
    pub(crate) fn pending_names(&self) -> HashSet<&str> {
        self.pending.iter().map(|pending| &*pending.name).collect()
    }

    /// Loads or repacks one of the weights that are pending.
    pub(crate) fn load_one(&mut self, blueprint: &Blueprint) -> Result<(), Error> {
        if let Some(PendingWeight { index, source, .. }) = self.pending.last() {
            load_weight(blueprint, source, &WeightContent::Whole, &self.tensors[*index])?;
            self.pending.pop();
        }
        Ok(())
    }
}

/// Brings every weight to its place: used mapped, or copied to its device, row by row in the device's own layout if it
/// has one; and makes empty caches.
pub(crate) fn load(blueprint: &Blueprint, progress: Progress<'_>) -> Result<LoadedTensors, Error> {
    let all = blueprint.weights.iter().map(|weight| weight.desc.bytes()).sum();
    let (mut done, mut loaded) = (0, LoadedTensors::default());
    let mut mapped = Mapped::default();
    for device in blueprint.machine.indices() {
        let mut share = blueprint.empty_share(device);
        let stored = &mut loaded.tensors;
        for (memory, set) in blueprint.weight_sets(device) {
            if memory.is_borrowed() {
                for weight in set {
                    stored.push(mapped.stored(blueprint, &memory, weight)?);
                    if weight.streamed {
                        blueprint.model.file().read_in_order(source(blueprint, &weight.source)?);
                    }
                    done += weight.desc.bytes();
                    share.add_mapped(weight);
                }
                progress(done, all);
                continue;
            }
            let places = TensorSet::allocate(&memory, &set_tensors(&set))?;
            match memory.layout() {
                MemoryLayout::Private => share.repacked += places.bytes(),
                MemoryLayout::Plain => share.weights += places.bytes(),
            }
            for (weight, place) in set.into_iter().zip(places.tensors()) {
                match &weight.while_pending {
                    Some(memory) => {
                        let name = Arc::clone(&weight.name);
                        let in_file = mapped.stored(blueprint, memory, weight)?;
                        loaded.mapped.insert(Arc::clone(&name), in_file);
                        loaded.pending.push(PendingWeight {
                            name,
                            index: stored.len(),
                            source: weight.source.clone(),
                            bytes: weight.desc.bytes(),
                        });
                    }
                    None => load_weight(blueprint, &weight.source, &weight.content, place)?,
                }
                stored.push(place.clone());
                done += weight.desc.bytes();
                progress(done, all);
            }
        }
        let caches = blueprint.cache_set(device);
        if !caches.is_empty() {
            let places = TensorSet::allocate(blueprint.machine.arena(device), &caches)?;
            share.kv = places.bytes();
            loaded.tensors.extend(places.tensors().iter().cloned());
        }
        loaded.devices.push(share);
    }
    blueprint.model.file().check_readable()?;
    let by_name: HashMap<&str, &WeightPlace> =
        blueprint.weights.iter().map(|weight| (&*weight.name, weight)).collect();
    for MappedLeaf { name, memory, .. } in blueprint.graphs.iter().flat_map(|graph| &graph.mapped) {
        if let Some(weight) = by_name.get(&**name).filter(|_| !loaded.mapped.contains_key(name)) {
            loaded.mapped.insert(Arc::clone(name), mapped.stored(blueprint, memory, weight)?);
        }
    }
    Ok(loaded)
}

fn source<'a>(blueprint: &'a Blueprint, name: &str) -> Result<&'a TensorInfo, Error> {
    let found = blueprint.model.file().tensor(name);
    found.ok_or_else(|| Error::MissingTensor(name.to_owned()))
}

/// Copies what a weight has of its tensor from the file.
fn load_weight(
    blueprint: &Blueprint,
    name: &str,
    content: &WeightContent,
    place: &StoredTensor,
) -> Result<(), Error> {
    match content {
        WeightContent::Numbers(numbers) => return Ok(place.set(0, bytemuck::cast_slice(numbers))?),
        WeightContent::Hadamard => {
            let matrix = hadamard(place.desc().extents[0]);
            return Ok(place.set(0, bytemuck::cast_slice(&matrix))?);
        }
        WeightContent::KeyBias(bias, part) => {
            let [head, heads, ..] = place.desc().extents;
            let values = bias.values(*part, blueprint.model.file(), [head, heads])?;
            return Ok(place.set(0, bytemuck::cast_slice(&values))?);
        }
        WeightContent::Whole | WeightContent::Experts(_) => {}
    }
    let (file, tensor) = (blueprint.model.file(), source(blueprint, name)?);
    let bytes = file.bytes_of(tensor);
    match content {
        WeightContent::Experts(experts) => {
            let each = bytes.len() / tensor.desc.extents[2].max(1) as usize;
            for (place_of, expert) in experts.iter().enumerate() {
                let matrix = &bytes[*expert as usize * each..][..each];
                place.set((place_of * each) as u64, matrix)?;
            }
        }
        _ => place.set(0, bytes)?,
    }
    file.release(tensor);
    Ok(())
}

/// Buffers over the file's parts: one for each kind of memory.
#[derive(Debug, Default)]
struct Mapped(Vec<(usize, Arc<dyn Buffer>)>);

impl Mapped {
    /// A weight where the file is mapped.
    fn stored(
        &mut self,
        blueprint: &Blueprint,
        memory: &Arc<dyn BufferType>,
        weight: &WeightPlace,
    ) -> Result<StoredTensor, Error> {
        let tensor = source(blueprint, &weight.source)?;
        let same = |known: &&(usize, Arc<dyn Buffer>)| {
            known.0 == tensor.part && same_type(known.1.buffer_type(), memory)
        };
        let buffer = match self.0.iter().find(same) {
            Some((_, buffer)) => Arc::clone(buffer),
            None => {
                let data = blueprint.model.file().parts()[tensor.part].data();
                let buffer = Arc::clone(memory).over(data)?;
                self.0.push((tensor.part, Arc::clone(&buffer)));
                buffer
            }
        };
        let slot = Slot { buffer, offset: tensor.offset };
        Ok(StoredTensor::new(Arc::clone(&weight.name), weight.desc, slot)?)
    }
}
