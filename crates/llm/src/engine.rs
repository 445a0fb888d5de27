//! A model in memory: loading, sequences, and feeding tokens.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_backend::{Cancel, DeviceError};
use orlop_graph::TensorId;
use orlop_sched::{PlanId, Session, Timeline};

use crate::adapter::finite_scale;
use crate::draft::{GroupInputs, ModelGraph, Router, Tap};
use crate::planned_graph::session_options;
use crate::run_table::RunTables;
use crate::sequences::{SequenceId, Sequences};
use crate::weights::{self, LoadedTensors, Progress};
use crate::{BatchShape, Blueprint, Config, Error, Forecast, ImportanceSums, LoraError, Outputs};

mod experts;
mod failure;
mod importance;
mod page_use;
mod parts;
mod run;
pub(crate) mod saved;
mod shapes;
mod states;

pub use failure::{RunFailure, SequenceLeft};
pub use page_use::PagePoolUse;
pub use parts::{LogitsRow, Part, Row, RunRows, Wanted};
use run::Item;
pub use saved::StateError;

/// A model in memory, ready to run: weights, caches and planned graphs. It keeps the keys and values of the tokens that
/// it was fed.
///
/// - [`generate`](crate::generate()) and [`Chat`](crate::Chat) feed a prompt and make text.
/// - [`Engine::feed`] feeds tokens; [`Engine::last_best`] and [`Engine::last_logits`] tell what follows.
/// - [`Engine::feed_parts`] feeds several sequences together, and gives every row of logits that was asked for. What is in
///   use of the cache say [`Engine::page_pools`] and [`Engine::pages_needed`].
///
/// Calls without a [`SequenceId`] are about [`SequenceId::FIRST`]. With [`Settings::sequences`](crate::Settings) above
/// one, others can be started beside it, each with positions of its own, and fed together.
pub struct Engine {
    blueprint: Blueprint,
    session: Session,
    loaded: LoadedTensors,
    ready: Vec<Ready>,
    /// Which of them takes which tokens.
    runs: RunTables,
    sequences: Sequences,
    items: Vec<Item>,
    rows: Vec<Row>,
    /// Tokens of each slot before a call.
    lens: Vec<usize>,
    positions: Vec<u32>,
    pages: Vec<u32>,
    /// The slots of a run's sequences.
    slots: Vec<usize>,
    numbers: Vec<u8>,
    /// The name of parts of caches while they are copied.
    piece_name: Arc<str>,
    /// Factors of the adapters' changes.
    adapter_scales: Vec<f32>,
    /// Logits as they were read last.
    logits: Vec<f32>,
    /// Results of the last run; nothing before the first, and after one that failed.
    left: Option<LastRun>,
    /// The graph of the first run, if it used weights from the mapped file.
    first: Option<PlanId>,
    repacking: Duration,
    cancel: Option<Cancel>,
    /// Timelines of runs, if they are recorded.
    recorded: Option<Vec<RecordedRun>>,
    /// What matrices were multiplied with, if that is summed.
    importance: ImportanceSums,
}

/// What happened in a run.
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

/// A graph that is ready to run.
#[derive(Clone, Debug)]
struct Ready {
    shape: BatchShape,
    plan: PlanId,
    tokens: TensorId,
    positions: TensorId,
    seen: TensorId,
    sequences: TensorId,
    groups: Arc<[GroupInputs]>,
    wanted: Option<TensorId>,
    slot: Option<TensorId>,
    query_factors: Option<TensorId>,
    adapter_scales: Option<TensorId>,
    taps: Arc<[Tap]>,
    /// What is counted of the experts that tokens choose.
    routers: Arc<[Router]>,
    logits: TensorId,
    best: TensorId,
}

/// Results of a run, which stay in device memory until the next one.
#[derive(Clone, Copy, Debug)]
struct LastRun {
    plan: PlanId,
    /// The row behind the last token.
    last: usize,
    /// Rows are those of the tokens whose logits are wanted, not of all tokens.
    gathered: bool,
    logits: TensorId,
    best: TensorId,
    /// The logits were read.
    read: bool,
}

impl Ready {
    fn new(plan: PlanId, graph: &ModelGraph) -> Ready {
        let ModelGraph { shape, tokens, positions, seen, sequences, wanted, slot, logits, best, .. } = *graph;
        let ModelGraph { query_factors, adapter_scales, .. } = *graph;
        let (groups, taps) = (graph.groups.as_slice().into(), graph.taps.as_slice().into());
        let routers = graph.routers.as_slice().into();
        Ready {
            shape,
            plan,
            tokens,
            positions,
            seen,
            sequences,
            groups,
            wanted,
            slot,
            query_factors,
            adapter_scales,
            taps,
            routers,
            logits,
            best,
        }
    }

