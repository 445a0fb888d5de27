//! Measured speeds, and the number of prompt tokens that a step may process beside running requests.

use std::time::Duration;

/// Seconds that a step may take although others generate, if a prompt needs only a few such steps.
const SHORT_STEP: f64 = 0.05;

/// Steps that a prompt may take at that length.
const SHORT_STEPS: f64 = 4.0;

/// How much longer a step may take than without prompt tokens, while longer prompts are processed.
const SLOWDOWN: f64 = 1.75;

/// Prompt tokens in a step before anything was measured.
const UNMEASURED: usize = 32;

/// Fewer prompt tokens than this take about as long.
const LEAST: usize = 8;

/// Weight of the last measurement.
const NEW: f64 = 0.2;

/// Speeds of an engine, as measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Speed {
    /// Seconds of a step in which only running requests get a token, by the binary logarithm of their number.
    generation: Vec<Option<f64>>,
    /// Seconds of a prompt token.
    prompt: Option<f64>,
}

impl Speed {
    /// Learns from a step: requests that generated, prompt tokens, and its time.
    pub(crate) fn learn(&mut self, generating: usize, prompt: usize, time: Duration) {
        let seconds = time.as_secs_f64();
        if prompt == 0 && generating > 0 {
            let bucket = generating.ilog2() as usize;
            self.generation.resize(self.generation.len().max(bucket + 1), None);
            mix(&mut self.generation[bucket], seconds);
        } else if prompt >= LEAST {
            let rest = match self.step(generating) {
                Some(alone) => (seconds - alone).max(seconds * 0.1),
                None if generating == 0 => seconds,
                None => return,
            };
            mix(&mut self.prompt, rest / prompt as f64);
        }
    }

    /// Seconds of a step in which requests generate.
    fn step(&self, generating: usize) -> Option<f64> {
        let bucket = generating.checked_ilog2()? as usize;
        let known = |bucket: usize| self.generation.get(bucket).copied().flatten();
        // The time of fewer requests is a lower bound.
        (0..=bucket).rev().find_map(known)
    }

    /// Seconds to process prompt tokens.
    pub(crate) fn prompt_seconds(&self, tokens: usize) -> Option<f64> {
        self.prompt.map(|each| each * tokens as f64)
    }

    /// Seconds to generate tokens beside others.
    pub(crate) fn generation_seconds(&self, generating: usize, tokens: usize) -> Option<f64> {
        self.step(generating.max(1)).map(|each| each * tokens as f64)
    }

    /// The number of prompt tokens for a step in which others generate; `rest` tokens of the prompt are to be processed.
    pub(crate) fn chunk(&self, generating: usize, rest: usize) -> usize {
        let (Some(step), Some(each)) = (self.step(generating), self.prompt) else { return UNMEASURED };
        let short = (SHORT_STEP - step).max(0.0);
        let extra = match each * rest as f64 <= short * SHORT_STEPS {
            true => short,
            false => step * (SLOWDOWN - 1.0),
        };
        ((extra / each) as usize).max(LEAST)
    }
}

fn mix(value: &mut Option<f64>, new: f64) {
    *value = Some(value.map_or(new, |old| old + (new - old) * NEW));
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn long_prompts_slow_others_by_a_fixed_factor_and_short_ones_pass_quickly() {
        let mut speed = Speed::default();
        assert_eq!(speed.chunk(4, 1000), UNMEASURED);
        speed.learn(0, 500, ms(500));
        speed.learn(4, 0, ms(20));
        assert_eq!(speed.chunk(4, 4096), 15, "0.75 × 20 ms at 1 ms a token");
        assert_eq!(speed.chunk(4, 100), 30, "50 ms − 20 ms");
        assert_eq!(speed.chunk(5, 100), 30, "5 are measured as 4");
        speed.learn(4, 30, ms(80));
        assert!(speed.prompt_seconds(1).unwrap() > 0.001);
        // A step that is slow without prompts leaves no time: still, prompts get on.
        speed.learn(64, 0, ms(400));
        assert_eq!(speed.chunk(64, 10), (300.0 / 1.2) as usize);
    }

    #[test]
    fn nothing_measured_is_no_number() {
        let speed = Speed::default();
        assert_eq!((speed.prompt_seconds(3), speed.generation_seconds(1, 3)), (None, None));
    }
}
