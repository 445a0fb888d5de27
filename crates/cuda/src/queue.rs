use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{Claims, DeviceError, Event, Program, Queue, RunOptions, StoredTensor, copy_claimed};
use orlop_graph::AccessKind;

use crate::buffer;
use crate::context::Context;
use crate::event::CudaEvent;
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
        let stream = context.note(context.enter()?.stream())?;
        Ok(CudaQueue {
            context: Arc::clone(context),
            stream,
            pending: Arc::default(),
            claims: Vec::new(),
            arrivals: 0,
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
        let plain = from.desc() == to.desc() && from.desc().is_contiguous();
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
        let copied = if let Some(own) = buffer::own(source, &self.context) {
            driver.copy_async(at, own.address() + offset, bytes, self.stream)
        } else if let Some(other) = buffer::any(source) {
            let ends = [(at, self.context.raw), (other.address() + offset, other.context().raw)];
            driver.copy_peer_async(ends, bytes, self.stream)
        } else if let Some(span) = source.host().filter(|span| offset + bytes <= span.bytes) {
            let place = span.base.as_ptr().wrapping_add(offset as usize);
            // SAFETY: `write_async` asks that the bytes stay as they are until the stream has come here: they are the
            // source's, whose claim is kept until then.
            unsafe { driver.write_async(at, place, bytes, self.stream) }
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
        let idle = self.context.enter().and_then(|driver| self.context.note(driver.sync(self.stream)));
        self.claims.clear();
        let outcome = idle.and_then(|()| self.pending.first_mark());
        self.pending.clear();
        outcome
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.enter() {
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
