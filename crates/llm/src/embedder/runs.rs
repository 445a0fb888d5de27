//! Runs of whole texts: which texts go together, and what a graph is told of them.

use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use orlop_backend::RunOptions;
use orlop_graph::TensorId;
use orlop_sched::PlanId;

use super::Embedder;
use crate::draft::{ModelGraph, TextInputs, TextRange};
use crate::{BatchShape, Config, Error};

/// A graph of texts that is ready to run.
#[derive(Clone, Debug)]
pub(super) struct ReadyTexts {
    shape: BatchShape,
    plan: PlanId,
    tokens: TensorId,
    positions: TensorId,
    texts: TextInputs,
    rows: TensorId,
    /// Elements of a row.
    pub(super) width: u64,
}

impl ReadyTexts {
    fn new(plan: PlanId, graph: &ModelGraph) -> Option<ReadyTexts> {
        let ModelGraph { shape, tokens, positions, logits, .. } = *graph;
        let width = graph.graph.tensor(logits).desc.extents[0];
        let texts = graph.texts.clone()?;
        Some(ReadyTexts { shape, plan, tokens, positions, texts, rows: logits, width })
    }
}

impl Embedder {
    /// Makes the graphs of all shapes ready.
    pub(super) fn ready_shapes(&mut self) -> Result<(), Error> {
        let Embedder { blueprint, session, loaded, ready, .. } = self;
        // The largest first, so that memory is allocated once.
        for graph in blueprint.graphs.iter().rev() {
            let externals = graph.externals(loaded);
            let plan = session.adopt(&graph.graph.graph, &externals, Arc::clone(&graph.planned))?;
            ready.extend(ReadyTexts::new(plan, &graph.graph));
        }
        ready.reverse();
        Ok(())
    }

    /// The row of each text, as the model gives it.
    pub(super) fn rows(&mut self, texts: &[impl AsRef<[u32]>]) -> Result<Vec<Vec<f32>>, Error> {
        let texts: Vec<&[u32]> = texts.iter().map(AsRef::as_ref).collect();
        self.check(&texts)?;
        let mut rows = Vec::with_capacity(texts.len());
        let mut rest = &texts[..];
        while !rest.is_empty() {
            let shape = self.ready.last().map_or(BatchShape { tokens: 0, outputs: 0 }, |ready| ready.shape);
            let (together, after) = rest.split_at(fitting(rest, shape));
            self.run(together, &mut rows)?;
            rest = after;
        }
        Ok(rows)
    }

    fn check(&self, texts: &[&[u32]]) -> Result<(), Error> {
        let (vocabulary, most) = (self.blueprint.model.config().vocabulary, self.longest_text());
        for (index, text) in texts.iter().enumerate() {
            if text.is_empty() {
                return Err(Error::EmptyPrompt);
            }
            if text.len() as u64 > most {
                return Err(Error::TextTooLong { index, tokens: text.len(), most });
            }
            if let Some(token) = text.iter().copied().find(|token| u64::from(*token) >= vocabulary) {
                return Err(Error::UnknownToken { token, vocabulary });
            }
        }
        Ok(())
    }

    /// Runs texts together in the smallest graph that takes them.
    fn run(&mut self, texts: &[&[u32]], rows: &mut Vec<Vec<f32>>) -> Result<(), Error> {
        let count: usize = texts.iter().map(|text| text.len()).sum();
        let fits = |ready: &&ReadyTexts| {
            ready.shape.tokens >= count as u64 && ready.shape.outputs >= texts.len() as u64
        };
        let Some(ready) = self.ready.iter().find(fits).cloned() else { return Ok(()) };
        self.set_inputs(&ready, texts)?;
        let threads = Some(self.blueprint.settings.threads);
        let options = RunOptions { threads, cancel: self.cancel.clone(), ..RunOptions::default() };
        self.session.run(ready.plan, &options)?;
        // Weights that could not be read were zeros.
        self.blueprint.model.file().check_readable()?;
        let width = ready.width as usize;
        let mut floats = vec![0.0f32; width * texts.len()];
        self.session.get_part(ready.plan, ready.rows, 0, bytemuck::cast_slice_mut(&mut floats))?;
        rows.extend(floats.chunks_exact(width.max(1)).map(<[f32]>::to_vec));
        Ok(())
    }

