use std::sync::Arc;

use orlop_alloc::TensorSet;
use orlop_backend::{Buffer, BufferType, MemoryLayout, Slot, StoredTensor, same_type};
use orlop_gguf::TensorInfo;

use crate::blueprint::{Blueprint, WeightPlace, set_tensors};
use crate::{DeviceMemory, Error};

/// How far loading has come: bytes of weights done, of all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// What is kept beside arenas: weights and caches, and their bytes on each device.
#[derive(Debug, Default)]
pub(crate) struct LoadedTensors {
    pub(crate) tensors: Vec<StoredTensor>,
    /// Weights as they are in the file, of which there are copies among the others.
    pub(crate) streamed: Vec<StoredTensor>,
    /// Weights that have their places, and are still to be brought there.
    pub(crate) waiting: Vec<PendingWeight>,
    pub(crate) shares: Vec<DeviceMemory>,
}

/// A weight that is to be repacked.
#[derive(Debug)]
pub(crate) struct PendingWeight {
    /// Which of the tensors that are kept.
    index: usize,
    /// Its name in the file.
    source: String,
    /// As it is in the file.
    in_file: StoredTensor,
}

impl LoadedTensors {
    /// Bytes of weights that are to be repacked.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.in_file.desc().bytes()).sum()
    }

    /// All that is kept; weights that are to be repacked as they are in the file.
    pub(crate) fn before_repacking(&self) -> Vec<StoredTensor> {
        let mut tensors = self.tensors.clone();
        for waiting in &self.waiting {
            tensors[waiting.index] = waiting.in_file.clone();
        }
        tensors
    }

    /// Brings a weight that waits to its place.
    pub(crate) fn repack_one(&mut self, blueprint: &Blueprint) -> Result<(), Error> {
        if let Some(PendingWeight { index, source, .. }) = self.waiting.last() {
            bring(blueprint, source, &self.tensors[*index])?;
            self.waiting.pop();
        }
        Ok(())
    }
}

/// Brings every weight to its place: used where it is mapped, or copied to its device, row by row in the device's own
/// layout if it has one; and makes empty caches. What can be used where it is mapped until it is repacked only gets a
/// place.
pub(crate) fn load(blueprint: &Blueprint, progress: Progress<'_>) -> Result<LoadedTensors, Error> {
    let all = blueprint.weights.iter().map(|weight| weight.desc.bytes()).sum();
    let (mut done, mut kept) = (0, LoadedTensors::default());
    let mut mapped = Mapped::default();
    for device in blueprint.machine.indices() {
        let mut share = blueprint.empty_share(device);
        let stored = &mut kept.tensors;
        for (memory, set) in blueprint.weight_sets(device) {
            if memory.is_borrowed() {
                for weight in set {
                    stored.push(mapped.stored(blueprint, &memory, weight)?);
                    done += weight.desc.bytes();
                    share.weights += weight.desc.bytes();
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
                match &weight.until_repacked {
                    Some(memory) => kept.waiting.push(PendingWeight {
                        index: stored.len(),
                        source: weight.source.clone(),
                        in_file: mapped.stored(blueprint, memory, weight)?,
                    }),
                    None => bring(blueprint, &weight.source, place)?,
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
            kept.tensors.extend(places.tensors().iter().cloned());
        }
        kept.shares.push(share);
    }
    for (_, weight, memory) in blueprint.streamed(&blueprint.prompt) {
        kept.streamed.push(mapped.stored(blueprint, &memory, weight)?);
    }
    Ok(kept)
}

fn source<'a>(blueprint: &'a Blueprint, name: &str) -> Result<&'a TensorInfo, Error> {
    let found = blueprint.model.file().tensor(name);
    found.ok_or_else(|| Error::MissingTensor(name.to_owned()))
}

/// Copies a weight from the file.
fn bring(blueprint: &Blueprint, name: &str, place: &StoredTensor) -> Result<(), Error> {
    let (file, tensor) = (blueprint.model.file(), source(blueprint, name)?);
    place.set(0, file.bytes_of(tensor))?;
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
