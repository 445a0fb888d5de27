use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use orlop_alloc::Externals;
use orlop_backend::{Cancel, RunOptions, StoredTensor};
use orlop_graph::TensorId;
use orlop_sched::{PlanId, Session, Timeline};

use crate::draft::{Drawn, Mask};
use crate::sequences::{Place, SequenceId, Sequences};
use crate::weights::{self, Kept, Progress};
use crate::{Blueprint, Config, Error, Forecast, Outputs, Shape, Share};

/// A model in memory, ready to run: weights, caches and planned graphs. It remembers the tokens it was fed.
///
/// Calls without a [`SequenceId`] are about [`SequenceId::FIRST`]. With [`Settings::sequences`](crate::Settings) above
/// one, others can be started beside it, each with positions of its own, and fed together.
pub struct Engine {
    blueprint: Blueprint,
    session: Session,
    kept: Kept,
    ready: Vec<Ready>,
    sequences: Sequences,
    items: Vec<Item>,
    places: Vec<Place>,
    numbers: Vec<u8>,
    logits: Vec<f32>,
    cancel: Option<Cancel>,
    /// Runs as they went, if somebody wants to know.
    recorded: Option<Vec<RecordedRun>>,
}

/// A run, as it went.
#[derive(Clone, Debug)]
pub struct RecordedRun {
    /// When it began.
    pub began: Instant,
    /// Tokens that went in.
    pub tokens: usize,
    /// Tokens that were in the cache before.
    pub past: usize,
    /// What each device did when, and what its arena held.
    pub timeline: Timeline,
}

/// A token to be fed.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// Where its sequence is kept.
    slot: usize,
    token: u32,
    /// Which of the parts that are fed together it belongs to, and whether it is the last one there.
    part: usize,
    last: bool,
    /// Its logits come out.
    wanted: bool,
}

/// Graphs that are planned when a model is loaded: a batch, and one token.
const PLANNED: usize = 2;
/// Graphs of other shapes that are kept.
const SHAPES: usize = 16;
/// What a mask says of rows that are not seen, as F16; 0 stands for those that are.
const HIDDEN: [u8; 2] = 0xfc00u16.to_le_bytes();

/// A graph that is prepared.
#[derive(Clone, Debug)]
struct Ready {
    shape: Shape,
    plan: PlanId,
    tokens: TensorId,
    positions: TensorId,
    rows: TensorId,
    seen: TensorId,
    wanted: Option<TensorId>,
    slot: Option<TensorId>,
    masks: Arc<[Mask]>,
    logits: TensorId,
}

impl Ready {
    fn new(shape: Shape, plan: PlanId, drawn: &Drawn) -> Ready {
        let Drawn { tokens, positions, rows, seen, wanted, slot, logits, .. } = *drawn;
        let masks = drawn.masks.as_slice().into();
        Ready { shape, plan, tokens, positions, rows, seen, wanted, slot, masks, logits }
    }
}

impl Engine {
    /// Loads a model as a blueprint says.
    ///
    /// # Errors
    /// What devices refuse; memory that cannot be had.
    pub fn load(blueprint: Blueprint, progress: Progress<'_>) -> Result<Engine, Error> {
        let kept = weights::load(&blueprint, progress)?;
        let session = Session::new(blueprint.machine.clone(), blueprint.session_options())?;
        let sequences = Sequences::new(blueprint.settings.sequences, blueprint.context);
        let mut engine = Engine {
            blueprint,
            session,
            kept,
            ready: Vec::new(),
            sequences,
            items: Vec::new(),
            places: Vec::new(),
            numbers: Vec::new(),
            logits: Vec::new(),
            cancel: None,
            recorded: None,
        };
        for drawn in [engine.blueprint.prompt.clone(), engine.blueprint.decode.clone()] {
            engine.prepare(&drawn)?;
        }
        Ok(engine)
    }

