use std::fmt;
use std::time::Instant;

use orlop_alloc::Externals;
use orlop_backend::{Cancel, RunOptions};
use orlop_graph::TensorId;
use orlop_sched::{PlanId, Session, Timeline};

use crate::draft::Drawn;
use crate::weights::{self, Kept, Progress};
use crate::{Blueprint, Config, Error, Forecast, Outputs, Shape, Share};

/// A model in memory, ready to run: weights, caches and planned graphs. It remembers the tokens it was fed.
pub struct Engine {
    blueprint: Blueprint,
    session: Session,
    kept: Kept,
    ready: Vec<Ready>,
    past: usize,
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

/// Graphs that are planned when a model is loaded: a batch, and one token.
const PLANNED: usize = 2;
/// Graphs of other shapes that are kept.
const SHAPES: usize = 16;

/// A graph that is prepared.
#[derive(Clone, Copy, Debug)]
struct Ready {
    shape: Shape,
    plan: PlanId,
    tokens: TensorId,
    positions: TensorId,
    rows: TensorId,
    seen: TensorId,
    wanted: Option<TensorId>,
    slot: Option<TensorId>,
    logits: TensorId,
}

impl Ready {
    fn new(shape: Shape, plan: PlanId, drawn: &Drawn) -> Ready {
        let Drawn { tokens, positions, rows, seen, wanted, slot, logits, .. } = *drawn;
        Ready { shape, plan, tokens, positions, rows, seen, wanted, slot, logits }
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
        let mut engine = Engine {
            blueprint,
            session,
            kept,
            ready: Vec::new(),
            past: 0,
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

    /// Tokens in the cache.
    pub fn len(&self) -> usize {
        self.past
    }

    /// Whether it was fed nothing yet.
    pub fn is_empty(&self) -> bool {
        self.past == 0
    }

    /// Forgets all tokens behind the first so many.
    pub fn truncate(&mut self, len: usize) {
        self.past = self.past.min(len);
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
        let row = self.config().vocabulary as usize;
        Ok(&self.logits[self.logits.len() - row..])
    }

    /// As [`Engine::feed`]; `each` sees every row of logits that a batch gives ([`Outputs`]), with the position of its
    /// token among those fed.
    ///
    /// # Errors
    /// As there.
    pub fn feed_each(&mut self, tokens: &[u32], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        let Config { vocabulary, .. } = *self.config();
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if let Some(token) = tokens.iter().find(|token| u64::from(**token) >= vocabulary) {
            return Err(Error::UnknownToken { token: *token, vocabulary });
        }
        let (context, used) = (self.blueprint.context, self.past);
        if tokens.len() as u64 > context - used as u64 {
            return Err(Error::ContextFull { tokens: tokens.len(), context, used });
        }
        let mut fed = 0;
        while fed < tokens.len() {
            let ready = self.fitting((tokens.len() - fed) as u64)?;
            let batch = &tokens[fed..fed + ready.shape.tokens as usize];
            self.run(ready, batch)?;
            fed += batch.len();
            let first = fed - ready.shape.outputs as usize;
            for (row, logits) in self.logits.chunks_exact(vocabulary as usize).enumerate() {
                each(first + row, logits);
            }
        }
        Ok(())
    }

    /// Runs one batch.
    fn run(&mut self, ready: Ready, tokens: &[u32]) -> Result<(), Error> {
        let Shape { tokens: count, outputs } = ready.shape;
        let past = self.past as u32;
        self.set(ready.plan, ready.tokens, tokens.iter().copied())?;
        self.set(ready.plan, ready.positions, past..past + count as u32)?;
        self.set(ready.plan, ready.rows, past..past + count as u32)?;
        self.set(ready.plan, ready.seen, past + 1..=past + count as u32)?;
        if let Some(wanted) = ready.wanted {
            self.set(ready.plan, wanted, (count - outputs) as u32..count as u32)?;
        }
        if let Some(slot) = ready.slot {
            self.set(ready.plan, slot, std::iter::once(0))?;
            if past == 0 {
                self.clear_states()?;
            }
        }
        let threads = Some(self.blueprint.settings.threads);
        let options = RunOptions { threads, cancel: self.cancel.clone(), ..RunOptions::default() };
        match &mut self.recorded {
            None => self.session.run(ready.plan, &options)?,
            Some(recorded) => {
                let began = Instant::now();
                let timeline = self.session.run_timed(ready.plan, &options)?;
                recorded.push(RecordedRun { began, tokens: tokens.len(), past: self.past, timeline });
            }
        }
        self.logits.resize((outputs * self.config().vocabulary) as usize, 0.0);
        self.session.get(ready.plan, ready.logits, bytemuck::cast_slice_mut(&mut self.logits))?;
        self.past += tokens.len();
        Ok(())
    }

    /// What a model keeps instead of rows, as before the first token.
    fn clear_states(&self) -> Result<(), Error> {
        let caches = &self.blueprint.decode.caches;
        for (cache, _) in caches {
            let name = &self.blueprint.decode.graph.tensor(*cache).name;
            for state in self.kept.tensors.iter().filter(|tensor| tensor.name() == name.as_str()) {
                state.memset(0, state.desc().bytes(), 0)?;
            }
        }
        Ok(())
    }

    /// A graph for so many tokens, or fewer: graphs that were not planned when the model was loaded are planned when
    /// they are first wanted, within the memory there is; where that is too small, for a power of two.
    fn fitting(&mut self, tokens: u64) -> Result<Ready, Error> {
        let mut tokens = tokens.min(self.blueprint.batch());
        loop {
            let outputs = if self.blueprint.settings.outputs == Outputs::All { tokens } else { 1 };
            if let Some(ready) = self.ready(Shape { tokens, outputs })? {
                return Ok(ready);
            }
            tokens = (tokens - 1).checked_ilog2().map_or(1, |power| 1 << power);
        }
    }

    /// The graph of a shape, if it fits the memory there is.
    fn ready(&mut self, shape: Shape) -> Result<Option<Ready>, Error> {
        if let Some(ready) = self.ready.iter().find(|ready| ready.shape == shape) {
            return Ok(Some(*ready));
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
        self.ready.push(ready);
        Ok(Some(ready))
    }

    fn set(&mut self, plan: PlanId, input: TensorId, values: impl Iterator<Item = u32>) -> Result<(), Error> {
        self.numbers.clear();
        self.numbers.extend(values.flat_map(u32::to_le_bytes));
        Ok(self.session.set(plan, input, &self.numbers)?)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("session", &self.session)
            .field("context", &self.blueprint.context)
            .field("tokens", &self.past)
            .finish_non_exhaustive()
    }
}
