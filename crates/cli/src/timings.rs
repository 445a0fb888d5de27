//! Timings of loading, prompt and generation.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Seconds, and tokens per second.
#[derive(Debug, Serialize)]
pub(crate) struct Timings {
    pub(crate) load_s: f64,
    /// Repacking of weights after the first run, which reads them from the file.
    pub(crate) repack_s: f64,
    pub(crate) prompt_s: f64,
    pub(crate) prompt_tokens_per_second: f64,
    pub(crate) generate_s: f64,
    pub(crate) generate_tokens_per_second: f64,
}

impl Timings {
    /// `prompt` is the time to the first, `all` the time to the last of the `made` tokens.
    pub(crate) fn new(load: Duration, fed: usize, prompt: Duration, made: usize, all: Duration) -> Timings {
        let generate = all.saturating_sub(prompt);
        let rate = |count: usize, time: Duration| {
            if count == 0 || time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
        };
        Timings {
            load_s: load.as_secs_f64(),
            repack_s: 0.0,
            prompt_s: prompt.as_secs_f64(),
            prompt_tokens_per_second: rate(fed, prompt),
            generate_s: generate.as_secs_f64(),
            generate_tokens_per_second: rate(made.saturating_sub(1), generate),
        }
    }

    /// Adds the repacking time, which the other times exclude.
    pub(crate) fn with_repacking(self, repacking: Duration) -> Timings {
        Timings { repack_s: repacking.as_secs_f64(), ..self }
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timings { load_s, repack_s, prompt_s, generate_s, .. } = self;
        let (prompt, generate) = (self.prompt_tokens_per_second, self.generate_tokens_per_second);
        write!(f, "loaded in {load_s:.2} s; prompt in {prompt_s:.2} s ({prompt:.1} tokens/s); ")?;
        if *repack_s > 0.0 {
            write!(f, "repacked in {repack_s:.2} s; ")?;
        }
        write!(f, "generated in {generate_s:.2} s ({generate:.1} tokens/s)")
    }
}
