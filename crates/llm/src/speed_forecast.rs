//! How fast a model is expected to be, before anything is allocated.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_graph::DType;
use orlop_sched::{ChosenMatrices, ExpectedData, Limit, Prediction};

use crate::draft::PartOfExperts;
use crate::planned_graph::PlannedGraph;
use crate::{Blueprint, Error, ExpertCounts, Model};

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

    /// What the data of a run is expected to be: of experts on two devices, as many as were counted, or all alike.
    fn expected(&self, run: &PlannedRun) -> ExpectedData {
        let mut expected = ExpectedData::seeing(run.seen);
        let counts = self.settings.expert_counts.as_deref();
        let (Some(experts), tokens) = (self.model.config().experts, run.tokens as f64) else {
            return expected;
        };
        for PartOfExperts { layer, here, experts: some } in &run.graph.graph.parts_of_experts {
            let of_token = |expert: &u32| experts.used as f64 * share(counts, *layer, *expert, experts.count);
            let choices = tokens * some.iter().map(of_token).sum::<f64>();
            let matrices =
                some.iter().map(|expert| 1.0 - (1.0 - of_token(expert).min(1.0)).powf(tokens)).sum();
            expected.chosen.insert(*here, ChosenMatrices { choices, matrices });
        }
        expected
    }

    /// How long a run takes.
    pub(crate) fn predicted(&self, run: &PlannedRun) -> Prediction {
        self.with_file(run.graph.planned.predict(&self.machine, &self.expected(run)), run.tokens)
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

/// The share of an expert in what a layer's tokens choose.
pub(crate) fn share(counts: Option<&ExpertCounts>, layer: usize, expert: u32, count: u64) -> f64 {
    let counted = counts.and_then(|counts| counts.layers.get(&layer));
    match counted.map(|counts| (counts.get(expert as usize).copied().unwrap_or(0), counts.iter().sum())) {
        Some((own, all @ 1u64..)) => own as f64 / all as f64,
        _ => 1.0 / count.max(1) as f64,
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
