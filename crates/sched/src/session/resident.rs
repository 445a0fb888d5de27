//! Resident copies of weights.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_alloc::{Error as AllocError, SetTensor, TensorSet};
use orlop_backend::{DeviceError, Gate, StoredTensor, copy};
use orlop_graph::{DType, GraphError, TensorDesc};

use crate::{DeviceId, Error, Machine, TransferId};

/// Resident copies of weights: on other devices than the weights themselves. They are made once, shared by all graphs of a session, and made again when
/// the weight's buffer has been written since.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    /// None where one was removed.
    entries: Vec<Option<Resident>>,
}

#[derive(Debug)]
struct Resident {
    device: DeviceId,
    source: StoredTensor,
    copy: StoredTensor,
    /// Bytes that it takes.
    room: u64,
    /// The source's generation when it was copied; `None` if it was not yet.
    generation: Option<u64>,
}

/// A resident copy of a schedule, and the weight's bytes.
pub(crate) type Wanted<'a> = (TransferId, &'a crate::Transfer, StoredTensor);

impl Residents {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all but the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
    }

    /// The number of each copy; those that are not there yet get memory, together on each device so that runs have
    /// few buffers to claim. [`Residents::refresh`] fills them.
    pub(crate) fn find_or_add(
        &mut self,
        wanted: &[Wanted<'_>],
        machine: &Machine,
    ) -> Result<BTreeMap<TransferId, usize>, Error> {
        let mut numbers = BTreeMap::new();
        let mut fresh: BTreeMap<DeviceId, Vec<&Wanted<'_>>> = BTreeMap::new();
        let entries = self.entries.iter().enumerate();
        let known: BTreeMap<_, usize> =
            entries.filter_map(|(number, entry)| Some((entry.as_ref()?.key(), number))).collect();
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
                self.entries.push(Some(Resident { device, source, copy: place, room, generation: None }));
            }
        }
        Ok(numbers)
    }

    /// Bytes that they take on a device.
    pub(crate) fn bytes(&self, device: DeviceId) -> u64 {
        self.entries.iter().flatten().filter(|entry| entry.device == device).map(|entry| entry.room).sum()
    }

    /// Where a copy lies.
    pub(crate) fn stored(&self, number: usize) -> Option<&StoredTensor> {
        self.entries[number].as_ref().map(|entry| &entry.copy)
    }

    /// Gives a copy's memory back.
    pub(crate) fn remove(&mut self, number: usize) {
        self.entries[number] = None;
    }

    /// Whether a copy is not as its weight is now.
    pub(crate) fn is_stale(&self, number: usize) -> bool {
        let entry = self.entries[number].as_ref();
        entry.is_some_and(|entry| entry.generation != Some(gate(&entry.source).generation()))
    }

    /// Brings a copy up to date.
    pub(crate) fn refresh(&mut self, number: usize) -> Result<(), DeviceError> {
        let Some(entry) = &mut self.entries[number] else { return Ok(()) };
        let now = gate(&entry.source).generation();
        if entry.generation != Some(now) {
            copy(&entry.source, &entry.copy)?;
            entry.generation = Some(now);
        }
        Ok(())
    }
}

/// What makes two copies one: device, buffer, offset, bytes, room.
type Key = (DeviceId, usize, u64, u64, u64);

fn key(device: DeviceId, source: &StoredTensor, room: u64) -> Key {
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
    device: DeviceId,
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
