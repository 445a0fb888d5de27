//! Memory of what is copied to backends while an earlier graph may still run: a place for each of a few graphs.

use std::ffi::c_void;

use super::devices::Devices;
use crate::chunks::Chunks;
use crate::error::Error;
use crate::host::Host;
use crate::raw::{Event, STATUS_SUCCESS, TensorRef};

/// Most graphs that run at a time, as in ggml.
const MAX_GRAPHS: usize = 4;

/// The places of graphs that run at a time, on each backend.
#[derive(Debug)]
pub(crate) struct Ring {
    host: &'static Host,
    /// Number of places.
    pub(crate) count: usize,
    /// The place of the last graph.
    pub(crate) current: usize,
    next: usize,
    places: Vec<Places>,
}

/// A backend's places, all in one buffer.
#[derive(Debug)]
struct Places {
    bytes: usize,
    /// `None` before the first reservation.
    buffer: Option<Chunks>,
    /// Recorded when the backend has run its last split of the graph in this place; null where there are no events.
    events: Vec<*mut Event>,
}

/// Tensors that lie in the ring, with their backends.
pub(crate) type RingTensors = Vec<(TensorRef, usize)>;

impl Ring {
    /// One place if graphs run one after the other: copies are then planned with their graph. Else a place more than there are
    /// devices, so that each has one graph to run while the next one's inputs arrive.
    pub(crate) fn new(host: &'static Host, devices: &Devices, parallel: bool) -> Ring {
        let count = if parallel { devices.backends.len().min(MAX_GRAPHS) } else { 1 };
        let event = |backend| devices.functions.event_new(devices.functions.backend_device(backend));
        let places = devices.backends.iter().map(|backend| {
            let events = (0..count).map(|_| if count > 1 { event(*backend) } else { std::ptr::null_mut() });
            Places { bytes: 0, buffer: None, events: events.collect() }
        });
        Ring { host, count, current: 0, next: 0, places: places.collect() }
    }

    /// The next graph takes the next place.
    pub(crate) fn advance(&mut self) {
        self.current = self.next;
        self.next = (self.next + 1) % self.count;
    }

    /// The next graph takes the first place: no graph runs.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Bytes of a backend's places.
    pub(crate) fn bytes(&self, backend: usize) -> usize {
        self.places[backend].buffer.as_ref().map_or(0, Chunks::bytes)
    }

    /// Bytes that the places of a backend take with these tensors.
    pub(crate) fn needed(&self, devices: &Devices, tensors: &RingTensors, backend: usize) -> usize {
        let mine = tensors.iter().filter(|(_, of)| *of == backend);
        let one =
            mine.fold(0usize, |sum, (tensor, _)| sum.saturating_add(self.padded(devices, *tensor, backend)));
        one.saturating_mul(self.count)
    }

    fn padded(&self, devices: &Devices, tensor: TensorRef, backend: usize) -> usize {
        let buft = devices.bufts[backend];
        let bytes = self.host.buft_get_alloc_size(buft, tensor.as_ptr());
        bytes.checked_next_multiple_of(self.host.buft_get_alignment(buft).max(1)).unwrap_or(usize::MAX)
    }

    /// Makes places as large as these tensors need, and waits before it replaces smaller ones.
    pub(crate) fn grow(&mut self, devices: &Devices, tensors: &RingTensors) -> Result<(), Error> {
        let mut grown = Vec::new();
        for backend in 0..self.places.len() {
            let needed = self.needed(devices, tensors, backend);
            if needed > self.places[backend].bytes * self.count {
                let chunks = Chunks::new(self.host, devices.bufts[backend], &[needed as u64])?;
                grown.push((backend, needed / self.count, chunks));
            }
        }
        if !grown.is_empty() {
            devices.synchronize();
        }
        for (backend, bytes, buffer) in grown {
            self.places[backend].bytes = bytes;
            self.places[backend].buffer = Some(buffer);
        }
        Ok(())
    }

    /// Binds tensors to the current place. On failure none is bound.
    pub(crate) fn bind(&self, devices: &Devices, tensors: &RingTensors) -> Result<(), Error> {
        let mut offsets: Vec<usize> = self.places.iter().map(|places| places.bytes * self.current).collect();
        for (index, (tensor, backend)) in tensors.iter().enumerate() {
            let list = self.places[*backend].buffer.as_ref().map(Chunks::list).unwrap_or_default();
            let Some((buffer, base)) = list.first() else { continue };
            let address: *mut c_void = base.wrapping_byte_add(offsets[*backend]);
            offsets[*backend] += self.padded(devices, *tensor, *backend);
            let status = self.host.tensor_alloc(*buffer, tensor.as_ptr(), address);
            if status != STATUS_SUCCESS {
                tensors[..=index].iter().for_each(|(bound, _)| bound.unbind());
                return Err(Error::NotBound { tensor: tensor.name(), status });
            }
        }
        Ok(())
    }

    fn event(&self, backend: usize) -> Option<*mut Event> {
        let event = self.places[backend].events[self.current];
        (!event.is_null()).then_some(event)
    }

    /// Waits until a backend has run the earlier graph in the current place, or all that it has to do.
    pub(crate) fn wait(&self, devices: &Devices, backend: usize) {
        match self.event(backend) {
            Some(event) => devices.functions.event_synchronize(event),
            None => devices.functions.synchronize(devices.backends[backend]),
        }
    }

    /// Lets a backend wait for itself, as [`Self::wait`].
    pub(crate) fn order(&self, devices: &Devices, backend: usize) {
        match self.event(backend) {
            Some(event) => devices.functions.event_wait(devices.backends[backend], event),
            None => devices.functions.synchronize(devices.backends[backend]),
        }
    }

    /// Marks the end of a split.
    pub(crate) fn record(&self, devices: &Devices, backend: usize) {
        if let Some(event) = self.event(backend) {
            devices.functions.event_record(event, devices.backends[backend]);
        }
    }

    /// Frees the events.
    pub(crate) fn free_events(&self, devices: &Devices) {
        let events = self.places.iter().flat_map(|places| &places.events);
        events.filter(|event| !event.is_null()).for_each(|event| devices.functions.event_free(*event));
    }
}
