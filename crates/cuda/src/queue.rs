//! A queue of work on a GPU: a stream, and what its work needs until it is done.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{
    Buffer, Claim, Claims, DeviceError, Event, MemoryLayout, PendingRead, Program, Queue, RunOptions,
    StoredTensor, copy_claimed, get_unstaged, set_unstaged,
};
use orlop_graph::AccessKind;

use crate::async_uploads::{AsyncUploads, MIN_ASYNC_UPLOAD, overlap};
use crate::buffer;
use crate::context::Context;
use crate::event::CudaEvent;
use crate::kernel_errors::KernelErrors;
use crate::program::CudaProgram;
use crate::queue_staging::QueueStaging;
use crate::sys::{DevicePtr, Event as RawEvent, Stream};

/// A stream of a GPU.
pub(crate) struct CudaQueue {
    context: Arc<Context>,
    stream: Stream,
    pending: Arc<PendingErrors>,
    in_flight: Vec<InFlight>,
    /// How many of the host's writes the stream waits for already.
    arrivals: u64,
    uploads: AsyncUploads,
    /// Allocated when bytes are first set or read.
    staging: Option<QueueStaging>,
}

/// What work that may still be under way needs.
struct InFlight {
    claims: Claims,
    _memory: InFlightMemory,
}

#[allow(dead_code)] // kept alive
enum InFlightMemory {
    Program(Arc<dyn Program>),
    Copy([Arc<dyn Buffer>; 2]),
    Transfer(Arc<dyn Buffer>),
}

/// Where the programs that a queue was given since it was last idle report bad indices.
#[derive(Debug, Default)]
pub(crate) struct PendingErrors(Mutex<Vec<Arc<KernelErrors>>>);

impl PendingErrors {
    /// The first error that a kernel noted.
    pub(crate) fn first_error(&self) -> Result<(), DeviceError> {
        let programs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        programs.iter().try_for_each(|errors| errors.check())
    }

    fn add(&self, errors: &Arc<KernelErrors>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.iter().any(|known| Arc::ptr_eq(known, errors)) {
            list.push(Arc::clone(errors));
        }
    }

    fn clear(&self) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.drain(..).for_each(|errors| errors.clear());
    }
}

impl CudaQueue {
    pub(crate) fn new(context: &Arc<Context>) -> Result<CudaQueue, DeviceError> {
        let primary = context.enter()?;
        Ok(CudaQueue {
            context: Arc::clone(context),
            stream: context.note(Stream::new(primary))?,
            pending: Arc::default(),
            in_flight: Vec::new(),
            arrivals: 0,
            uploads: context.note(AsyncUploads::new(primary))?,
            staging: None,
        })
    }

    /// Claims a place for a transfer, on the stream of the host's transfers: no work touches the place in a way that excludes
    /// this, and later work waits for it. `None` if work of this queue alone holds the buffer: the transfer then comes behind
    /// it, on the queue's own stream, and the buffer and its claims are kept until the queue was waited for.
    fn claim_place(
        &mut self,
        buffer: &Arc<dyn Buffer>,
        place: &Range<DevicePtr>,
        kind: AccessKind,
    ) -> Result<Option<Claim>, DeviceError> {
        let busy = match Claim::take(&**buffer, kind) {
            Err(busy @ DeviceError::Busy { .. }) => busy,
            other => return other.map(Some),
        };
        let kept = self.in_flight.iter().map(|work| &work.claims);
        if let Some(own) = Claims::held_alone(kept, &**buffer, kind).cloned() {
            self.context.await_arrivals(&self.stream, &mut self.arrivals)?;
            self.context.enter()?;
            self.context.note(self.uploads.land(&self.stream, |other| overlap(other, place)))?;
            self.keep(&own, InFlightMemory::Transfer(Arc::clone(buffer)));
            return Ok(None);
        }
        if self.in_flight.is_empty() {
            return Err(busy);
        }
        self.sync()?;
        Claim::take(&**buffer, kind).map(Some)
    }

    /// Takes the staging memory out; it is put back after use.
    fn take_staging(&mut self) -> Result<QueueStaging, DeviceError> {
        self.staging.take().map_or_else(|| QueueStaging::new(&self.context), Ok)
    }

    fn keep(&mut self, claims: &Claims, memory: InFlightMemory) {
        self.in_flight.push(InFlight { claims: claims.clone(), _memory: memory });
    }
}