    fn prepare(&mut self, drawn: &Drawn) -> Result<(), Error> {
        let externals = Externals::by_name(&drawn.graph, &self.kept.tensors);
        let plan = self.session.prepare(&drawn.graph, &externals)?;
        let count = |id: TensorId| drawn.graph.tensor(id).desc;
        let shape = Shape { tokens: count(drawn.tokens).extents[0], outputs: count(drawn.logits).extents[1] };
        self.ready.push(Ready::new(shape, plan, drawn));
        Ok(())
    }

    /// The blueprint it was made by.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// The model's sizes and constants.
    pub fn config(&self) -> &Config {
        self.blueprint.model.config()
    }

    /// Tokens of the first sequence in the cache.
    pub fn len(&self) -> usize {
        self.sequences.rows(0).len()
    }

    /// Whether the first sequence was fed nothing yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens of the first sequence behind the first so many, and tells how many are left: none, where a
    /// model keeps a state, which cannot be rewound.
    pub fn truncate(&mut self, len: usize) -> usize {
        self.truncate_slot(0, len)
    }

    fn truncate_slot(&mut self, slot: usize, len: usize) -> usize {
        let whole = len >= self.sequences.rows(slot).len();
        self.sequences.truncate(slot, if self.keeps_states() && !whole { 0 } else { len });
        self.sequences.rows(slot).len()
    }

    /// Starts an empty sequence.
    ///
    /// # Errors
    /// [`Error::TooManySequences`].
    pub fn start_sequence(&mut self) -> Result<SequenceId, Error> {
        self.sequences.start()
    }

    /// Starts a sequence that begins with another one's first `len` tokens, or all of them. No token is fed for it:
    /// both share what the cache holds of these.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::TooManySequences`]; [`Error::NoWayBack`] where a model keeps a state and
    /// not all tokens are wanted.
    pub fn fork_sequence(&mut self, from: SequenceId, len: usize) -> Result<SequenceId, Error> {
        let slot = self.sequences.slot(from)?;
        let tokens = self.sequences.rows(slot).len();
        if self.keeps_states() && len != 0 && len < tokens {
            return Err(Error::NoWayBack { len, tokens });
        }
        let id = self.sequences.fork(from, len)?;
        if self.keeps_states() && len != 0 {
            let copied = self.sequences.slot(id).and_then(|into| self.copy_states(slot, into));
            if let Err(error) = copied {
                self.sequences.end(id)?;
                return Err(error);
            }
        }
        Ok(id)
    }

