use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_alloc::{Error as AllocError, SetTensor, TensorSet};
use orlop_backend::{DeviceError, Gate, StoredTensor, copy};
use orlop_graph::{DType, GraphError, TensorDesc};

use crate::{DeviceIx, Error, Machine};

/// Copies of weights on other devices. They are made once, shared by all graphs of a session, and made again when
/// the weight's buffer has been written since.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    entries: Vec<Resident>,
}

#[derive(Debug)]
struct Resident {
    device: DeviceIx,
    source: StoredTensor,
    copy: StoredTensor,
    /// Bytes that it takes.
    room: u64,
    /// The source's generation when it was copied; `None` if it was not yet.
    generation: Option<u64>,
}

/// A copy that a schedule wants to stay: its position there, and the weight's bytes.
pub(crate) type Wanted<'a> = (usize, &'a crate::Copy, StoredTensor);

impl Residents {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all but the first so many.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
    }

    /// The number of each copy; those that are not there yet get memory, together on each device so that runs have
    /// few buffers to claim. [`Residents::refresh`] fills them.
    pub(crate) fn find_or_add(
        &mut self,
        wanted: &[Wanted<'_>],
        machine: &Machine,
    ) -> Result<BTreeMap<usize, usize>, Error> {
        let mut numbers = BTreeMap::new();
        let mut fresh: BTreeMap<DeviceIx, Vec<&Wanted<'_>>> = BTreeMap::new();
        let known: BTreeMap<_, usize> =
            self.entries.iter().enumerate().map(|(number, entry)| (entry.key(), number)).collect();
        for want in wanted {
            let (position, copy, source) = want;
            match known.get(&key(copy.to, source, copy.room)) {
                Some(number) => {
                    numbers.insert(*position, *number);
                }
                None => fresh.entry(copy.to).or_default().push(want),
            }
        }
        for (device, wanted) in fresh {
            let set = allocate(&wanted, machine, device).map_err(|source| Error::Memory {
                device: machine.name(device).to_owned(),
                source: Box::new(source),
            })?;
            for ((position, copy, source), place) in wanted.into_iter().zip(set) {
                numbers.insert(*position, self.entries.len());
                let (source, room) = (source.clone(), copy.room);
                self.entries.push(Resident { device, source, copy: place, room, generation: None });
            }
        }
        Ok(numbers)
    }

    /// Where a copy lies.
    pub(crate) fn stored(&self, number: usize) -> &StoredTensor {
        &self.entries[number].copy
    }

    /// Brings a copy up to date.
    pub(crate) fn refresh(&mut self, number: usize) -> Result<(), DeviceError> {
        let entry = &mut self.entries[number];
        let now = gate(&entry.source).generation();
        if entry.generation != Some(now) {
            copy(&entry.source, &entry.copy)?;
            entry.generation = Some(now);
        }
        Ok(())
    }
}

/// What makes two copies one: device, buffer, offset, bytes, room.
type Key = (DeviceIx, usize, u64, u64, u64);

fn key(device: DeviceIx, source: &StoredTensor, room: u64) -> Key {
    (device, Arc::as_ptr(gate(source)).addr(), source.slot().offset, source.desc().bytes(), room)
}

impl Resident {
    fn key(&self) -> Key {
        key(self.device, &self.source, self.room)
    }
}

fn allocate(
    wanted: &[&Wanted<'_>],
    machine: &Machine,
    device: DeviceIx,
) -> Result<Vec<StoredTensor>, AllocError> {
    let room = |(_, copy, _): &&Wanted<'_>| {
        let name = copy.name.as_str();
        let desc = TensorDesc::contiguous(DType::I8, &[copy.room]).map_err(|source| {
            AllocError::Graph(GraphError::Leaf { name: name.to_owned(), source: source.into() })
        })?;
        Ok(SetTensor::new(name, desc))
    };
    let rooms = wanted.iter().map(room).collect::<Result<Vec<_>, AllocError>>()?;
    let set = TensorSet::allocate(machine.arena(device), &rooms)?;
    let place = |((_, copy, source), room): (&&Wanted<'_>, &StoredTensor)| {
        StoredTensor::new(copy.name.as_str(), *source.desc(), room.slot().clone())
    };
    Ok(wanted.iter().zip(set.tensors()).map(place).collect::<Result<_, _>>()?)
}

fn gate(stored: &StoredTensor) -> &Arc<Gate> {
    stored.slot().buffer.gate()
}
