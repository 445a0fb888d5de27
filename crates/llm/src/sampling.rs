//! The choice of the next token from logits: biases, [repetition penalty](https://arxiv.org/abs/1909.05858),
//! [presence and frequency penalties](https://platform.openai.com/docs/api-reference/chat), masks,
//! [top-k](https://arxiv.org/abs/1805.04833), [top-p](https://arxiv.org/abs/1904.09751),
//! [min-p](https://arxiv.org/abs/2407.01082) and temperature, with llama.cpp's definitions and defaults.

use std::cmp::Ordering;
use std::collections::VecDeque;

mod log_probabilities;
mod mask;
mod random;
mod recommended;

pub use log_probabilities::LogProbabilities;
pub use mask::TokenMask;
pub(crate) use random::Random;

/// How the next token is chosen. The steps are applied in the order of the fields, the penalties first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingOptions {
    /// Recent tokens become less likely by this factor; 1, the default, does nothing.
    pub repeat_penalty: f32,
    /// Recent tokens lose this much of their logit for each time they occurred; 0, the default, does nothing.
    pub frequency_penalty: f32,
    /// Recent tokens lose this much of their logit once; 0, the default, does nothing.
    pub presence_penalty: f32,
    /// How many of the last tokens are recent, those of the prompt included; by default 64.
    pub repeat_last: usize,
    /// This many of the likeliest tokens are kept; 0 keeps all. By default 40.
    pub top_k: usize,
    /// The likeliest tokens that together have this probability are kept; 1 keeps all. By default 0.95.
    pub top_p: f32,
    /// Tokens with at least this fraction of the likeliest one's probability are kept; 0 keeps all. By default 0.05.
    pub min_p: f32,
    /// Small values prefer likely tokens, large values flatten the distribution; at 0 or less the likeliest token is
    /// taken (greedy). By default 0.8.
    pub temperature: f32,
}

impl Default for SamplingOptions {
    fn default() -> SamplingOptions {
        SamplingOptions {
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            repeat_last: 64,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            temperature: 0.8,
        }
    }
}

impl SamplingOptions {
    /// Always the likeliest token.
    pub fn greedy() -> SamplingOptions {
        SamplingOptions { temperature: 0.0, ..SamplingOptions::default() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f32,
}

/// Chooses tokens one after the other: the same ones for the same options, seed and logits, on every machine.
///
/// After the first call nothing is allocated, as long as there are not more logits.
///
/// ```
/// use orlop_llm::{Sampler, SamplingOptions};
///
/// let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
/// assert_eq!(sampler.sample(&[0.5, 2.0, -1.0]), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplingOptions,
    random: Random,
    bias: Vec<(u32, f32)>,
    recent: VecDeque<u32>,
    penalized: Vec<u32>,
    candidates: Vec<Candidate>,
    weights: Vec<f64>,
}

impl Sampler {
    /// A sampler that has seen no token.
    pub fn new(options: SamplingOptions, seed: u64) -> Sampler {
        Sampler {
            options,
            random: Random::new(seed),
            bias: Vec::new(),
            recent: VecDeque::new(),
            penalized: Vec::new(),
            candidates: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// Adds these numbers to the logits of these tokens before anything else: minus infinity forbids a token. Of a token
    /// that is there twice, both count; NaN counts as 0.
    #[must_use]
    pub fn with_bias(mut self, bias: Vec<(u32, f32)>) -> Sampler {
        self.bias = bias;
        self
    }

    /// Its options.
    pub fn options(&self) -> &SamplingOptions {
        &self.options
    }

    /// Counts a token as recent, such as those of a prompt. Tokens from [`Sampler::sample`] are counted already.
    pub fn accept(&mut self, token: u32) {
        if !self.penalizes() {
            return;
        }
        if self.recent.capacity() == 0 {
            let room = self.options.repeat_last.min(1 << 16);
            self.recent.reserve(room);
            self.penalized.reserve(room);
        }
        while self.recent.len() >= self.options.repeat_last {
            self.recent.pop_front();
        }
        self.recent.push_back(token);
    }

    /// Forgets the recent tokens, and counts the last of these instead.
    pub fn restart(&mut self, tokens: &[u32]) {
        self.recent.clear();
        let lately = tokens.len().saturating_sub(self.options.repeat_last);
        tokens[lately..].iter().for_each(|token| self.accept(*token));
    }

    /// Chooses a token: an index of `logits`.
    ///
    /// A logit that is NaN counts as minus infinity; among equals the lowest index comes first. If all are minus
    /// infinity, or there are no logits, the result is 0.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        let token = match self.takes_likeliest() {
            true => likeliest(logits.iter().copied()),
            false => self.choose(logits, None).unwrap_or(0),
        };
        self.accept(token);
        token
    }

    /// As [`Sampler::sample`], among the tokens of a mask only; `None` if it allows none of them.
    pub fn sample_allowed(&mut self, logits: &[f32], mask: &TokenMask) -> Option<u32> {
        let token = self.choose(logits, Some(mask))?;
        self.accept(token);
        Some(token)
    }

