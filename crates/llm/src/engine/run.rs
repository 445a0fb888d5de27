//! Runs: which tokens go into which graph, and with which inputs.

use std::sync::Arc;
use std::time::Instant;
use std::{iter, mem};

use orlop_backend::RunOptions;
use orlop_graph::TensorId;
use orlop_sched::{PlanId, Session};

use super::parts::{Part, Row, RunRows, Wanted};
use super::{Engine, LastRun, Ready, RecordedRun};
use crate::planned_graph::PlannedGraph;
use crate::{BatchShape, Config, Error, SequenceId};

/// A token to be fed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// The slot of its sequence.
    pub(super) slot: usize,
    token: u32,
    /// Which of the parts that are fed together it belongs to, and its position there.
    part: usize,
    index: usize,
    /// Its logits come out.
    pub(super) wanted: bool,
}

/// A row index that writes nothing.
const NO_ROW: u32 = -1i32 as u32;

impl Engine {
    pub(super) fn feed_runs(
        &mut self,
        parts: &[Part<'_>],
        each: &mut dyn FnMut(RunRows<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.with_items(parts, |engine, items| {
            let mut fed = 0;
            while fed < items.len() {
                let rest = &items[fed..];
                let batch = &rest[..engine.run_first(rest, Engine::next_shape)?];
                engine.see_rows(batch, each)?;
                fed += batch.len();
            }
            Ok(())
        })
    }

    pub(super) fn feed_one_run(&mut self, id: SequenceId, tokens: &[u32]) -> Result<usize, Error> {
        let verify = |engine: &mut Engine, items: &[Item]| engine.run_first(items, Engine::verified_shape);
        self.with_items(&[Part::all(id, tokens)], verify)
    }

    /// Runs tokens, if all can be fed; says what is left of the sequences if that fails.
    fn with_items<T>(
        &mut self,
        parts: &[Part<'_>],
        run: impl FnOnce(&mut Engine, &[Item]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mut items, mut lens) = (mem::take(&mut self.items), mem::take(&mut self.lens));
        items.clear();
        lens.clear();
        let result = match self.itemize(parts, &mut items) {
            Ok(()) => {
                lens.extend(self.sequences.lens());
                run(self, &items).map_err(|cause| self.failure(&items, &lens, cause))
            }
            Err(refused) => Err(refused),
        };
        (self.items, self.lens) = (items, lens);
        result
    }

    /// Lists tokens, if all can be fed.
    fn itemize(&self, parts: &[Part<'_>], items: &mut Vec<Item>) -> Result<(), Error> {
        let Config { vocabulary, .. } = *self.config();
        for (part, Part { sequence, tokens, wanted }) in parts.iter().enumerate() {
            let slot = self.sequences.slot(*sequence)?;
            for (index, token) in tokens.iter().copied().enumerate() {
                if u64::from(token) >= vocabulary {
                    return Err(Error::UnknownToken { token, vocabulary });
                }
                let wanted = match wanted {
                    Wanted::Nothing => false,
                    Wanted::Last => index + 1 == tokens.len(),
                    Wanted::All => true,
                };
                items.push(Item { slot, token, part, index, wanted });
            }
        }
        if items.is_empty() || parts.iter().any(|part| part.tokens.is_empty()) {
            return Err(Error::EmptyPrompt);
        }
        self.sequences.check_room(|slot| items.iter().filter(|item| item.slot == slot).count())
    }

    /// Shows the rows of the last run that are wanted.
    fn see_rows(
        &mut self,
        batch: &[Item],
        each: &mut dyn FnMut(RunRows<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let gathered = self.left.is_some_and(|left| left.gathered);
        let mut rows = mem::take(&mut self.rows);
        rows.clear();
        let wanted = wanted_of(batch).enumerate().filter(|(_, index)| batch[*index].wanted);
        rows.extend(wanted.map(|(number, item)| {
            let Item { part, index, .. } = batch[item];
            Row { part, index, place: if gathered { number } else { item } }
        }));
        let seen = if rows.is_empty() { Ok(()) } else { each(RunRows { engine: self, rows: &rows }) };
        self.rows = rows;
        seen
    }

    /// Runs as many of the first of these tokens as one graph takes.
    fn run_first(
        &mut self,
        rest: &[Item],
        shape_of: impl Fn(&Engine, &[Item]) -> (usize, usize),
    ) -> Result<usize, Error> {
        self.left = None;
        // A state belongs to one sequence, and skips no token; rows of several sequences may be filled together.
        let alone = rest.iter().take_while(|item| item.part == rest[0].part).count();
        let most = if self.keeps_states() { alone } else { rest.len() };
        let (ready, taken) = match self.first(&rest[..most])? {
            Some(first) => (first, most),
            None => {
                let (shape, taken) = shape_of(self, &rest[..most]);
                (self.ready[shape].clone(), taken)
            }
        };
        let batch = &rest[..taken];
        self.run(&ready, batch)?;
        self.sum_inputs(&ready)?;
        let rows = if ready.wanted.is_some() { wanted_of(batch).count() } else { batch.len() };
        self.count_experts(&ready, batch.len(), rows)?;
        self.left = Some(ready.left(rows - 1));
        Ok(batch.len())
    }

    /// Runs one batch.
    fn run(&mut self, ready: &Ready, items: &[Item]) -> Result<(), Error> {
        let mut positions = mem::take(&mut self.positions);
        positions.clear();
        self.sequences.trim();
        let placed = self.place(items, &mut positions);
        let placed = placed.and_then(|()| self.set_inputs(ready, items, &positions));
        let began = placed.is_ok();
        let result = placed.and_then(|()| self.execute(ready.plan, items.len()));
        // Weights that could not be read were zeros.
        let result = result.and_then(|()| Ok(self.blueprint.model.file().check_readable()?));
        if result.is_err() {
            for (item, position) in items.iter().zip(&positions).rev() {
                // It is unknown how far a run has brought a state.
                let kept = if began && ready.slot.is_some() { 0 } else { *position as usize };
                self.sequences.truncate(item.slot, kept);
            }
        }
        self.positions = positions;
        result
    }

    /// Makes room in the cache for tokens, and notes their positions.
    fn place(&mut self, items: &[Item], positions: &mut Vec<u32>) -> Result<(), Error> {
        let pushed = items.iter().try_for_each(|item| {
            positions.push(self.sequences.push(item.slot)?);
            Ok(())
        });
        let mut copied = Ok(());
        while let Some(copy) = self.sequences.next_copy() {
            copied = copied.and_then(|()| self.copy_page(copy));
            if copied.is_err() {
                self.sequences.undo_copy(copy);
            }
        }
        pushed.and(copied)
    }

    fn set_inputs(&mut self, ready: &Ready, items: &[Item], positions: &[u32]) -> Result<(), Error> {
        let (plan, tokens) = (ready.plan, ready.shape.tokens as usize);
        let each = self.blueprint.cache_sizes().pages_of_sequence() as usize;
        let Engine { session, numbers, sequences, pages, slots, .. } = self;
        // Tables of pages have a row for each sequence of the run, and as many as a run of this shape can have.
        let rows = tokens.min(self.blueprint.settings.sequences as usize);
        let together = || items.chunk_by(|one, next| one.slot == next.slot);
        slots.clear();
        for slot in together().map(|items| items[0].slot) {
            if !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        let row_of = |slot: usize| slots.iter().position(|known| *known == slot).unwrap_or(0) as u32;
        let mut inputs = Inputs { session, numbers, plan };
        inputs.set(ready.tokens, items.iter().map(|item| item.token), tokens, 0)?;
        inputs.set(ready.positions, positions.iter().copied(), tokens, 0)?;
        inputs.set(ready.seen, positions.iter().map(|position| position + 1), tokens, 0)?;
        let table_rows = together().flat_map(|items| iter::repeat_n(row_of(items[0].slot), items.len()));
        inputs.set(ready.sequences, table_rows, tokens, 0)?;
        if let (Some(factors), Some(growth)) =
            (ready.query_factors, self.blueprint.model.config().query_growth)
        {
            let factor = |position: &u32| growth.factor(*position).to_bits();
            inputs.set(factors, positions.iter().map(factor), tokens, 0)?;
        }
        if let Some(scales) = ready.adapter_scales {
            let scales_of = self.adapter_scales.iter().map(|scale| scale.to_bits());
            inputs.set(scales, scales_of, self.adapter_scales.len(), 0)?;
        }
        for (number, group) in ready.groups.iter().enumerate() {
            let row = |(item, position): (&Item, &u32)| sequences.row(item.slot, number, *position);
            inputs.set(group.rows, items.iter().zip(positions).map(row), tokens, NO_ROW)?;
            // Most of the table is empty: it is filled by whole slices.
            sequences.list_pages(number, slots, each, pages);
            pages.resize(rows * each, 0);
            inputs.session.set(plan, group.pages, bytemuck::cast_slice(pages))?;
        }
        if let Some(wanted) = ready.wanted {
            let outputs = ready.shape.outputs as usize;
            inputs.set(wanted, wanted_of(items).map(|index| index as u32), outputs, 0)?;
        }
        if let (Some(input), Some((item, position))) = (ready.slot, items.iter().zip(positions).next()) {
            inputs.set(input, iter::once(item.slot as u32), 1, 0)?;
            if *position == 0 {
                self.clear_states(item.slot)?;
            }
        }
        Ok(())
    }

    fn execute(&mut self, plan: PlanId, tokens: usize) -> Result<(), Error> {
        let threads = Some(self.blueprint.settings.threads);
        let options = RunOptions { threads, cancel: self.cancel.clone(), ..RunOptions::default() };
        match &mut self.recorded {
            None => self.session.run(plan, &options)?,
            Some(recorded) => {
                let began = Instant::now();
                let timeline = self.session.run_timed(plan, &options)?;
                let past = self.sequences.tokens().saturating_sub(tokens);
                recorded.push(RecordedRun { began, tokens, past, timeline });
            }
        }
        Ok(())
    }

    /// Reads the likeliest token of each row of the last run to `numbers`.
    pub(super) fn read_best(&mut self) -> Result<(), Error> {
        let left = self.left.ok_or(Error::NoLogits)?;
        self.numbers.resize(4 * (left.last + 1), 0);
        Ok(self.session.get_part(left.plan, left.best, 0, &mut self.numbers)?)
    }

    /// The rows of logits of the last run up to the one behind its last token, which are read at most once.
    pub(super) fn read_logits(&mut self) -> Result<&[f32], Error> {
        let left = self.left.ok_or(Error::NoLogits)?;
        if !left.read {
            self.read_range(left, 0, left.last + 1, 0)?;
            self.left = Some(LastRun { read: true, ..left });
        }
        Ok(&self.logits)
    }

    /// Some rows of logits of the last run, one behind the other.
    pub(super) fn read_rows(&mut self, rows: &[Row]) -> Result<&[f32], Error> {
        let left = self.left.ok_or(Error::NoLogits)?;
        self.left = Some(LastRun { read: false, ..left });
        let mut into = 0;
        for together in rows.chunk_by(|a, b| a.place + 1 == b.place) {
            self.read_range(left, together[0].place, together.len(), into)?;
            into += together.len();
        }
        Ok(&self.logits[..into * self.config().vocabulary as usize])
    }

    /// As [`Engine::read_rows`], into memory of the caller.
    pub(super) fn read_rows_into(&self, rows: &[Row], into: &mut [f32]) -> Result<(), Error> {
        let left = self.left.ok_or(Error::NoLogits)?;
        let width = self.config().vocabulary as usize;
        if into.len() != rows.len() * width {
            return Err(Error::NoLogits);
        }
        let mut rest = into;
        for together in rows.chunk_by(|a, b| a.place + 1 == b.place) {
            let (part, after) = rest.split_at_mut(together.len() * width);
            let offset = 4 * (together[0].place * width) as u64;
            self.session.get_part(left.plan, left.logits, offset, bytemuck::cast_slice_mut(part))?;
            rest = after;
        }
        Ok(())
    }

    fn read_range(&mut self, left: LastRun, from: usize, count: usize, into: usize) -> Result<(), Error> {
        let row = self.config().vocabulary as usize;
        if self.logits.len() < (into + count) * row {
            self.logits.resize((into + count) * row, 0.0);
        }
        let bytes = bytemuck::cast_slice_mut(&mut self.logits[into * row..][..count * row]);
        Ok(self.session.get_part(left.plan, left.logits, 4 * (from * row) as u64, bytes)?)
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

    /// Makes a graph ready within the memory that is allocated.
    pub(super) fn adopt_within(&mut self, graph: &PlannedGraph) -> Result<PlanId, orlop_sched::Error> {
        let externals = graph.externals(&self.loaded);
        self.session.adopt_within(&graph.graph.graph, &externals, Arc::clone(&graph.planned))
    }
}

/// Inputs of a graph.
struct Inputs<'a> {
    session: &'a mut Session,
    numbers: &'a mut Vec<u8>,
    plan: PlanId,
}

impl Inputs<'_> {
    /// Sets an input of 32-bit numbers, filled up to a count.
    fn set(
        &mut self,
        input: TensorId,
        values: impl Iterator<Item = u32>,
        count: usize,
        filler: u32,
    ) -> Result<(), Error> {
        self.numbers.clear();
        self.numbers.extend(values.flat_map(u32::to_le_bytes));
        let missing = count.saturating_sub(self.numbers.len() / 4);
        self.numbers.extend(iter::repeat_n(filler.to_le_bytes(), missing).flatten());
        Ok(self.session.set(self.plan, input, self.numbers)?)
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