    /// What is left behind a run whose last token has this row of logits.
    fn left(&self, last: usize) -> LastRun {
        let Ready { plan, logits, best, .. } = *self;
        let gathered = self.wanted.is_some();
        LastRun { plan, last, gathered, logits, best, read: false }
    }
}

impl Engine {
    /// Loads a model as a blueprint says. Pending weights are repacked or copied before the second run
    /// ([`Engine::repack`]).
    ///
    /// # Errors
    /// What devices refuse; memory that cannot be had.
    pub fn load(blueprint: Blueprint, progress: Progress<'_>) -> Result<Engine, Error> {
        if let Outputs::Texts(_) = blueprint.settings.outputs {
            let rule = "an embedder gives rows of texts";
            return Err(Error::BadSetting {
                setting: "the outputs",
                value: "rows of texts".to_owned(),
                rule,
            });
        }
        let loaded = weights::load(&blueprint, progress)?;
        let session = Session::new(blueprint.machine.clone(), session_options(&blueprint.settings))?;
        let sizes = blueprint.cache_sizes();
        let sequences = Sequences::new(&sizes, &sizes.groups(blueprint.model.config()));
        let adapter_scales = blueprint.model.adapters().iter().map(|adapter| adapter.scale).collect();
        let (runs, slots) = (blueprint.run_tables(), Vec::with_capacity(sizes.sequences as usize));
        let mut engine = Engine {
            blueprint,
            session,
            loaded,
            ready: Vec::new(),
            runs,
            sequences,
            items: Vec::new(),
            rows: Vec::new(),
            lens: Vec::new(),
            positions: Vec::new(),
            pages: Vec::new(),
            slots,
            numbers: Vec::new(),
            piece_name: "part of a cache".into(),
            adapter_scales,
            logits: Vec::new(),
            left: None,
            first: None,
            repacking: Duration::ZERO,
            cancel: None,
            recorded: None,
            importance: ImportanceSums::default(),
        };
        engine.ready_shapes()?;
        Ok(engine)
    }

    /// The blueprint it was made by.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// The model's sizes and constants.
    pub fn config(&self) -> &Config {
        self.blueprint.model.config()
    }

    /// The factors of the adapters' changes, in the order of the model's adapters.
    pub fn adapter_scales(&self) -> &[f32] {
        &self.adapter_scales
    }

    /// Sets the factor of an adapter's changes, for all tokens that are fed from now on: 0 turns it off. What was fed stays
    /// in the cache as it was computed.
    ///
    /// # Errors
    /// [`Error::Adapter`] for an adapter that the model does not have, or a factor that is no finite number.
    pub fn set_adapter_scale(&mut self, adapter: usize, scale: f32) -> Result<(), Error> {
        let count = self.adapter_scales.len();
        let known = self.adapter_scales.get_mut(adapter);
        let known = known.ok_or(LoraError::NoSuchAdapter { index: adapter, count })?;
        *known = finite_scale(scale)?;
        Ok(())
    }

    /// Tokens of the first sequence in the cache.
    pub fn len(&self) -> usize {
        self.sequences.len(0)
    }

    /// Whether the first sequence was fed nothing yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all tokens of the first sequence but the first `len`, and returns how many are left: none, if the model
    /// keeps a state, which cannot be rewound, or a window whose rows are gone.
    pub fn truncate(&mut self, len: usize) -> usize {
        self.truncate_slot(0, len)
    }

    fn truncate_slot(&mut self, slot: usize, len: usize) -> usize {
        let whole = len >= self.sequences.len(slot);
        self.sequences.truncate(slot, if self.keeps_states() && !whole { 0 } else { len })
    }

    /// Starts an empty sequence.
    ///
    /// # Errors
    /// [`Error::TooManySequences`].
    pub fn start_sequence(&mut self) -> Result<SequenceId, Error> {
        self.sequences.start()
    }