    fn choose(&mut self, logits: &[f32], mask: Option<&TokenMask>) -> Option<u32> {
        self.candidates.clear();
        let candidate = |(logit, id): (&f32, u32)| Candidate { id, logit: number(*logit) };
        self.candidates.extend(logits.iter().zip(0..).map(candidate));
        self.add_bias();
        self.penalize();
        if let Some(mask) = mask {
            self.candidates.retain(|candidate| mask.allows(candidate.id));
        }
        if self.is_greedy() {
            return self.candidates.iter().copied().min_by(likelier_first).map(|best| best.id);
        }
        self.keep_top_k();
        let first = self.candidates.first()?;
        if !first.logit.is_finite() {
            return Some(first.id); // there is no second to compare it with
        }
        self.keep_top_p();
        self.keep_min_p();
        self.draw()
    }

    /// Whether it takes the likeliest token whatever the recent tokens are, so that no other logit matters.
    pub fn takes_likeliest(&self) -> bool {
        self.is_greedy() && !self.penalizes() && self.bias.is_empty()
    }

    fn is_greedy(&self) -> bool {
        self.options.temperature <= 0.0 || self.options.temperature.is_nan()
    }

    fn penalizes(&self) -> bool {
        let SamplingOptions { repeat_penalty, frequency_penalty, presence_penalty, repeat_last, .. } =
            self.options;
        (repeat_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0) && repeat_last > 0
    }

    fn add_bias(&mut self) {
        for (token, bias) in &self.bias {
            if let Some(candidate) = self.candidates.get_mut(*token as usize)
                && !bias.is_nan()
            {
                candidate.logit = number(candidate.logit + bias);
            }
        }
    }

    fn penalize(&mut self) {
        if !self.penalizes() {
            return;
        }
        self.penalized.clear();
        self.penalized.extend(&self.recent);
        self.penalized.sort_unstable();
        let SamplingOptions { repeat_penalty, frequency_penalty, presence_penalty, .. } = self.options;
        for same in self.penalized.chunk_by(|a, b| a == b) {
            if let Some(candidate) = self.candidates.get_mut(same[0] as usize) {
                let logit = candidate.logit;
                let repeated = if logit <= 0.0 { logit * repeat_penalty } else { logit / repeat_penalty };
                let fallen = repeated - frequency_penalty * same.len() as f32 - presence_penalty;
                candidate.logit = number(fallen);
            }
        }
    }

    /// Keeps the likeliest tokens, the likeliest first.
    fn keep_top_k(&mut self) {
        let count = match self.options.top_k {
            0 => self.candidates.len(),
            k => k.min(self.candidates.len()),
        };
        if 0 < count && count < self.candidates.len() {
            self.candidates.select_nth_unstable_by(count - 1, likelier_first);
            self.candidates.truncate(count);
        }
        self.candidates.sort_unstable_by(likelier_first);
    }

    fn keep_top_p(&mut self) {
        if self.options.top_p.is_nan() || self.options.top_p >= 1.0 {
            return;
        }
        let wanted = f64::from(self.options.top_p) * self.weigh(1.0);
        let mut sum = 0.0;
        let enough = self.weights.iter().position(|weight| {
            sum += weight;
            sum >= wanted
        });
        self.candidates.truncate(enough.map_or(usize::MAX, |last| last + 1));
    }

    fn keep_min_p(&mut self) {
        if self.options.min_p.is_nan() || self.options.min_p <= 0.0 {
            return;
        }
        let Some(first) = self.candidates.first() else { return };
        let least = first.logit + libm::logf(self.options.min_p);
        let few = self.candidates.iter().skip(1).position(|candidate| candidate.logit < least);
        self.candidates.truncate(few.map_or(usize::MAX, |end| end + 1));
    }

    fn draw(&mut self) -> Option<u32> {
        let point = self.random.fraction() * self.weigh(self.options.temperature);
        let mut sum = 0.0;
        let chosen = self.weights.iter().position(|weight| {
            sum += weight;
            sum > point
        });
        // Rounding may leave the point beyond the last weight.
        let chosen = chosen.and_then(|place| self.candidates.get(place)).or(self.candidates.first());
        chosen.map(|candidate| candidate.id)
    }

    /// Computes the probability of each candidate relative to the first, and returns the sum.
    fn weigh(&mut self, temperature: f32) -> f64 {
        let first = self.candidates.first().map_or(0.0, |candidate| candidate.logit);
        self.weights.clear();
        // `libm` gives the same results on every machine; the system's functions do not.
        let weight = |candidate: &Candidate| f64::from(libm::expf((candidate.logit - first) / temperature));
        self.weights.extend(self.candidates.iter().map(weight));
        self.weights.iter().sum()
    }
}

fn number(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit }
}

fn likelier_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

pub(crate) fn likeliest(logits: impl Iterator<Item = f32>) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, logit) in (0..).zip(logits) {
        if logit > best.1 {
            best = (id, logit);
        }
    }
    best.0
}

#[cfg(test)]
mod tests;
