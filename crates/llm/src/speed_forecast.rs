//! How fast a model is expected to be, before anything is allocated.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_graph::DType;
use orlop_sched::{ExpectedData, Limit, Prediction};

use crate::planned_graph::PlannedGraph;
use crate::{Blueprint, Error, Model};

/// How fast a model is expected to be on a machine, by the speeds of its devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeedForecast {
    /// Tokens that are in the context before.
    pub depth: u64,
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the prompt a second.
    pub prompt_tokens_per_second: f64,
    /// What limits that.
    pub prompt_limited_by: Limit,
    /// Generated tokens a second, behind `depth` tokens.
    pub generation_tokens_per_second: f64,
    /// What limits that.
    pub generation_limited_by: Limit,
}

/// A run of a graph.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRun {
    pub(crate) graph: Arc<PlannedGraph>,
    /// Tokens that it is fed.
    pub(crate) tokens: u64,
    /// Rows of the cache that each of them sees, on average.
    pub(crate) seen: u64,
}

impl Blueprint {
    /// How fast a prompt of `prompt` tokens and what follows `depth` tokens are expected to be, by the machine's speeds: as
    /// its devices state them, or as they were measured.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn speed_forecast(&self, prompt: u64, depth: u64) -> Result<SpeedForecast, Error> {
        let predicted: Vec<Prediction> =
            self.planned_runs(prompt.max(1), depth).iter().map(|run| self.predicted(run)).collect();
        let seconds: f64 = predicted.iter().map(|run| run.seconds).sum();
        let longest = predicted.into_iter().max_by(|one, other| one.seconds.total_cmp(&other.seconds));
        let token = self.predicted_token(depth + 1);
        Ok(SpeedForecast {
            depth,
            prompt: prompt.max(1),
            prompt_tokens_per_second: prompt.max(1) as f64 / seconds,
            prompt_limited_by: longest.unwrap_or(token).limited_by,
            generation_tokens_per_second: 1.0 / token.seconds,
            generation_limited_by: token.limited_by,
        })
    }

    /// Whether runs read weights from the model's file.
    pub fn streams(&self) -> bool {
        self.weights.iter().any(|weight| weight.streamed)
    }

    /// The same with the speed of the model's file as it was measured ([`orlop_gguf::read_speed`]); predictions need it where
    /// runs read weights from it.
    #[must_use]
    pub fn with_file_speed(mut self, bytes_per_second: f64) -> Blueprint {
        self.settings.file_bytes_per_second = bytes_per_second;
        self
    }

    /// The runs in which a prompt is fed behind `depth` tokens.
    pub(crate) fn planned_runs(&self, prompt: u64, depth: u64) -> Vec<PlannedRun> {
        let mut fed = depth;
        let run = |(shape, tokens): (usize, u64)| {
            // On average, a token sees half of those that are fed with it.
            let seen = fed + tokens.div_ceil(2);
            fed += tokens;
            PlannedRun { graph: Arc::clone(&self.graphs[shape]), tokens, seen }
        };
        self.runs_of(prompt).into_iter().map(run).collect()
    }

    /// How long a run takes.
    pub(crate) fn predicted(&self, run: &PlannedRun) -> Prediction {
        self.with_file(run.graph.planned.predict(&self.machine, &ExpectedData::seeing(run.seen)), run.tokens)
    }

    /// How long a generated token takes that sees some rows.
    pub(crate) fn predicted_token(&self, seen: u64) -> Prediction {
        self.predicted(&PlannedRun { graph: Arc::clone(&self.decode), tokens: 1, seen })
    }

    /// A run's prediction with the time of reading weights that are streamed from the file.
    pub(crate) fn with_file(&self, run: Prediction, tokens: u64) -> Prediction {
        let (config, tied) = (self.model.config(), self.is_tied());
        let read = self.weights.iter().filter(|weight| weight.streamed);
        let bytes: f64 =
            read.map(|weight| weight.desc.bytes() as f64 * weight.read_share(config, tied, tokens)).sum();
        let seconds = bytes / self.settings.file_bytes_per_second.max(1.0);
        let limited_by = if seconds > run.seconds { Limit::File } else { run.limited_by };
        Prediction { seconds: run.seconds + seconds, limited_by }
    }
}

impl Model {
    /// Types of the matrices that make up most of its bytes: those whose products a device should be measured with.
    pub fn product_types(&self) -> Vec<DType> {
        let mut bytes: BTreeMap<&'static str, (DType, u64)> = BTreeMap::new();
        let matrices = self.file().tensors().iter().filter(|tensor| tensor.desc.extents[1] > 1);
        for tensor in matrices {
            let sum = bytes.entry(tensor.desc.dtype.name()).or_insert((tensor.desc.dtype, 0));
            sum.1 = sum.1.saturating_add(tensor.bytes);
        }
        let all = bytes.values().fold(0u64, |all, (_, bytes)| all.saturating_add(*bytes));
        let mut types: Vec<(DType, u64)> = bytes.into_values().filter(|(_, own)| *own >= all / 100).collect();
        types.sort_by_key(|(_, own)| std::cmp::Reverse(*own));
        types.into_iter().map(|(dtype, _)| dtype).collect()
    }
}
