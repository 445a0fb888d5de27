//! A loaded model as the scheduler's engine.

use orlop_llm::{Blueprint, Config, Engine, Error, LayerConfig, PAGE_ROWS, Part, SequenceId, Wanted};
use orlop_serve::{Limits, PagedEngine, Rows, StepPart, StepRow};

/// An engine with the limits of a server.
#[derive(Debug)]
pub(crate) struct PagedModel {
    engine: Engine,
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
    pub(crate) fn new(engine: Engine, context: Option<u64>, parallel: usize) -> PagedModel {
        let batches = engine.batch_sizes().map(|size| size as usize).collect();
        let limits = Limits { batches, ..limits(engine.blueprint(), context, parallel) };
        let pages = match engine.blueprint().whole_pages() {
            Some(_) if engine.page_pools().count() == 1 => CountedPages::Pool,
            Some(_) => CountedPages::WholeContext,
            None => CountedPages::Sequences,
        };
        PagedModel { engine, limits, pages, lost: false }
    }

    /// Pages that sequences use, and all pages.
    pub(crate) fn page_counts(&self) -> (usize, usize) {
        (self.limits.pages.saturating_sub(self.free_pages()), self.limits.pages)
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
        each: &mut dyn FnMut(usize, StepRow<'_>),
    ) -> Result<(), Error> {
        let wanted = |rows| if rows == Rows::Nothing { Wanted::Nothing } else { Wanted::Last };
        let fed: Vec<Part<'_>> = parts
            .iter()
            .map(|part| Part { sequence: part.sequence, tokens: part.tokens, wanted: wanted(part.rows) })
            .collect();
        let result = self.engine.feed_parts(&fed, &mut |mut run| {
            let of = |part: usize| parts[part].rows;
            if run.rows().iter().any(|row| of(row.part) == Rows::Best) {
                let best = run.best()?.filter(|(row, _)| of(row.part) == Rows::Best);
                best.for_each(|(row, token)| each(row.part, StepRow::Best(token)));
            }
            for number in 0..run.rows().len() {
                let part = run.rows()[number].part;
                if of(part) == Rows::Logits {
                    each(part, StepRow::Logits(run.logits_of(number)?));
                }
            }
            Ok(())
        });
        if result.is_err() {
            let machine = self.engine.blueprint().machine();
            self.lost = machine.devices().iter().any(|device| device.facts().lost);
        }
        result
    }
}
