//! Short ways to graphs and usages, and buffer types that count, refuse and remember.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use orlop_alloc::{
    AllocEvent, ArenaId, ArenaInfo, Flags, MemoryPlan, Misfit, Observer, OverwritePair, StepView, Unread,
    Usage, ValueId, ValueInfo,
};
use orlop_backend::{Buffer, BufferType, Claim, DeviceError, Gate, HostBufferType, HostSpan};
use orlop_graph::{DType, Graph, GraphBuilder, TensorDesc, TensorId};

/// A tensor of a number of bytes.
pub(crate) fn bytes(bytes: u64) -> TensorDesc {
    TensorDesc::contiguous(DType::I8, &[bytes]).expect("a row of bytes")
}

pub(crate) fn input(b: &mut GraphBuilder, name: &str, bytes: u64) -> TensorId {
    b.input(name, DType::I8, &[bytes])
}

/// A node that computes a number of bytes from its operands, never in place.
pub(crate) fn op(b: &mut GraphBuilder, name: &str, inputs: &[TensorId], bytes: u64) -> TensorId {
    let id = b.custom("op", inputs, DType::I8, &[bytes], &[]);
    b.name(id, name)
}

/// A node that may take the place of its first operand.
pub(crate) fn in_place(b: &mut GraphBuilder, name: &str, inputs: &[TensorId], bytes: u64) -> TensorId {
    let id = b.custom("in place", inputs, DType::I8, &[bytes], &[0]);
    b.name(id, name)
}

pub(crate) fn build(b: GraphBuilder) -> Graph {
    b.build().expect("the graph is valid")
}

pub(crate) fn host(alignment: u64, max_bytes: u64) -> Arc<dyn BufferType> {
    HostBufferType::with_limits("host", alignment, max_bytes).expect("a power of two")
}

pub(crate) fn arena(name: &str, alignment: u64, max_chunk: u64) -> ArenaInfo {
    ArenaInfo { name: name.to_owned(), alignment, max_chunk }
}

/// A usage written down by hand, as a reader of foreign graphs does. Sizes stand for layouts.
pub(crate) struct Foreign(pub(crate) Usage);

impl Foreign {
    pub(crate) fn new(unread: Unread) -> Foreign {
        Foreign(Usage::new(vec![arena("arena", 32, u64::MAX)], unread))
    }

    pub(crate) fn flagged(&mut self, name: &str, bytes: u64, flags: Flags) -> ValueId {
        let root = ValueId::new(self.0.values().len());
        self.0.push_value(name, ValueInfo { bytes, root, offset: 0, layout: bytes as u32, flags })
    }

    pub(crate) fn value(&mut self, name: &str, bytes: u64) -> ValueId {
        self.flagged(name, bytes, Flags::default())
    }

    pub(crate) fn leaf(&mut self, name: &str, bytes: u64) -> ValueId {
        let id = self.value(name, bytes);
        self.0.leaves.push((id, ArenaId::new(0)));
        id
    }

    pub(crate) fn view(&mut self, name: &str, root: ValueId, range: Range<u64>) -> ValueId {
        let bytes = range.end - range.start;
        let info =
            ValueInfo { bytes, root, offset: range.start, layout: bytes as u32, flags: Flags::default() };
        self.0.push_value(name, info)
    }

    pub(crate) fn step(&mut self, reads: &[ValueId], writes: &[ValueId]) {
        self.step_with(reads, writes, &[]);
    }

    /// A step whose first write may take the place of some reads.
    pub(crate) fn step_with(&mut self, reads: &[ValueId], writes: &[ValueId], over: &[u32]) {
        let overwrites: Vec<OverwritePair> =
            over.iter().map(|read| OverwritePair { write: 0, read: *read }).collect();
        let group = self.0.step_count() as u32;
        let arena = ArenaId::new(0);
        self.0.push_step(StepView { arena, group, reads, writes, overwrites: &overwrites });
    }

    pub(crate) fn done(self) -> Arc<Usage> {
        Arc::new(self.0)
    }
}

/// Where values lie, in the only chunk.
pub(crate) fn offsets<const N: usize>(plan: &MemoryPlan, values: [ValueId; N]) -> [u64; N] {
    values.map(|value| plan.place(value).expect("it has a place").offset)
}

/// Bytes of two values that are alive together do not meet.
pub(crate) fn apart(plan: &MemoryPlan, a: ValueId, b: ValueId) -> bool {
    let range = |id: ValueId| {
        let place = plan.place(id).expect("it has a place");
        let bytes = plan.usage.value(plan.usage.value(id).root).bytes;
        ((place.arena, place.chunk), place.offset, place.offset + bytes)
    };
    let (a, b) = (range(a), range(b));
    a.0 != b.0 || a.2 <= b.1 || b.2 <= a.1
}

/// What an allocator told its observer, as far as tests ask.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<Note>>>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
    Planned(Option<Misfit>),
    Allocated(String, u64),
    Released(String),
    InPlace(String, bool),
    Grew(u64, u64),
}

impl Notes {
    pub(crate) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.0.lock().expect("no panic under the lock"))
    }

    /// The reasons of the plans made since the last look.
    pub(crate) fn plans(&self) -> Vec<Option<Misfit>> {
        let reason = |note| if let Note::Planned(reason) = note { Some(reason) } else { None };
        self.take().into_iter().filter_map(reason).collect()
    }

    pub(crate) fn observer(&self) -> impl Observer + 'static {
        let notes = Arc::clone(&self.0);
        move |event: &AllocEvent<'_>| {
            let note = match event {
                AllocEvent::Planned { reason, .. } => Note::Planned(reason.cloned()),
                AllocEvent::Allocated { name, place, .. } => {
                    Note::Allocated((*name).to_owned(), place.offset)
                }
                AllocEvent::Released { name, .. } => Note::Released((*name).to_owned()),
                AllocEvent::InPlace { name, verdict, .. } => {
                    Note::InPlace((*name).to_owned(), verdict.is_taken())
                }
                AllocEvent::Grew(grown) => Note::Grew(grown.from, grown.to),
                _ => return,
            };
            notes.lock().expect("no panic under the lock").push(note);
        }
    }
}

