//! Predicted speeds, as text and as JSON.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use orlop::gguf::read_speed;
use orlop::llm::{Blueprint, SpeedForecast};
use orlop::sched::{Limit, Machine};
use serde::Serialize;

/// Time to measure how fast a model's file is read.
const READ_TIME: Duration = Duration::from_millis(500);

/// The blueprint that predictions are made of: with the measured speed of the model's file, if runs read weights from it.
pub(crate) fn with_file_speed<'a>(
    blueprint: &'a Blueprint,
    file: Option<&Path>,
    no_measure: bool,
) -> Cow<'a, Blueprint> {
    let measured = file.filter(|_| blueprint.streams() && !no_measure);
    match measured.and_then(|file| read_speed(file, READ_TIME).ok()) {
        Some(speed) => Cow::Owned(blueprint.clone().with_file_speed(speed)),
        None => Cow::Borrowed(blueprint),
    }
}

/// Tokens per second that a model is expected to reach.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Predicted {
    prompt_tokens_per_second: f64,
    generation_tokens_per_second: f64,
    limited_by: LimitedBy,
    #[serde(skip)]
    prompt: u64,
    #[serde(skip)]
    depth: u64,
}

/// What the speeds are limited by.
#[derive(Clone, Debug, Serialize)]
struct LimitedBy {
    prompt: String,
    generation: String,
}

impl Predicted {
    pub(crate) fn new(speed: &SpeedForecast, machine: &Machine) -> Predicted {
        let limited_by = LimitedBy {
            prompt: limit(speed.prompt_limited_by, machine),
            generation: limit(speed.generation_limited_by, machine),
        };
        Predicted {
            prompt_tokens_per_second: speed.prompt_tokens_per_second,
            generation_tokens_per_second: speed.generation_tokens_per_second,
            limited_by,
            prompt: speed.prompt,
            depth: speed.depth,
        }
    }

    /// Tokens per second of the prompt and of generation.
    pub(crate) fn rates(&self) -> [f64; 2] {
        [self.prompt_tokens_per_second, self.generation_tokens_per_second]
    }

    /// A line each for the prompt and for generation.
    pub(crate) fn lines(&self) -> [String; 2] {
        let Predicted { prompt_tokens_per_second, generation_tokens_per_second, prompt, depth, .. } = self;
        let LimitedBy { prompt: by, generation } = &self.limited_by;
        let behind = if *depth > 0 { format!(" behind {depth} tokens") } else { String::new() };
        [
            format!(
                "predicted: prompt of {prompt} tokens{behind}, {prompt_tokens_per_second:.1} tokens/s, \
                 limited by {by}"
            ),
            format!(
                "predicted: generation{behind}, {generation_tokens_per_second:.1} tokens/s, \
                 limited by {generation}"
            ),
        ]
    }
}

fn limit(limit: Limit, machine: &Machine) -> String {
    match limit {
        Limit::Memory(device) => format!("the memory of {}", machine.name(device)),
        Limit::Arithmetic(device) => format!("the arithmetic of {}", machine.name(device)),
        Limit::Steps(device) => format!("starting steps on {}", machine.name(device)),
        Limit::Link(device) => format!("transfers of {}", machine.name(device)),
        Limit::File => "reading the model's file".to_owned(),
    }
}
