//! One answer while it is generated: tokens from logits, and text from tokens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_llm::{GrammarError, GrammarMatcher, LogProbabilities, Sampler, StopText, TextStream, Tokenizer};
use orlop_serve::{Flow, Request, RequestEnd, RequestUsage, Rows, StepRow};

use super::generation::Generation;
use super::ring::{Ended, Event, Generated, Ring, Score, Times};
use crate::metrics::Metrics;

/// An answer that is being generated.
#[derive(Debug)]
pub(crate) struct Job {
    answer: usize,
    ring: Arc<Ring>,
    tokenizer: Arc<Tokenizer>,
    metrics: Arc<Metrics>,
    sampler: Sampler,
    grammar: Option<GrammarMatcher>,
    top: Option<usize>,
    ignores_end: bool,
    writes_control: bool,
    text: TextStream,
    stop: StopText,
    /// The texts that the request named: only these are reported as what ended it.
    named_stops: Vec<String>,
    /// Of tokens whose text is held back.
    held: Generated,
    submitted: Instant,
    admitted: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Job {
    /// One answer of a generation to the prompt at a place.
    pub(crate) fn new(
        generation: &Generation,
        prompt: &[u32],
        answer: usize,
        ring: Arc<Ring>,
        tokenizer: Arc<Tokenizer>,
        metrics: Arc<Metrics>,
    ) -> Job {
        let seed = generation.seed.wrapping_add(answer as u64);
        let mut sampler = Sampler::new(generation.sampling, seed).with_bias(generation.bias.clone());
        sampler.restart(prompt);
        Job {
            answer,
            ring,
            tokenizer,
            metrics,
            sampler,
            grammar: generation.grammar.clone(),
            top: generation.top,
            ignores_end: generation.ignores_end,
            writes_control: generation.writes_control,
            text: TextStream::new(),
            stop: StopText::new(generation.stops.iter().chain(&generation.turn_mark).cloned()),
            named_stops: generation.stops.clone(),
            held: Generated::default(),
            submitted: Instant::now(),
            admitted: None,
            first: None,
            last: None,
        }
    }

    /// Notes the time of a token.
    fn tick(&mut self) {
        let now = Instant::now();
        match self.last {
            Some(last) => self.metrics.token(now - last),
            None => self.metrics.first_token(now - self.submitted),
        }
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Sends text that is certain, with the scores of all tokens up to it.
    fn send(&mut self, text: &str) {
        if !text.is_empty() {
            let mut held = std::mem::take(&mut self.held);
            held.text.push_str(text);
            self.ring.push(self.answer, Event::Text(held));
        }
    }

    /// A token that the grammar allows.
    fn sample(&mut self, row: StepRow<'_>) -> Result<u32, GrammarError> {
        let logits = match row {
            StepRow::Best(token) => return Ok(token),
            StepRow::Logits(logits) => logits,
        };
        let token = match &mut self.grammar {
            None => self.sampler.sample(logits),
            Some(grammar) => match grammar.mask()? {
                None => self.sampler.sample(logits),
                // A mask always allows a token, so there is one.
                Some(mask) => self.sampler.sample_allowed(logits, mask).unwrap_or_default(),
            },
        };
        if let Some(top) = self.top {
            let LogProbabilities { chosen, top } = LogProbabilities::of(logits, token, top);
            self.held.scores.push(Score { token, log_probability: chosen, top });
        }
        Ok(token)
    }

    /// Writes a token of the answer, and sends the text that is certain by it.
    fn write(&mut self, token: u32) {
        self.held.tokens += 1;
        let bytes = match self.writes_control {
            true => self.tokenizer.decode_special(token),
            false => self.tokenizer.decode(token),
        };
        let certain = self.stop.push(self.text.push(bytes)).to_owned();
        self.send(&certain);
    }

    /// Tells the grammar of the last token, and adds those that are certain to follow it, up to a number of tokens.
    fn follow(&mut self, tokens: &mut Vec<u32>, most: usize) -> Result<Flow, GrammarError> {
        let Some(last) = tokens.last() else { return Ok(Flow::More) };
        let mut forced = Vec::new();
        if let Some(grammar) = &mut self.grammar {
            grammar.accept(*last)?;
            // Log probabilities need a look at each token.
            if self.top.is_none() {
                forced = grammar.forced();
            }
        }
        for token in forced.into_iter().take(most - tokens.len()) {
            if self.stop.is_stopped() {
                break;
            }
            if let Some(grammar) = &mut self.grammar {
                grammar.accept(token)?;
            }
            self.sampler.accept(token);
            tokens.push(token);
            self.write(token);
        }
        let complete = self.grammar.as_ref().is_some_and(GrammarMatcher::is_complete);
        Ok(if complete || self.stop.is_stopped() { Flow::Done } else { Flow::More })
    }

    fn times(&self) -> Times {
        let between = |from: Option<Instant>, to: Option<Instant>| match (from, to) {
            (Some(from), Some(to)) => to.saturating_duration_since(from),
            _ => Duration::ZERO,
        };
        Times {
            queued: between(Some(self.submitted), self.admitted),
            prompt: between(self.admitted, self.first),
            generation: between(self.first, self.last),
        }
    }
}

impl Request for Job {
    fn rows(&self) -> Rows {
        match self.sampler.takes_likeliest() && self.top.is_none() && self.grammar.is_none() {
            true => Rows::Best,
            false => Rows::Logits,
        }
    }

    fn is_ready(&self) -> bool {
        self.ring.has_room()
    }

    fn choose(&mut self, row: StepRow<'_>, tokens: &mut Vec<u32>, room: usize) -> Flow {
        let before = tokens.len();
        self.tick();
        let flow = self.sample(row).and_then(|token| {
            tokens.push(token);
            if self.tokenizer.is_end(token) && !self.ignores_end {
                self.held.scores.pop();
                return Ok(Flow::Done);
            }
            self.write(token);
            self.follow(tokens, before + room)
        });
        flow.unwrap_or_else(|error| Flow::Refused(error.to_string()))
    }

    fn admitted(&mut self, cached: usize) {
        let now = Instant::now();
        self.metrics.admitted(now - self.submitted);
        self.admitted = Some(now);
        self.ring.push(self.answer, Event::Admitted { cached });
    }

    fn end(mut self, end: RequestEnd, usage: RequestUsage) {
        if matches!(end, RequestEnd::Done | RequestEnd::Length) && !self.stop.is_stopped() {
            let rest = self.stop.push(self.text.finish()).to_owned();
            let rest = rest + self.stop.finish();
            self.send(&rest);
        }
        let held = std::mem::take(&mut self.held);
        if !held.scores.is_empty() && !self.stop.is_stopped() {
            self.ring.push(self.answer, Event::Text(held));
        }
        let times = self.times();
        self.metrics.ended(&end, usage, times, self.submitted.elapsed());
        let is_named = |stop: &&str| self.named_stops.iter().any(|named| named == stop);
        let stopped_by = self.stop.stopped_by().filter(is_named).map(str::to_owned);
        self.ring.push(self.answer, Event::End(Ended { end, usage, stopped_by, times }));
    }
}

#[cfg(test)]
mod tests {
    use orlop_llm::{Special, Synth};

    use super::*;
    use crate::engine::mailbox::Mailbox;
    use crate::event_log::EventLog;
    use crate::options::ServerObserver;

    /// What a request with these stops is told that ended it, when the model says this.
    fn stopped_by(stops: &[&str], said: &str) -> Option<String> {
        let keys = Synth { vocabulary: 400, ..Synth::default() }.keys().unwrap();
        let tokenizer = Arc::new(Tokenizer::from_metadata(&keys).unwrap());
        let ring = Arc::new(Ring::new(1, Arc::<Mailbox>::default()));
        let log = EventLog::start(ServerObserver::default()).unwrap();
        let metrics = Arc::new(Metrics::new(Arc::new(log)));
        let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let generation = Generation { stops, turn_mark: Some("\nUser:".to_owned()), ..Generation::default() };
        let mut job = Job::new(&generation, &[1], 0, Arc::clone(&ring), Arc::clone(&tokenizer), metrics);
        let tokens = tokenizer.encode(said, Special::AsText);
        let flows: Vec<Flow> =
            tokens.iter().map(|token| job.choose(StepRow::Best(*token), &mut Vec::new(), 1)).collect();
        assert_eq!(flows.last(), Some(&Flow::Done));
        job.end(RequestEnd::Done, RequestUsage::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        loop {
            if let (_, Event::End(ended)) = runtime.block_on(ring.next()).unwrap() {
                return ended.stopped_by;
            }
        }
    }

    #[test]
    fn the_mark_of_a_turn_ends_an_answer_as_a_token_does() {
        assert_eq!(stopped_by(&["x"], "Hi.\nUser:"), None);
        assert_eq!(stopped_by(&["x"], "Hi x"), Some("x".to_owned()));
        assert_eq!(stopped_by(&["\nUser:"], "Hi.\nUser:"), Some("\nUser:".to_owned()));
    }
}
