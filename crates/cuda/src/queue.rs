use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{
    Claims, DeviceError, Event, MemoryLayout, Program, Queue, RunOptions, StoredTensor, copy_claimed,
};
use orlop_graph::AccessKind;

use crate::buffer;
use crate::context::Context;
use crate::event::CudaEvent;
use crate::flights::{AsyncUploads, LEAST_FLIGHT, overlap};
use crate::program::{CudaProgram, Marks};
use crate::sys::Stream;

/// A stream of a card.
pub(crate) struct CudaQueue {
    context: Arc<Context>,
    stream: Stream,
    pending: Arc<Pending>,
    /// Claims of work that may still be going on.
    claims: Vec<Claims>,
    /// Writes of the host that the stream waits for already.
    arrivals: u64,
    flights: AsyncUploads,
}

/// The programs that a queue was given since it was last idle: their marks tell what data was wrong.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<Vec<Arc<Marks>>>);

impl Pending {
    /// The first error that a kernel left a mark of.
    pub(crate) fn first_mark(&self) -> Result<(), DeviceError> {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        marks.iter().try_for_each(|marks| marks.check())
    }

    fn add(&self, marks: &Arc<Marks>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.iter().any(|known| Arc::ptr_eq(known, marks)) {
            list.push(Arc::clone(marks));
        }
    }

    fn clear(&self) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.drain(..).for_each(|marks| marks.clear());
    }
}

impl CudaQueue {
    pub(crate) fn new(context: &Arc<Context>) -> Result<CudaQueue, DeviceError> {
        let driver = context.enter()?;
        let stream = context.note(driver.stream())?;
        let flights =
            context.note(AsyncUploads::new(driver).inspect_err(|_| driver.destroy_stream(stream)))?;
        Ok(CudaQueue {
            context: Arc::clone(context),
            stream,
            pending: Arc::default(),
            claims: Vec::new(),
            arrivals: 0,
            flights,
        })
    }

    fn keep(&mut self, claims: &Claims) {
        self.claims.push(claims.clone());
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
        self.context.await_arrivals(self.stream, &mut self.arrivals)?;
        let driver = self.context.enter()?;
        self.context.note(self.flights.land(driver, self.stream, |places| own.is_at(places)))?;
        self.pending.add(own.marks());
        // SAFETY: `run` asks for claims to all that the program touches, checked above and kept until the stream has
        // come here, and that conflicting work is ordered, which this function's caller promises.
        let run = unsafe { own.run(self.stream) };
        self.keep(claims);
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
        let plain = from.desc() == to.desc() && from.desc().is_contiguous() && !private;
        let (Some(target_own), true) = (buffer::own(target, &self.context), plain) else {
            // Whatever lies otherwise waits for what it may depend on, and goes by way of the host.
            self.sync()?;
            // SAFETY: `lend` asks that no other thread touches these bytes meanwhile, which this function's caller
            // promises.
            let read = unsafe { claims.lend(source, AccessKind::Read) }?;
            // SAFETY: as above.
            let write = unsafe { claims.lend(target, AccessKind::Write) }?;
            return copy_claimed(from, to, [&read, &write]).map(|_| ());
        };
        claims.check(source, AccessKind::Read)?;
        claims.check(target, AccessKind::Write)?;
        self.context.await_arrivals(self.stream, &mut self.arrivals)?;
        let driver = self.context.enter()?;
        let (at, bytes) = (target_own.address() + to.slot().offset, from.desc().bytes());
        if bytes == 0 {
            return Ok(());
        }
        let offset = from.slot().offset;
        let places = at..at + bytes;
        let own_source = buffer::own(source, &self.context).map(|own| own.address() + offset);
        let sources = own_source.map_or(0..0, |from| from..from + bytes);
        let touched = |other: &_| overlap(other, &places) || overlap(other, &sources);
        self.context.note(self.flights.land(driver, self.stream, touched))?;
        let copied = if let Some(from) = own_source {
            driver.copy_async(at, from, bytes, self.stream)
        } else if let Some(other) = buffer::any(source) {
            let ends = [(at, self.context.raw), (other.address() + offset, other.context().raw)];
            driver.copy_peer_async(ends, bytes, self.stream)
        } else if let Some(span) = source.host().filter(|span| offset + bytes <= span.bytes) {
            let place = span.base.as_ptr().wrapping_add(offset as usize);
            if bytes >= LEAST_FLIGHT && !span.writable {
                let source = (&from.slot().buffer, place.cast_const());
                // SAFETY: `start` asks that the bytes stay as they are until they have landed: they are the source's,
                // whose claim is kept until then.
                unsafe { self.flights.start(driver, self.stream, at, source, bytes) }
            } else {
                // SAFETY: `write_async` asks for the same, until the stream has come here.
                unsafe { driver.write_async(at, place, bytes, self.stream) }
            }
        } else {
            let mut bounce = vec![0; bytes as usize];
            // SAFETY: as above.
            let read = unsafe { claims.lend(source, AccessKind::Read) }?;
            source.read(&read, offset, &mut bounce)?;
            self.context.note(driver.sync(self.stream))?;
            self.context.write(at, &bounce)?;
            Ok(())
        };
        self.context.note(copied)?;
        self.keep(claims);
        Ok(())
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, DeviceError> {
        let driver = self.context.enter()?;
        let raw = self.context.note(driver.event())?;
        let event = CudaEvent { context: Arc::clone(&self.context), raw, pending: Arc::clone(&self.pending) };
        self.context.note(driver.record(raw, self.stream))?;
        Ok(Arc::new(event))
    }

    fn wait(&mut self, event: &Arc<dyn Event>) -> Result<(), DeviceError> {
        match event.as_any().downcast_ref::<CudaEvent>() {
            Some(own) => self.context.note(self.context.enter()?.wait(self.stream, own.raw)),
            None => event.wait(),
        }
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        let idle = self.context.enter().and_then(|driver| {
            let landed = self.flights.land(driver, self.stream, |_| true);
            self.context.note(landed.and_then(|()| driver.sync(self.stream)))
        });
        self.claims.clear();
        let outcome = idle.and_then(|()| self.pending.first_mark());
        self.pending.clear();
        outcome
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.enter() {
            self.flights.end(driver);
            let _ = driver.sync(self.stream);
            driver.destroy_stream(self.stream);
        }
    }
}

impl fmt::Debug for CudaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stream of {}", self.context.name)
    }
}
