//! Runs: which tokens go into which graph, and with which inputs.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use orlop_backend::RunOptions;
use orlop_graph::TensorId;
use orlop_sched::PlanId;

use super::{Engine, LogitsRow, Ready, RecordedRun, SHAPES};
use crate::draft::Mask;
use crate::planned_graph::PlannedGraph;
use crate::sequences::RowPosition;
use crate::{BatchShape, Config, Error, Outputs, SequenceId};

/// A token to be fed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// The slot of its sequence.
    slot: usize,
    token: u32,
    /// Which of the parts that are fed together it belongs to, and its position there.
    part: usize,
    index: usize,
    /// Its logits come out.
    wanted: bool,
}

/// Sees rows of logits.
type Each<'a> = &'a mut dyn FnMut(LogitsRow<'_>);

/// What a mask says of rows that are not seen, as F16; 0 stands for those that are.
const HIDDEN: [u8; 2] = 0xfc00u16.to_le_bytes();

impl Engine {
    pub(super) fn feed_runs(
        &mut self,
        parts: &[(SequenceId, &[u32])],
        each: Option<Each<'_>>,
    ) -> Result<(), Error> {
        let mut items = mem::take(&mut self.items);
        items.clear();
        let outputs = self.blueprint.settings.outputs;
        let result = self.itemize(parts, outputs, &mut items).and_then(|()| self.feed_items(&items, each));
        self.items = items;
        result
    }

    pub(super) fn feed_one_run(&mut self, id: SequenceId, tokens: &[u32]) -> Result<usize, Error> {
        let mut items = mem::take(&mut self.items);
        items.clear();
        let result = self.itemize(&[(id, tokens)], Outputs::All, &mut items);
        let result = result.and_then(|()| self.run_first(&items));
        self.items = items;
        result
    }

    /// Lists tokens, if all can be fed.
    fn itemize(
        &self,
        parts: &[(SequenceId, &[u32])],
        outputs: Outputs,
        items: &mut Vec<Item>,
    ) -> Result<(), Error> {
        let Config { vocabulary, .. } = *self.config();
        let all = outputs == Outputs::All;
        for (part, (id, tokens)) in parts.iter().enumerate() {
            let slot = self.sequences.slot(*id)?;
            for (index, token) in tokens.iter().copied().enumerate() {
                if u64::from(token) >= vocabulary {
                    return Err(Error::UnknownToken { token, vocabulary });
                }
                let last = index + 1 == tokens.len();
                items.push(Item { slot, token, part, index, wanted: all || last });
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

    fn feed_items(&mut self, items: &[Item], mut each: Option<Each<'_>>) -> Result<(), Error> {
        let row = self.config().vocabulary as usize;
        let mut fed = 0;
        while fed < items.len() {
            let rest = &items[fed..];
            let batch = &rest[..self.run_first(rest)?];
            if let Some(each) = &mut each {
                for (index, logits) in wanted_of(batch).zip(self.read_logits()?.chunks_exact(row)) {
                    let Item { part, index, wanted, .. } = batch[index];
                    if wanted {
                        each(LogitsRow { part, index, logits });
                    }
                }
            }
            fed += batch.len();
        }
        Ok(())
    }

    /// Runs as many of the first of these tokens as one graph takes.
    fn run_first(&mut self, rest: &[Item]) -> Result<usize, Error> {
        self.left = None;
        // A state belongs to one sequence; rows of several sequences may be filled together.
        let alone = rest.iter().take_while(|item| item.slot == rest[0].slot).count();
        let most = if self.keeps_states() { alone } else { rest.len() };
        let ready = match self.first(&rest[..most])? {
            Some(first) => first,
            None => self.fitting(&rest[..most])?,
        };
        let count = ready.shape.tokens as usize;
        self.run(&ready, &rest[..count])?;
        self.left = Some(ready.left());
        Ok(count)
    }

    /// Runs one batch.
    fn run(&mut self, ready: &Ready, items: &[Item]) -> Result<(), Error> {
        let mut places = mem::take(&mut self.places);
        places.clear();
        places.extend(items.iter().map(|item| self.sequences.push(item.slot)));
        let result = self.run_at(ready, items, &places);
        if result.is_err() {
            for (item, place) in items.iter().zip(&places) {
                // It is unknown how far a state has come.
                let kept = if ready.slot.is_some() { 0 } else { place.position as usize };
                if kept < self.sequences.rows(item.slot).len() {
                    self.sequences.truncate(item.slot, kept);
                }
            }
        }
        self.places = places;
        result
    }

    fn run_at(&mut self, ready: &Ready, items: &[Item], places: &[RowPosition]) -> Result<(), Error> {
        let plan = ready.plan;
        self.set(plan, ready.tokens, items.iter().map(|item| item.token))?;
        self.set(plan, ready.positions, places.iter().map(|place| place.position))?;
        self.set(plan, ready.rows, places.iter().map(|place| place.row))?;
        if ready.masks.is_empty() {
            // The rows of the only sequence are in order.
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
        Ok(())
    }

    /// All rows of logits of the last run, which are read at most once.
    pub(super) fn read_logits(&mut self) -> Result<&[f32], Error> {
        let row = self.config().vocabulary;
        let Some(left) = &mut self.left else { return Ok(&[]) };
        if !left.read {
            self.logits.resize((left.outputs * row) as usize, 0.0);
            self.session.get(left.plan, left.logits, bytemuck::cast_slice_mut(&mut self.logits))?;
            left.read = true;
        }
        Ok(&self.logits)
    }

    /// Every token sees its own sequence, up to itself.
    fn set_mask(
        &mut self,
        plan: PlanId,
        mask: &Mask,
        items: &[Item],
        places: &[RowPosition],
    ) -> Result<(), Error> {
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

    /// A graph that uses pending weights from the mapped file, if there are any and this is the first run. Later they are
    /// loaded or repacked first, because a run with mapped weights takes about as long as repacking them.
    fn first(&mut self, items: &[Item]) -> Result<Option<Ready>, Error> {
        let shape = BatchShape { tokens: items.len() as u64, outputs: wanted_of(items).count() as u64 };
        let pending = self.loaded.pending_names();
        if !pending.is_empty() && self.first.is_none() && shape.tokens <= self.blueprint.batch() {
            let graph = self.blueprint.plan_shape(shape, |weight| pending.contains(&*weight.name))?;
            match self.adopt_within(&graph) {
                Err(orlop_sched::Error::WouldGrow { .. }) => {}
                plan => {
                    let plan = plan?;
                    self.first = Some(plan);
                    return Ok(Some(Ready::new(plan, &graph.graph)));
                }
            }
        }
        self.repack(&mut |_, _| ())?;
        if let Some(first) = self.first.take() {
            self.session.release(first)?;
        }
        Ok(None)
    }

    /// A graph for these tokens, or for the first of them. Graphs of other shapes than the blueprint's are planned when
    /// they are first needed, within the memory that is allocated; if that is too small, for a power of two of tokens.
    fn fitting(&mut self, items: &[Item]) -> Result<Ready, Error> {
        let mut tokens = (items.len() as u64).min(self.blueprint.batch());
        loop {
            let outputs = wanted_of(&items[..tokens as usize]).count() as u64;
            if let Some(ready) = self.ready(BatchShape { tokens, outputs })? {
                return Ok(ready);
            }
            tokens = (tokens - 1).checked_ilog2().map_or(1, |power| 1 << power);
        }
    }

    /// The graph of a shape, if it fits the memory there is.
    fn ready(&mut self, shape: BatchShape) -> Result<Option<Ready>, Error> {
        if let Some(ready) = self.ready.iter().find(|ready| ready.shape == shape) {
            return Ok(Some(ready.clone()));
        }
        let graph = self.blueprint.plan_shape(shape, |_| false)?;
        let plan = match self.adopt_within(&graph) {
            Err(orlop_sched::Error::WouldGrow { .. }) if shape.tokens > 1 => return Ok(None),
            plan => plan?,
        };
        // The first ones were planned when the model was loaded.
        let planned = self.blueprint.graphs().count();
        if self.ready.len() >= planned + SHAPES {
            let oldest = self.ready.remove(planned);
            self.session.release(oldest.plan)?;
        }
        let ready = Ready::new(plan, &graph.graph);
        self.ready.push(ready.clone());
        Ok(Some(ready))
    }

    /// Makes a graph ready within the memory that is allocated.
    fn adopt_within(&mut self, graph: &PlannedGraph) -> Result<PlanId, orlop_sched::Error> {
        let externals = graph.externals(&self.loaded);
        self.session.adopt_within(&graph.graph.graph, &externals, Arc::clone(&graph.planned))
    }

    fn set(&mut self, plan: PlanId, input: TensorId, values: impl Iterator<Item = u32>) -> Result<(), Error> {
        self.numbers.clear();
        self.numbers.extend(values.flat_map(u32::to_le_bytes));
        Ok(self.session.set(plan, input, &self.numbers)?)
    }
}

/// The tokens of a batch whose logits come out; if none is wanted, the last one.
fn wanted_of(items: &[Item]) -> impl Iterator<Item = usize> {
    let none = items.iter().all(|item| !item.wanted);
    let wanted = move |(index, item): (usize, &Item)| {
        (item.wanted || none && index + 1 == items.len()).then_some(index)
    };
    items.iter().enumerate().filter_map(wanted)
}