    /// Ends a sequence and frees what only it used; the first one only becomes empty.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn end_sequence(&mut self, id: SequenceId) -> Result<(), Error> {
        self.sequences.end(id)
    }

    /// Tokens of a sequence in the cache.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn sequence_len(&self, id: SequenceId) -> Result<usize, Error> {
        Ok(self.sequences.rows(self.sequences.slot(id)?).len())
    }

    /// As [`Engine::truncate`], for any sequence.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn truncate_sequence(&mut self, id: SequenceId, len: usize) -> Result<usize, Error> {
        let slot = self.sequences.slot(id)?;
        Ok(self.truncate_slot(slot, len))
    }

    /// Rows of the cache that no sequence uses.
    pub fn free_rows(&self) -> u64 {
        self.blueprint.context - self.sequences.used() as u64
    }

    /// Runs stop when this is thrown.
    pub fn cancel_with(&mut self, cancel: Option<Cancel>) {
        self.cancel = cancel;
    }

    /// Times every run from now on; [`Engine::recorded`] has them.
    pub fn record(&mut self) {
        self.recorded.get_or_insert_default();
    }

    /// The runs since [`Engine::record`].
    pub fn recorded(&self) -> &[RecordedRun] {
        self.recorded.as_deref().unwrap_or_default()
    }

    /// Whether the switch that stops runs is thrown.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// The logits behind the last token that was fed; empty before the first.
    pub fn last_logits(&self) -> &[f32] {
        let row = self.config().vocabulary as usize;
        &self.logits[self.logits.len().saturating_sub(row)..]
    }

    /// Bytes that are allocated on each device now.
    pub fn memory(&self) -> Forecast {
        let compute = |(share, device): (&Share, orlop_sched::DeviceIx)| Share {
            weights: share.weights + self.session.resident_bytes(device),
            compute: self.session.arena_bytes(device),
            ..share.clone()
        };
        let machine = self.session.machine();
        let layout = self.blueprint.layout();
        Forecast {
            context: self.blueprint.context,
            devices: self.kept.shares.iter().zip(machine.indices()).map(compute).collect(),
            layers: machine.indices().map(|device| layout.layers_on(device)).collect(),
        }
    }

    /// Feeds tokens, and gives the logits behind the last of them.
    ///
    /// # Errors
    /// [`Error::ContextFull`], [`Error::UnknownToken`] and [`Error::EmptyPrompt`], which change nothing; what a device
    /// meets: the batches before are kept.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<&[f32], Error> {
        self.feed_each(tokens, &mut |_, _| ())?;
        Ok(self.last_logits())
    }

    /// As [`Engine::feed`]; `each` sees every row of logits that a batch gives ([`Outputs`]), with the position of its
    /// token among those fed.
    ///
    /// # Errors
    /// As there.
    pub fn feed_each(&mut self, tokens: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        self.feed_parts(&[(SequenceId::FIRST, tokens)], &mut |index, _, logits| each(index, logits))
    }

    /// Feeds several sequences at once, in as few runs as batches allow; `each` sees the logits behind the last token
    /// of every part, with the part's index.
    ///
    /// # Errors
    /// As [`Engine::feed`], and [`Error::UnknownSequence`], which changes nothing.
    pub fn feed_together(
        &mut self,
        parts: &[(SequenceId, &[u32])],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        self.feed_parts(parts, &mut |_, item, logits| {
            if item.last {
                each(item.part, logits);
            }
        })
    }

    fn feed_parts(
        &mut self,
        parts: &[(SequenceId, &[u32])],
        each: &mut dyn FnMut(usize, &Item, &[f32]),
    ) -> Result<(), Error> {
        let mut items = mem::take(&mut self.items);
        items.clear();
        let result = self.itemize(parts, &mut items).and_then(|()| self.feed_items(&items, each));
        self.items = items;
        result
    }

    /// Lists tokens, if all can be fed.
    fn itemize(&self, parts: &[(SequenceId, &[u32])], items: &mut Vec<Item>) -> Result<(), Error> {
        let Config { vocabulary, .. } = *self.config();
        let all = self.blueprint.settings.outputs == Outputs::All;
        for (part, (id, tokens)) in parts.iter().enumerate() {
            let slot = self.sequences.slot(*id)?;
            for (index, token) in tokens.iter().copied().enumerate() {
                if u64::from(token) >= vocabulary {
                    return Err(Error::UnknownToken { token, vocabulary });
                }
                let last = index + 1 == tokens.len();
                items.push(Item { slot, token, part, last, wanted: all || last });
            }
        }
        if items.is_empty() || parts.iter().any(|(_, tokens)| tokens.is_empty()) {
            return Err(Error::EmptyPrompt);
        }
        if items.len() as u64 > self.free_rows() {
            let (context, used) = (self.blueprint.context, self.sequences.used());
            return Err(Error::ContextFull { tokens: items.len(), context, used });
        }
        Ok(())
    }

    fn feed_items(
        &mut self,
        items: &[Item],
        each: &mut dyn FnMut(usize, &Item, &[f32]),
    ) -> Result<(), Error> {
        let row = self.config().vocabulary as usize;
        let mut fed = 0;
        while fed < items.len() {
            let rest = &items[fed..];
            // A state is one sequence's; rows of different ones may be filled together.
            let alone = rest.iter().take_while(|item| item.slot == rest[0].slot).count();
            let most = if self.keeps_states() { alone } else { rest.len() };
            let ready = self.fitting(&rest[..most])?;
            let batch = &rest[..ready.shape.tokens as usize];
            self.run(&ready, batch)?;
            for (index, logits) in wanted_of(batch).zip(self.logits.chunks_exact(row)) {
                each(fed + index, &batch[index], logits);
            }
            fed += batch.len();
        }
        Ok(())
    }

    /// Runs one batch.
    fn run(&mut self, ready: &Ready, items: &[Item]) -> Result<(), Error> {
        let mut places = mem::take(&mut self.places);
        places.clear();
        places.extend(items.iter().map(|item| self.sequences.push(item.slot)));
        let result = self.run_at(ready, items, &places);
        if result.is_err() {
            for (item, place) in items.iter().zip(&places) {
                // Nobody knows how far a state has come.
                let kept = if ready.slot.is_some() { 0 } else { place.position as usize };
                if kept < self.sequences.rows(item.slot).len() {
                    self.sequences.truncate(item.slot, kept);
                }
            }
        }
        self.places = places;
        result
    }

    fn run_at(&mut self, ready: &Ready, items: &[Item], places: &[Place]) -> Result<(), Error> {
        let plan = ready.plan;
        self.set(plan, ready.tokens, items.iter().map(|item| item.token))?;
        self.set(plan, ready.positions, places.iter().map(|place| place.position))?;
        self.set(plan, ready.rows, places.iter().map(|place| place.row))?;
        if ready.masks.is_empty() {
            // The only sequence has its tokens in order.
            self.set(plan, ready.seen, places.iter().map(|place| place.position + 1))?;
        } else {
            let end = self.sequences.end_of_rows();
            self.set(plan, ready.seen, places.iter().map(|_| end))?;
        }
        for mask in ready.masks.iter() {
            self.set_mask(plan, mask, items, places)?;
        }
        if let Some(wanted) = ready.wanted {
            self.set(plan, wanted, wanted_of(items).map(|index| index as u32))?;
        }
        if let (Some(input), Some((item, place))) = (ready.slot, items.iter().zip(places).next()) {
            self.set(plan, input, std::iter::once(item.slot as u32))?;
            if place.position == 0 {
                self.clear_states(item.slot)?;
            }
        }
        let threads = Some(self.blueprint.settings.threads);
        let options = RunOptions { threads, cancel: self.cancel.clone(), ..RunOptions::default() };
        match &mut self.recorded {
            None => self.session.run(plan, &options)?,
            Some(recorded) => {
                let (began, tokens) = (Instant::now(), items.len());
                let timeline = self.session.run_timed(plan, &options)?;
                let past = self.sequences.used().saturating_sub(tokens);
                recorded.push(RecordedRun { began, tokens, past, timeline });
            }
        }
        self.logits.resize((ready.shape.outputs * self.config().vocabulary) as usize, 0.0);
        Ok(self.session.get(plan, ready.logits, bytemuck::cast_slice_mut(&mut self.logits))?)
    }

    /// Every token sees its own sequence, up to itself.
    fn set_mask(&mut self, plan: PlanId, mask: &Mask, items: &[Item], places: &[Place]) -> Result<(), Error> {
        let context = self.blueprint.context as usize;
        self.numbers.clear();
        for (item, place) in items.iter().zip(places) {
            let first = self.numbers.len();
            self.numbers.extend(std::iter::repeat_n(HIDDEN, context).flatten());
            let end = place.position as usize + 1;
            let begin = mask.window.map_or(0, |window| end.saturating_sub(window as usize));
            for row in &self.sequences.rows(item.slot)[begin..end] {
                self.numbers[first + *row as usize * HIDDEN.len()..][..HIDDEN.len()].fill(0);
            }
        }
        Ok(self.session.set(plan, mask.input, &self.numbers)?)
    }

    /// Whether the model keeps a state of each sequence instead of rows.
    fn keeps_states(&self) -> bool {
        self.config().state_space.is_some()
    }

    /// What the model keeps of sequences, and the bytes of one.
    fn states(&self) -> impl Iterator<Item = (&StoredTensor, u64)> {
        let Blueprint { decode, settings, .. } = &self.blueprint;
        let is_cache = |name: &str| {
            decode.caches.iter().any(|(cache, _)| decode.graph.tensor(*cache).name.as_str() == name)
        };
        let stored = self.kept.tensors.iter().filter(move |tensor| is_cache(tensor.name()));
        stored.map(|tensor| (tensor, tensor.desc().bytes() / settings.sequences))
    }

    /// A sequence's state as before its first token.
    fn clear_states(&self, slot: usize) -> Result<(), Error> {
        for (states, bytes) in self.states() {
            states.memset(slot as u64 * bytes, bytes, 0)?;
        }
        Ok(())
    }

    fn copy_states(&self, from: usize, into: usize) -> Result<(), Error> {
        let mut copied = Vec::new();
        for (states, bytes) in self.states() {
            copied.resize(bytes as usize, 0);
            states.get(from as u64 * bytes, &mut copied)?;
            states.set(into as u64 * bytes, &copied)?;
        }
        Ok(())
    }

    /// A graph for so many tokens, or the first of them: graphs that were not planned when the model was loaded are
    /// planned when they are first wanted, within the memory there is; where that is too small, for a power of two.
    fn fitting(&mut self, items: &[Item]) -> Result<Ready, Error> {
        let mut tokens = (items.len() as u64).min(self.blueprint.batch());
        loop {
            let outputs = wanted_of(&items[..tokens as usize]).count() as u64;
            if let Some(ready) = self.ready(Shape { tokens, outputs })? {
                return Ok(ready);
            }
            tokens = (tokens - 1).checked_ilog2().map_or(1, |power| 1 << power);
        }
    }

    /// The graph of a shape, if it fits the memory there is.
    fn ready(&mut self, shape: Shape) -> Result<Option<Ready>, Error> {
        if let Some(ready) = self.ready.iter().find(|ready| ready.shape == shape) {
            return Ok(Some(ready.clone()));
        }
        let drawn = self.blueprint.draw_shape(shape)?;
        let externals = Externals::by_name(&drawn.graph, &self.kept.tensors);
        let plan = match self.session.prepare_within(&drawn.graph, &externals) {
            Err(orlop_sched::Error::WouldGrow { .. }) if shape.tokens > 1 => return Ok(None),
            plan => plan?,
        };
        if self.ready.len() >= PLANNED + SHAPES {
            // The first two are those that were planned when the model was loaded.
            let oldest = self.ready.remove(PLANNED);
            self.session.release(oldest.plan)?;
        }
        let ready = Ready::new(shape, plan, &drawn);
        self.ready.push(ready.clone());
        Ok(Some(ready))
    }

    fn set(&mut self, plan: PlanId, input: TensorId, values: impl Iterator<Item = u32>) -> Result<(), Error> {
        self.numbers.clear();
        self.numbers.extend(values.flat_map(u32::to_le_bytes));
        Ok(self.session.set(plan, input, &self.numbers)?)
    }
}

/// Which of the tokens of a batch have their logits come out; if none is wanted, the last one.
fn wanted_of(items: &[Item]) -> impl Iterator<Item = usize> {
    let none = items.iter().all(|item| !item.wanted);
    let wanted = move |(index, item): (usize, &Item)| {
        (item.wanted || none && index + 1 == items.len()).then_some(index)
    };
    items.iter().enumerate().filter_map(wanted)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("session", &self.session)
            .field("context", &self.blueprint.context)
            .field("tokens", &self.len())
            .finish_non_exhaustive()
    }
}