/// Host memory that counts what happens to it and can be told to refuse.
#[derive(Debug)]
pub(crate) struct Spy {
    inner: Arc<HostBufferType>,
    alignment: u64,
    state: Arc<State>,
}

/// See [`Spy`]; shared by the type and its buffers.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) allocations: AtomicU64,
    pub(crate) inits: AtomicU64,
    pub(crate) frees: AtomicU64,
    pub(crate) resets: AtomicU64,
    /// Allocations to come before one of more than no bytes is refused; none is if this is 0.
    fail_allocation: AtomicU64,
    fail_init: AtomicU64,
    /// By how many bytes buffers are shorter than asked for.
    pub(crate) short_by: AtomicU64,
    /// How many bytes after an aligned address buffers begin.
    pub(crate) crooked_by: AtomicU64,
    /// How many bytes more than they have tensors take.
    pub(crate) padding: AtomicU64,
}

impl State {
    /// The allocation of bytes after the next `count` fails, once.
    pub(crate) fn fail_allocation_after(&self, count: u64) {
        self.fail_allocation.store(count + 1, Ordering::Relaxed);
    }

    /// The init hook after the next `count` fails, once.
    pub(crate) fn fail_init_after(&self, count: u64) {
        self.fail_init.store(count + 1, Ordering::Relaxed);
    }

    pub(crate) fn count(counter: &AtomicU64) -> u64 {
        counter.swap(0, Ordering::Relaxed)
    }
}

fn counts_down_to_zero(counter: &AtomicU64) -> bool {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.saturating_sub(1), Ordering::Relaxed);
    before == 1
}

impl Spy {
    pub(crate) fn with_state(alignment: u64, max_bytes: u64) -> (Arc<dyn BufferType>, Arc<State>) {
        let state = Arc::new(State::default());
        let inner =
            HostBufferType::with_limits("inner", 64, max_bytes.saturating_add(128)).expect("64 is one");
        (Arc::new(Spy { inner, alignment, state: Arc::clone(&state) }), state)
    }

    fn limit(&self) -> u64 {
        self.inner.max_bytes().saturating_sub(128)
    }
}

impl BufferType for Spy {
    fn name(&self) -> &str {
        "spy"
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn max_bytes(&self) -> u64 {
        self.limit()
    }

    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        tensor.bytes() + self.state.padding.load(Ordering::Relaxed)
    }

    fn is_host(&self) -> bool {
        true
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        if bytes > self.limit() {
            return Err(DeviceError::TooLarge { buffer_type: "spy".to_owned(), bytes, max: self.limit() });
        }
        if bytes > 0 && counts_down_to_zero(&self.state.fail_allocation) {
            return Err(DeviceError::OutOfMemory { buffer_type: "spy".to_owned(), bytes });
        }
        self.state.allocations.fetch_add(1, Ordering::Relaxed);
        let crooked_by = self.state.crooked_by.load(Ordering::Relaxed);
        let inner = Arc::clone(&self.inner).allocate(bytes + crooked_by)?;
        let bytes = bytes.saturating_sub(self.state.short_by.load(Ordering::Relaxed));
        let state = Arc::clone(&self.state);
        Ok(Arc::new(SpyBuffer { buffer_type: self, state, inner, bytes, crooked_by }))
    }
}

#[derive(Debug)]
struct SpyBuffer {
    buffer_type: Arc<dyn BufferType>,
    state: Arc<State>,
    inner: Arc<dyn Buffer>,
    bytes: u64,
    crooked_by: u64,
}

// SAFETY: the memory is part of `inner`'s, which `self` keeps, under its gate.
unsafe impl Buffer for SpyBuffer {
    fn buffer_type(&self) -> &Arc<dyn BufferType> {
        &self.buffer_type
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn gate(&self) -> &Arc<Gate> {
        self.inner.gate()
    }

    fn write(&self, claim: &Claim, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(claim, self.crooked_by + offset, bytes)
    }

    fn read(&self, claim: &Claim, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(claim, self.crooked_by + offset, bytes)
    }

    fn fill(&self, claim: &Claim, range: Range<u64>, value: u8) -> Result<(), DeviceError> {
        let range = self.crooked_by + range.start..self.crooked_by + range.end;
        self.inner.fill(claim, range, value)
    }

    fn init_tensor(&self, _: &TensorDesc, _: u64) -> Result<(), DeviceError> {
        if counts_down_to_zero(&self.state.fail_init) {
            return Err(DeviceError::Lost { device: "spy".to_owned(), reason: "told to".to_owned() });
        }
        self.state.inits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn free_tensor(&self, _: &TensorDesc, _: u64) {
        self.state.frees.fetch_add(1, Ordering::Relaxed);
    }

    fn reset(&self) {
        self.state.resets.fetch_add(1, Ordering::Relaxed);
    }

    fn host(&self) -> Option<HostSpan> {
        let span = self.inner.host()?;
        let base = NonNull::new(span.base.as_ptr().wrapping_add(self.crooked_by as usize))?;
        Some(HostSpan { base, bytes: self.bytes, ..span })
    }
}
