//! How long things took.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Seconds, and tokens a second.
#[derive(Debug, Serialize)]
pub(crate) struct Timings {
    pub(crate) load_s: f64,
    pub(crate) prompt_s: f64,
    pub(crate) prompt_tokens_per_second: f64,
    pub(crate) generate_s: f64,
    pub(crate) generate_tokens_per_second: f64,
}

impl Timings {
    /// From the time to load, to the first of the tokens `made`, and to the last.
    pub(crate) fn new(load: Duration, fed: usize, prompt: Duration, made: usize, all: Duration) -> Timings {
        let generate = all.saturating_sub(prompt);
        let rate = |count: usize, time: Duration| {
            if count == 0 || time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
        };
        Timings {
            load_s: load.as_secs_f64(),
            prompt_s: prompt.as_secs_f64(),
            prompt_tokens_per_second: rate(fed, prompt),
            generate_s: generate.as_secs_f64(),
            generate_tokens_per_second: rate(made.saturating_sub(1), generate),
        }
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "loaded in {:.2} s; prompt in {:.2} s ({:.1} tokens/s); generated in {:.2} s ({:.1} tokens/s)",
            self.load_s,
            self.prompt_s,
            self.prompt_tokens_per_second,
            self.generate_s,
            self.generate_tokens_per_second,
        )
    }
}