    /// Starts a sequence that begins with another one's first `len` tokens, or all of them. No token is fed for it:
    /// both share the pages of the cache that hold these, and one page is copied before it is written.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::TooManySequences`]; [`Error::NoWayBack`] where a model keeps a state or a window
    /// and not all tokens are wanted.
    pub fn fork_sequence(&mut self, from: SequenceId, len: usize) -> Result<SequenceId, Error> {
        let slot = self.sequences.slot(from)?;
        let tokens = self.sequences.len(slot);
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
        Ok(self.sequences.len(self.sequences.slot(id)?))
    }

    /// As [`Engine::truncate`], for any sequence.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn truncate_sequence(&mut self, id: SequenceId, len: usize) -> Result<usize, Error> {
        let slot = self.sequences.slot(id)?;
        Ok(self.truncate_slot(slot, len))
    }

    /// Tokens that can still be fed to a sequence.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn room(&self, id: SequenceId) -> Result<u64, Error> {
        Ok(self.sequences.room(self.sequences.slot(id)?))
    }

    /// Pages of the cache, of [`PAGE_ROWS`](crate::PAGE_ROWS) rows each, that no sequence uses; none in models that keep no
    /// rows.
    pub fn free_pages(&self) -> u64 {
        self.sequences.free_pages().unwrap_or(0) as u64
    }

    /// Loads or repacks the weights that are pending. The first run does not wait for it, and uses them from the mapped
    /// file; the second run does it before it begins. Call it earlier to use idle time, or to measure runs alone.
    ///
    /// # Errors
    /// [`DeviceError::Cancelled`], and what a device meets: what is repacked stays so, and the rest stays pending.
    pub fn repack(&mut self, progress: Progress<'_>) -> Result<(), Error> {
        if self.loaded.pending.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        let (steps, all) = (self.loaded.pending.len(), self.loaded.pending_bytes());
        let mut result = Ok(());
        while !self.loaded.pending.is_empty() && result.is_ok() {
            let step = steps - self.loaded.pending.len();
            result = match self.is_cancelled() {
                true => Err(DeviceError::Cancelled { step, steps }.into()),
                false => self.loaded.load_one(&self.blueprint),
            };
            progress(all - self.loaded.pending_bytes(), all);
        }
        self.repacking += begin.elapsed();
        result
    }

    /// Time that was spent on repacking weights.
    pub fn repacking_time(&self) -> Duration {
        self.repacking
    }

    /// Sets the switch that stops runs.
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

    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.cancel.as_ref()
    }

    /// Whether the switch that stops runs is set.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// The logits behind the last token that was fed. They are read when they are first asked for.
    ///
    /// # Errors
    /// [`Error::NoLogits`] before the first run, and after one that failed; what a device meets.
    pub fn last_logits(&mut self) -> Result<&[f32], Error> {
        let LastRun { last, .. } = self.left.ok_or(Error::NoLogits)?;
        self.logits_at(last)
    }

    /// The logits behind a token of the last run, which gives those of all its tokens ([`Engine::feed_verify`]).
    ///
    /// # Errors
    /// [`Error::NoLogits`] if there are no such logits; what a device meets.
    pub fn logits_at(&mut self, index: usize) -> Result<&[f32], Error> {
        let row = self.config().vocabulary as usize;
        self.left.filter(|left| index <= left.last).ok_or(Error::NoLogits)?;
        Ok(&self.read_logits()?[index * row..][..row])
    }

    /// The likeliest token behind a token of the last run, as [`Engine::logits_at`]. The device computes it, and no logits are
    /// read.
    ///
    /// # Errors
    /// As [`Engine::logits_at`].
    pub fn best_at(&mut self, index: usize) -> Result<u32, Error> {
        self.left.filter(|left| index <= left.last).ok_or(Error::NoLogits)?;
        self.read_best()?;
        Ok(u32::from_le_bytes(self.numbers.as_chunks().0[index]))
    }

    /// The likeliest token behind the last one that was fed, which a greedy [`Sampler`](crate::Sampler) takes. The device
    /// computes it, and no logits are read.
    ///
    /// # Errors
    /// [`Error::NoLogits`] if there are no logits; what a device meets.
    pub fn last_best(&mut self) -> Result<u32, Error> {
        let left = self.left.ok_or(Error::NoLogits)?;
        self.best_at(left.last)
    }

    /// Bytes that are allocated on each device now.
    pub fn memory(&self) -> Forecast {
        self.loaded.memory(&self.blueprint, &self.session)
    }

    /// Checks that splits that touch the same bytes wait for each other, in every graph that is ready
    /// ([`Session::check_races`]).
    ///
    /// # Errors
    /// The first pair that does not.
    pub fn check_races(&self) -> Result<(), Error> {
        let mut plans = self.ready.iter().map(|ready| ready.plan).chain(self.first);
        Ok(plans.try_for_each(|plan| self.session.check_races(plan))?)
    }

    /// Feeds tokens to the first sequence, in as few runs as batches allow. Nothing is read: [`Engine::last_best`] and
    /// [`Engine::last_logits`] do that.
    ///
    /// # Errors
    /// [`Error::ContextFull`], [`Error::NoPages`], [`Error::UnknownToken`] and [`Error::EmptyPrompt`], which change nothing;
    /// [`Error::RunFailed`]: the batches before are kept.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<(), Error> {
        self.feed_parts(&[Part::last(SequenceId::FIRST, tokens)], &mut |_| Ok(()))
    }

    /// Feeds several sequences together: chunks of prompts and generated tokens, in any mixture. It takes one run, or more
    /// where there are more tokens than a batch takes or more rows wanted than a run gives ([`Engine::max_rows`]). `each` sees
    /// the wanted rows of logits after every run, in the order of the parts, and reads what it needs of them.
    ///
    /// A server admits a request if [`Engine::pages_needed`] of its tokens are free, forks the sequence that begins alike,
    /// and mixes the rest of the prompt, in chunks, with the next tokens of the others:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use orlop_cpu::{CpuDevice, ThreadPool};
    /// # use orlop_gguf::{GgufFile, GgufPart};
    /// # use orlop_llm::{Blueprint, Engine, Model, Part, PAGE_ROWS, SequenceId, Settings, Synth};
    /// # use orlop_sched::Machine;
    /// # let synth = Synth { vocabulary: 300, context: 512, ..Synth::default() };
    /// # let file = GgufPart::from_bytes(Arc::new(synth.bytes()?))?;
    /// # let model = Model::from_file(GgufFile::from_file(file))?;
    /// # let machine = Machine::new(vec![CpuDevice::new(ThreadPool::new(1)?) as _])?;
    /// let settings = Settings { context: Some(512), sequences: 4, batch: 64, ..Settings::default() };
    /// let mut engine = Engine::load(Blueprint::plan(&model, &machine, &settings)?, &mut |_, _| ())?;
    /// let first = engine.start_sequence()?;
    /// let prompt: Vec<u32> = (0..100).collect();
    /// assert_eq!(engine.pages_needed(&[(first, prompt.len())])?, 100_u64.div_ceil(PAGE_ROWS));
    ///
    /// // Only the last chunk of a prompt gives logits.
    /// engine.feed_parts(&[Part::silent(first, &prompt[..60])], &mut |_| Ok(()))?;
    /// let mut next = 0;
    /// engine.feed_parts(&[Part::last(first, &prompt[60..])], &mut |mut rows| {
    ///     next = rows.best()?.next().map_or(0, |(_, token)| token);
    ///     Ok(())
    /// })?;
    ///
    /// // Another prompt begins with the same 80 tokens: they are not fed again, and share pages.
    /// let second = engine.fork_sequence(first, 80)?;
    /// assert_eq!(engine.page_pools().map(|pool| pool.shared).sum::<u64>(), 2);
    /// engine.feed_parts(&[Part::last(first, &[next]), Part::last(second, &[7, 8, 9])], &mut |mut rows| {
    ///     for row in rows.logits()? {
    ///         assert_eq!(row.logits.len(), 300); // a sampler takes a token from them
    ///     }
    ///     Ok(())
    /// })?;
    ///
    /// // A request was cancelled. The others go on.
    /// engine.end_sequence(first)?;
    /// assert_eq!(engine.sequence_len(second)?, 83);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Engine::feed`], and [`Error::UnknownSequence`], which changes nothing. What `each` returns ends the call, as an
    /// error of a device does ([`Error::RunFailed`]).
    pub fn feed_parts(
        &mut self,
        parts: &[Part<'_>],
        each: &mut dyn FnMut(RunRows<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.feed_runs(parts, each)
    }

    /// Feeds tokens in one run that gives the logits behind each of them ([`Engine::logits_at`]), and returns how many
    /// it fed: all, if the run's shape is planned ([`Settings::draft`](crate::Settings)) or fits the memory there is,
    /// else the first of them.
    ///
    /// # Errors
    /// As [`Engine::feed_parts`].
    pub fn feed_verify(&mut self, id: SequenceId, tokens: &[u32]) -> Result<usize, Error> {
        self.feed_one_run(id, tokens)
    }
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