    fn set_inputs(&mut self, ready: &ReadyTexts, texts: &[&[u32]]) -> Result<(), Error> {
        let BatchShape { tokens, outputs } = ready.shape;
        let (tokens, outputs) = (tokens as usize, outputs as usize);
        let config = self.blueprint.model.config().clone();
        let pooling = self.pooling;
        self.set(ready, ready.tokens, texts.iter().copied().flatten().copied(), tokens)?;
        let positions = texts.iter().flat_map(|text| 0..text.len() as u32);
        self.set(ready, ready.positions, positions, tokens)?;
        for TextRange { window, first, end } in &ready.texts.ranges {
            let seen = || each_token(texts).map(|(text, row)| seen(&config, *window, text, row));
            self.set(ready, *first, seen().map(|rows| rows.start), tokens)?;
            self.set(ready, *end, seen().map(|rows| rows.end), tokens)?;
        }
        if pooling.is_mean(&config) {
            let parts = spans(texts).flat_map(|text| {
                let part = 1.0 / text.len() as f32;
                let is_in = move |row: usize| if text.contains(&(row as u32)) { part } else { 0.0 };
                (0..tokens).map(move |row| is_in(row).to_bits())
            });
            self.set(ready, ready.texts.pooled, parts, tokens * outputs)?;
        } else {
            let rows = spans(texts).map(|text| text.start + pooling.token(&config, text.len()) as u32);
            self.set(ready, ready.texts.pooled, rows, outputs)?;
        }
        if let Some(distances) = ready.texts.distances {
            let distance = |a: usize, b: usize| (-(a.abs_diff(b) as f32)).to_bits();
            let all = (0..tokens).flat_map(|a| (0..tokens).map(move |b| distance(a, b)));
            self.set(ready, distances, all, tokens * tokens)?;
        }
        Ok(())
    }

    /// Sets an input of 32-bit numbers, filled up with zeros: tokens that see nothing.
    fn set(
        &mut self,
        ready: &ReadyTexts,
        input: TensorId,
        values: impl Iterator<Item = u32>,
        count: usize,
    ) -> Result<(), Error> {
        self.numbers.clear();
        self.numbers.extend(values.flat_map(u32::to_le_bytes));
        let missing = (4 * count).saturating_sub(self.numbers.len());
        self.numbers.extend(repeat_n(0, missing));
        Ok(self.session.set(ready.plan, input, &self.numbers)?)
    }
}

/// How many of the first texts go into a run; at least one.
fn fitting(texts: &[&[u32]], shape: BatchShape) -> usize {
    let mut tokens = 0;
    let fits = |text: &&&[u32]| {
        tokens += text.len() as u64;
        tokens <= shape.tokens
    };
    let most = texts.len().min(shape.outputs as usize);
    texts[..most].iter().take_while(fits).count().max(1)
}

/// The rows of each text, one behind the other.
fn spans(texts: &[&[u32]]) -> impl Iterator<Item = Range<u32>> {
    texts.iter().scan(0, |next, text| {
        let start = *next;
        *next += text.len() as u32;
        Some(start..*next)
    })
}

/// The rows of its text, and the row, of each token.
fn each_token(texts: &[&[u32]]) -> impl Iterator<Item = (Range<u32>, u32)> {
    spans(texts).flat_map(|text| text.clone().map(move |row| (text.clone(), row)))
}

/// The rows that a token sees: those of its text, or those before it; with a window, the last ones, or half of the window on
/// either side.
fn seen(config: &Config, window: Option<u32>, text: Range<u32>, row: u32) -> Range<u32> {
    match (config.bidirectional, window) {
        (true, None) => text,
        (true, Some(window)) => {
            let reach = window / 2;
            row.saturating_sub(reach).max(text.start)
                ..row.saturating_add(reach).saturating_add(1).min(text.end)
        }
        (false, None) => text.start..row + 1,
        (false, Some(window)) => (row + 1).saturating_sub(window).max(text.start)..row + 1,
    }
}
