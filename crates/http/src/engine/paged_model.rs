//! A loaded model as the scheduler's engine.

use std::ops::ControlFlow;
use std::time::Instant;

use orlop_llm::{
    BatchSpeculator, Blueprint, Config, Engine, Error, LayerConfig, PAGE_ROWS, Part, RunRows, SequenceDraft,
    SequenceId, SequenceText, Wanted,
};
use orlop_serve::{DraftText, Limits, PagedEngine, Rows, StepPart, StepRow};

use crate::model::LoadedModel;

/// An engine with the limits of a server.
#[derive(Debug)]
pub(crate) struct PagedModel {
    engine: Engine,
    drafts: Option<BatchSpeculator>,
    limits: Limits,
    pages: CountedPages,
    /// A device is lost.
    lost: bool,
}

/// What counts as a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedPages {
    /// A page of the one pool.
    Pool,
    /// A page of the pool for the whole context: those for windows do not run out.
    WholeContext,
    /// A sequence, in models that keep no rows of the whole context.
    Sequences,
}

impl PagedModel {
    /// With at most `context` tokens a sequence and `parallel` requests that run.
    pub(crate) fn new(loaded: LoadedModel, context: Option<u64>, parallel: usize) -> PagedModel {
        let LoadedModel { engine, drafts } = loaded;
        let batches = engine.batch_sizes().map(|size| size as usize).collect();
        let limits = Limits { batches, ..limits(engine.blueprint(), context, parallel) };
        let pages = match engine.blueprint().whole_pages() {
            Some(_) if engine.page_pools().count() == 1 => CountedPages::Pool,
            Some(_) => CountedPages::WholeContext,
            None => CountedPages::Sequences,
        };
        PagedModel { engine, drafts, limits, pages, lost: false }
    }

    /// Pages that sequences use, and all pages.
    pub(crate) fn page_counts(&self) -> (usize, usize) {
        (self.limits.pages.saturating_sub(self.free_pages()), self.limits.pages)
    }

    /// Notes whether a device is lost, after an error.
    fn look_at_devices(&mut self) {
        let machine = self.engine.blueprint().machine();
        self.lost = machine.devices().iter().any(|device| device.facts().lost);
    }
}

/// The limits of a model, with at most `context` tokens a sequence and `parallel` requests that run; without its batches.
pub(crate) fn limits(blueprint: &Blueprint, context: Option<u64>, parallel: usize) -> Limits {
    let config = blueprint.model().config();
    // The first sequence always exists, and is not used.
    let sequences = (blueprint.settings().sequences as usize).saturating_sub(1).max(1);
    let context = context.unwrap_or(u64::MAX).min(blueprint.context());
    let whole = blueprint.whole_pages();
    Limits {
        page_rows: whole.map_or(context, |_| PAGE_ROWS) as usize,
        pages: whole.map_or(sequences, |pages| pages as usize),
        context: context as usize,
        sequences,
        parallel: parallel.min(sequences),
        batches: Vec::new(),
        shares: shares(config),
        attention: attention_cost(config),
    }
}

/// Whether a sequence can begin with a part of another one.
pub(crate) fn shares(config: &Config) -> bool {
    !config.keeps_states()
}

/// The arithmetic of attention to one earlier token, as a part of a token's arithmetic without attention.
fn attention_cost(config: &Config) -> f64 {
    let attention = |layer: &LayerConfig| layer.heads * (layer.key + layer.value);
    let weights = |layer: &LayerConfig| {
        let heads = layer.heads * (layer.key + layer.value) + layer.kv_heads * (layer.key + layer.value);
        config.width * (heads + 3 * layer.hidden)
    };
    let all: u64 = config.layers.iter().map(weights).sum::<u64>() + config.width * config.vocabulary;
    config.layers.iter().map(attention).sum::<u64>() as f64 / all.max(1) as f64
}

impl PagedEngine for PagedModel {
    type Sequence = SequenceId;
    type Error = Error;

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn free_pages(&self) -> usize {
        match self.pages {
            CountedPages::Pool => self.engine.free_pages() as usize,
            CountedPages::WholeContext => {
                let whole = self.engine.page_pools().find(|pool| pool.window.is_none());
                whole.map_or(0, |pool| pool.free as usize)
            }
            CountedPages::Sequences => {
                (self.limits.sequences + 1).saturating_sub(self.engine.sequences().count())
            }
        }
    }

