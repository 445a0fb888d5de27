//! How fast a model is expected to be, before anything is allocated.

use std::collections::BTreeMap;

use orlop_graph::DType;
use orlop_sched::{Limit, Prediction};

use crate::{BatchShape, Blueprint, Error, Model};

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

impl Blueprint {
    /// How fast a prompt of `prompt` tokens and what follows `depth` tokens are expected to be, by the machine's speeds: as
    /// its devices state them, or as they were measured.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn speed_forecast(&self, prompt: u64, depth: u64) -> Result<SpeedForecast, Error> {
        let mut planned = BTreeMap::new();
        let (mut seconds, mut fed) = (0.0, depth);
        let mut longest: Option<Prediction> = None;
        for (tokens, taken) in self.runs_of(prompt.max(1)) {
            if tokens != self.batch() && tokens > 1 && !planned.contains_key(&tokens) {
                let graph = self.plan_shape(BatchShape::new(tokens, &self.settings), |_| false)?;
                planned.insert(tokens, graph.planned);
            }
            let graph = match tokens {
                1 => &self.decode.planned,
                _ => planned.get(&tokens).unwrap_or(&self.prompt.planned),
            };
            // On average, a token sees half of those that are fed with it.
            let run = self.with_file(graph.predict(&self.machine, Some(fed + taken.div_ceil(2))), taken);
            seconds += run.seconds;
            fed += taken;
            longest = longest.filter(|longest| longest.seconds >= run.seconds).or(Some(run));
        }
        let token = self.with_file(self.decode.planned.predict(&self.machine, Some(depth + 1)), 1);
        Ok(SpeedForecast {
            depth,
            prompt: prompt.max(1),
            prompt_tokens_per_second: prompt.max(1) as f64 / seconds,
            prompt_limited_by: longest.unwrap_or(token).limited_by,
            generation_tokens_per_second: 1.0 / token.seconds,
            generation_limited_by: token.limited_by,
        })
    }

    /// A run's prediction with the time of reading weights that are streamed from the file.
    fn with_file(&self, run: Prediction, tokens: u64) -> Prediction {
        let config = self.model.config();
        let tied = self.model.file().tensor("output.weight").is_none();
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
