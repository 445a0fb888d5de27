use std::collections::HashMap;
use std::sync::Arc;

use orlop_alloc::TensorSet;
use orlop_backend::{Buffer, Layout, Slot, StoredTensor};

use crate::blueprint::{Blueprint, set_tensors};
use crate::{Error, Share};

/// How far loading has come: bytes of weights done, of all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// What is kept beside arenas: weights and caches, and their bytes on each device.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) tensors: Vec<StoredTensor>,
    pub(crate) shares: Vec<Share>,
}

/// Brings every weight to its place: used where it is mapped, or copied to its device, row by row in the device's own
/// layout if it has one; and makes empty caches.
pub(crate) fn load(blueprint: &Blueprint, progress: Progress<'_>) -> Result<Kept, Error> {
    let file = blueprint.model.file();
    let all = blueprint.weights.iter().map(|weight| weight.desc.bytes()).sum();
    let (mut done, mut kept) = (0, Kept::default());
    for device in blueprint.machine.indices() {
        let mut share = blueprint.empty_share(device);
        let stored = &mut kept.tensors;
        for (memory, set) in blueprint.weight_sets(device) {
            let source = |name: &str| file.tensor(name).ok_or_else(|| Error::MissingTensor(name.to_owned()));
            if memory.is_borrowed() {
                let mut parts: HashMap<usize, Arc<dyn Buffer>> = HashMap::new();
                for weight in set {
                    let tensor = source(&weight.source)?;
                    let buffer = match parts.get(&tensor.part) {
                        Some(buffer) => Arc::clone(buffer),
                        None => {
                            let buffer = Arc::clone(&memory).over(file.parts()[tensor.part].data())?;
                            parts.insert(tensor.part, Arc::clone(&buffer));
                            buffer
                        }
                    };
                    let slot = Slot { buffer, offset: tensor.offset };
                    stored.push(StoredTensor::new(Arc::clone(&weight.name), weight.desc, slot)?);
                    done += weight.desc.bytes();
                    share.weights += weight.desc.bytes();
                }
                progress(done, all);
                continue;
            }
            let places = TensorSet::allocate(&memory, &set_tensors(&set))?;
            match memory.layout() {
                Layout::Private => share.repacked += places.bytes(),
                Layout::Plain => share.weights += places.bytes(),
            }
            for (weight, place) in set.into_iter().zip(places.tensors()) {
                let tensor = source(&weight.source)?;
                place.set(0, file.bytes_of(tensor))?;
                file.release(tensor);
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
    Ok(kept)
}