    fn start(&mut self) -> Result<SequenceId, Error> {
        self.engine.start_sequence()
    }

    fn fork(&mut self, from: SequenceId, len: usize) -> Result<SequenceId, Error> {
        self.engine.fork_sequence(from, len)
    }

    fn truncate(&mut self, sequence: SequenceId, len: usize) -> usize {
        self.engine.truncate_sequence(sequence, len).unwrap_or(0)
    }

    fn end(&mut self, sequence: SequenceId) {
        // The scheduler ends only what it started, once.
        let _ = self.engine.end_sequence(sequence);
    }

    fn len(&self, sequence: SequenceId) -> usize {
        self.engine.sequence_len(sequence).unwrap_or(0)
    }

    fn is_lost(&self) -> bool {
        self.lost
    }

    fn step(
        &mut self,
        parts: &[StepPart<'_, SequenceId>],
        each: &mut dyn FnMut(usize, StepRow<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let fed: Vec<Part<'_>> = parts
            .iter()
            .map(|part| Part { sequence: part.sequence, tokens: part.tokens, wanted: wanted(part) })
            .collect();
        let mut reader = RowReader { parts, rows: vec![0; parts.len()], done: None };
        let begin = Instant::now();
        let result = self.engine.feed_parts(&fed, &mut |rows| reader.read(rows, each));
        if result.is_err() {
            self.look_at_devices();
        } else if let Some(drafts) = &mut self.drafts
            && parts.iter().all(|part| part.rows != Rows::Nothing && part.tokens.len() == 1 + part.drafted)
        {
            let verified = parts.iter().zip(reader.rows).map(|(part, rows)| SequenceDraft {
                drafted: part.drafted,
                accepted: rows.saturating_sub(1),
            });
            drafts.verified(&verified.collect::<Vec<_>>(), begin.elapsed());
        }
        result
    }

    fn draft(&mut self, texts: &[DraftText<'_, SequenceId>], drafts: &mut [Vec<u32>]) {
        let Some(speculator) = &mut self.drafts else { return };
        let texts = texts.iter().map(|text| SequenceText {
            sequence: text.sequence,
            tokens: text.tokens,
            most: text.most,
        });
        if speculator.draft(&texts.collect::<Vec<_>>(), drafts).is_err() {
            drafts.iter_mut().for_each(Vec::clear);
            self.look_at_devices();
        }
    }

    fn end_drafts(&mut self, sequence: SequenceId) {
        if let Some(drafts) = &mut self.drafts {
            drafts.end(sequence);
        }
    }
}

fn wanted(part: &StepPart<'_, SequenceId>) -> Wanted {
    match part.rows {
        Rows::Nothing => Wanted::Nothing,
        _ if part.drafted > 0 => Wanted::All,
        _ => Wanted::Last,
    }
}

/// Gives the rows of runs to those who wait for them.
struct RowReader<'a> {
    parts: &'a [StepPart<'a, SequenceId>],
    /// Rows that each part has taken.
    rows: Vec<usize>,
    /// The last part that wants no more.
    done: Option<usize>,
}

impl RowReader<'_> {
    fn read(
        &mut self,
        mut run: RunRows<'_>,
        each: &mut dyn FnMut(usize, StepRow<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let of = |part: usize| self.parts[part].rows;
        let best: Vec<u32> = match run.rows().iter().any(|row| of(row.part) == Rows::Best) {
            true => run.best()?.map(|(_, token)| token).collect(),
            false => Vec::new(),
        };
        for (number, row) in run.rows().to_vec().into_iter().enumerate() {
            let StepPart { tokens, drafted, rows, .. } = self.parts[row.part];
            // Rows before the draft are not wanted, nor those behind what was rejected.
            if row.index + 1 + drafted < tokens.len() || self.done == Some(row.part) {
                continue;
            }
            self.rows[row.part] += 1;
            let flow = match rows {
                Rows::Nothing => continue,
                Rows::Best => each(row.part, StepRow::Best(best[number])),
                Rows::Logits => each(row.part, StepRow::Logits(run.logits_of(number)?)),
            };
            if flow.is_break() {
                self.done = Some(row.part);
            }
        }
        Ok(())
    }
}