impl Queue for CudaQueue {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        options: &RunOptions,
    ) -> Result<(), DeviceError> {
        let foreign = |owner: &str| DeviceError::Foreign {
            what: "a program",
            owner: owner.to_owned(),
            device: self.context.name.to_string(),
        };
        let own = program.as_any().downcast_ref::<CudaProgram>();
        let own = own.ok_or_else(|| foreign("another kind of device"))?;
        if !Arc::ptr_eq(own.context(), &self.context) {
            return Err(foreign(&own.context().name));
        }
        if options.cancel.as_ref().is_some_and(|cancel| cancel.is_cancelled()) {
            return Err(DeviceError::Cancelled { step: 0, steps: own.steps() });
        }
        for (buffer, kind) in program.touches() {
            claims.check(&**buffer, *kind)?;
        }
        self.context.await_arrivals(&self.stream, &mut self.arrivals)?;
        self.context.enter()?;
        self.context.note(self.uploads.land(&self.stream, |places| own.is_at(places)))?;
        self.pending.add(own.errors());
        // SAFETY: `run` asks for claims to all that the program touches, checked above; that they, the program and its errors
        // stay until the stream has passed: they are kept until the queue was waited for; and that conflicting work is
        // ordered: `submit`'s contract, arrivals and uploads are waited for above.
        let run = unsafe { own.run(&self.stream) };
        self.keep(claims, InFlightMemory::Program(Arc::clone(program)));
        run
    }

    unsafe fn copy(
        &mut self,
        from: &StoredTensor,
        to: &StoredTensor,
        claims: &Claims,
    ) -> Result<(), DeviceError> {
        let (source, target) = (&*from.slot().buffer, &*to.slot().buffer);
        let private = source.buffer_type().layout() == MemoryLayout::Private;
        let same = from.desc() == to.desc() && from.desc().is_contiguous();
        let [start, end] = [from, to].map(|tensor| tensor.slot().offset);
        let overlap_itself = Arc::ptr_eq(source.gate(), target.gate())
            && overlap(&(start..start + from.desc().bytes()), &(end..end + to.desc().bytes()));
        let plain = same && !private && !overlap_itself;
        let (Some(target_own), true) = (buffer::own(target, &self.context), plain) else {
            // Other layouts and memories wait for what they may depend on, and go through the host.
            self.sync()?;
            // SAFETY: `lend` asks that conflicting uses of the run's claims are ordered: `copy`'s contract.
            let read = unsafe { claims.lend(source, AccessKind::Read) }?;
            // SAFETY: `lend` asks that conflicting uses of the run's claims are ordered: `copy`'s contract.
            let write = unsafe { claims.lend(target, AccessKind::Write) }?;
            return copy_claimed(from, to, [&read, &write]).map(|_| ());
        };
        claims.check(source, AccessKind::Read)?;
        claims.check(target, AccessKind::Write)?;
        self.context.await_arrivals(&self.stream, &mut self.arrivals)?;
        self.context.enter()?;
        let (at, bytes) = (target_own.address() + to.slot().offset, from.desc().bytes());
        if bytes == 0 {
            return Ok(());
        }
        let offset = from.slot().offset;
        let places = at..at + bytes;
        let own_source = buffer::own(source, &self.context).map(|own| own.address() + offset);
        let sources = own_source.map_or(0..0, |from| from..from + bytes);
        let touched = |other: &_| overlap(other, &places) || overlap(other, &sources);
        self.context.note(self.uploads.land(&self.stream, touched))?;
        // What the operations below ask for: both places are their buffers', by the checks of `StoredTensor`; the buffers and
        // the claims are kept until the queue was waited for; conflicting work is ordered by `copy`'s contract, and
        // arrivals and uploads are waited for above.
        let copied = if let Some(from) = own_source {
            // SAFETY: `Stream::copy` asks for two live places that do not overlap: see above, and `plain`.
            unsafe { self.stream.copy(at, from, bytes) }
        } else if let Some(other) = buffer::any(source) {
            let from = (other.address() + offset, &**other.context().primary());
            // SAFETY: `Stream::copy_from_peer` asks for a live place on each GPU: see above.
            unsafe { self.stream.copy_from_peer(at, from, bytes) }
        } else if let Some(span) = source.host().filter(|span| offset + bytes <= span.bytes) {
            // SAFETY: `add` asks to stay within the allocation: the offset is at most the span's length, checked above.
            let place = unsafe { span.base.add(offset as usize) };
            if bytes >= MIN_ASYNC_UPLOAD && !span.writable {
                // SAFETY: `start` asks for two live places, of which the source is not written while its buffer lives: see above;
                // the span says that it is read-only.
                unsafe { self.uploads.start(&self.stream, at, (&from.slot().buffer, place), bytes) }
            } else {
                // SAFETY: `Stream::write` asks for two live places, of which the source is not written: see above; it is claimed.
                unsafe { self.stream.write(at, place.as_ptr(), bytes) }
            }
        } else {
            let mut bounce = vec![0; bytes as usize];
            // SAFETY: `lend` asks that conflicting uses of the run's claims are ordered: `copy`'s contract.
            let read = unsafe { claims.lend(source, AccessKind::Read) }?;
            source.read(&read, offset, &mut bounce)?;
            self.context.note(self.stream.sync())?;
            // SAFETY: `Context::write` asks for a live place that no other work touches until the bytes have arrived: see above;
            // the stream is idle.
            unsafe { self.context.write(at, &bounce) }?;
            Ok(())
        };
        self.context.note(copied)?;
        let buffers = [&from.slot().buffer, &to.slot().buffer].map(Arc::clone);
        self.keep(claims, InFlightMemory::Copy(buffers));
        Ok(())
    }

    fn set(&mut self, to: &StoredTensor, offset: u64, bytes: &[u8]) -> Result<Arc<dyn Event>, DeviceError> {
        let buffer = &to.slot().buffer;
        let Some(own) = buffer::own(&**buffer, &self.context).filter(|_| is_plain(&**buffer)) else {
            return set_unstaged(self, to, offset, bytes);
        };
        let place = to.place(offset, bytes.len() as u64)?;
        let place = own.address() + place.start..own.address() + place.end;
        let mut staging = self.take_staging()?;
        let given = self.claim_place(buffer, &place, AccessKind::Write).and_then(|claim| {
            let own_stream = claim.is_none().then_some(&self.stream);
            staging.write(bytes, |block, range| {
                let (at, bytes) = (place.start + range.start, range.end - range.start);
                // SAFETY: `upload` asks for bytes of this GPU's memory, checked in `StoredTensor::place`, that stay allocated:
                // buffers wait for transfers when dropped, and the queue keeps this one for its own stream; and for order with
                // work that touches them: `claim_place` says how.
                self.context.give(own_stream, |stream| unsafe { block.upload(stream, at, bytes) })
            })
        });
        self.staging = Some(staging);
        given?;
        self.record()
    }

    fn get(&mut self, from: &StoredTensor, offset: u64, bytes: u64) -> Result<PendingRead, DeviceError> {
        let buffer = &from.slot().buffer;
        let Some(own) = buffer::own(&**buffer, &self.context).filter(|_| is_plain(&**buffer)) else {
            return get_unstaged(self, from, offset, bytes);
        };
        let place = from.place(offset, bytes)?;
        let place = own.address() + place.start..own.address() + place.end;
        let staging = self.take_staging()?;
        let read = self.claim_place(buffer, &place, AccessKind::Read).and_then(|claim| {
            let own_stream = claim.is_none().then_some(&self.stream);
            staging.reads.read(bytes, |block, range| {
                let (at, bytes) = (place.start + range.start, range.end - range.start);
                // SAFETY: `download` asks for bytes of this GPU's memory, checked in `StoredTensor::place`, that stay allocated:
                // buffers wait for transfers when dropped, and the queue keeps this one for its own stream; and for order with
                // work that writes them: `claim_place` says how.
                self.context.give(own_stream, |stream| unsafe { block.download(stream, at, bytes) })
            })
        });
        self.staging = Some(staging);
        Ok(PendingRead::new(self.record()?, Arc::new(read?)))
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, DeviceError> {
        // What the host wrote before is done, too, when the event is.
        self.context.await_arrivals(&self.stream, &mut self.arrivals)?;
        let raw = self.context.note(RawEvent::new(self.context.enter()?))?;
        self.context.note(raw.record(&self.stream))?;
        let (context, pending) = (Arc::clone(&self.context), Arc::clone(&self.pending));
        Ok(Arc::new(CudaEvent { context, raw, pending }))
    }

    fn wait(&mut self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        match event.as_any().downcast_ref::<CudaEvent>() {
            Some(own) => {
                self.context.enter()?;
                self.context.note(self.stream.wait(&own.raw))
            }
            None => event.wait(),
        }
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        let idle = self.context.enter().and_then(|_| {
            let landed = self.uploads.land(&self.stream, |_| true);
            self.context.note(landed.and_then(|()| self.stream.sync()))
        });
        self.in_flight.clear();
        let outcome = idle.and_then(|()| self.pending.first_error());
        self.pending.clear();
        outcome
    }
}

/// Whether tensors lie in a buffer as their descriptions say.
fn is_plain(buffer: &dyn Buffer) -> bool {
    buffer.buffer_type().layout() == MemoryLayout::Plain
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        // What is in flight and staging memory are let go behind the work that needs them.
        if self.context.enter().is_ok() {
            let _ = self.uploads.sync();
            let _ = self.stream.sync();
            let _ = self.context.await_transfers();
        }
    }
}

impl fmt::Debug for CudaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stream of {}", self.context.name)
    }
}
