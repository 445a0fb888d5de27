//! Steps: which tokens of which requests the engine is fed next.

use std::time::Duration;

use crate::pages::Growth;
use crate::scheduler::Running;
use crate::{Flow, PagedEngine, Request, RequestEnd, Scheduler, StepPart, StepRow};

/// What is wanted behind the last token of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Nothing: more tokens follow.
    Nothing,
    /// The likeliest token.
    Best,
    /// The logits.
    Logits,
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Requests that got a token.
    pub generating: usize,
    /// Tokens of prompts.
    pub prompt: usize,
    /// The engine's time.
    pub time: Duration,
}

impl StepReport {
    /// Whether there was nothing to feed: all requests wait for their readers, or there is none.
    pub fn is_idle(&self) -> bool {
        self.generating == 0 && self.prompt == 0
    }
}

/// A running request in a step.
#[derive(Clone, Copy, Debug)]
struct Turn {
    place: usize,
    tokens: usize,
    generates: bool,
}

/// Tokens that take about as long as one.
const READ_BOUND: usize = 16;

impl<E: PagedEngine, R: Request> Scheduler<E, R> {
    /// Admits requests, feeds the engine once, and lets requests choose their next tokens. `now` gives the time since any fixed
    /// moment. While the engine is lost, nothing happens.
    ///
    /// If the engine fails, the requests whose sequences have lost tokens end. The others are fed again, one at a time; one that
    /// fails a second time ends.
    pub fn step(&mut self, now: &mut dyn FnMut() -> Duration) -> StepReport {
        if self.engine.is_lost() {
            return StepReport::default();
        }
        self.admit();
        let turns = self.turns();
        if turns.is_empty() {
            return StepReport::default();
        }
        let needed = |turn: &Turn| self.running[turn.place].needed(&self.limits, turn.tokens);
        let needed = turns.iter().map(needed).sum();
        self.reclaim(needed);
        self.counts.steps += 1;
        let begin = now();
        let (flows, result) = self.feed(&turns);
        let time = now().saturating_sub(begin);
        let generating = turns.iter().filter(|turn| turn.generates).count();
        let prompt = turns.iter().filter(|turn| !turn.generates).map(|turn| turn.tokens).sum();
        match result {
            Ok(()) => {
                self.speed.learn(generating, prompt, time);
                self.counts.prompt_tokens += prompt as u64;
                turns.iter().zip(flows).rev().for_each(|(turn, flow)| self.settle(turn, flow));
            }
            Err(error) => {
                let message = error.to_string();
                turns.iter().zip(flows).rev().for_each(|(turn, flow)| self.salvage(turn, flow, &message));
                self.forget_lost(&message);
            }
        }
        StepReport { generating, prompt, time }
    }

    /// The requests of the next step, by place: a token for each that generates, and a chunk of prompts, the oldest first.
    fn turns(&mut self) -> Vec<Turn> {
        let batch = self.limits.batch();
        let is_suspect =
            |running: &Running<R, E::Sequence>| running.suspect && running.work.request.is_ready();
        let suspect = self.running.iter().find(|running| is_suspect(running)).map(|running| running.work.id);
        let mut generating = 0;
        let mut turns = Vec::new();
        let mut place = 0;
        while place < self.running.len() {
            let running = &self.running[place];
            // One that was parked may have lost rows, which are computed again as a prompt.
            let generates = running.work.generated() > 0 && running.rest() <= READ_BOUND;
            let alone = suspect.is_none_or(|suspect| suspect == running.work.id);
            if !running.work.request.is_ready() || !alone {
                place += 1;
                continue;
            }
            match self.grow(place) {
                Growth::Ready => {}
                Growth::Waits => {
                    place += 1;
                    continue;
                }
                Growth::Parked => continue,
                Growth::Moved => {
                    // Places have changed.
                    (turns, generating, place) = (Vec::new(), 0, 0);
                    continue;
                }
            }
            let tokens = self.running[place].rest();
            if generates && generating + tokens <= batch {
                generating += tokens;
                turns.push(Turn { place, tokens, generates });
            } else if !generates {
                turns.push(Turn { place, tokens, generates });
            }
            place += 1;
        }
        let prompts = turns.iter().filter(|turn| !turn.generates);
        let rest: usize = prompts.clone().map(|turn| turn.tokens).sum();
        let first = prompts.clone().next().map_or(0, |turn| turn.tokens);
        let count = turns.len() - prompts.count();
        let mut chunk = match count {
            0 => batch,
            count => self.speed.chunk(count, first).min(batch - generating),
        };
        chunk = self.whole_batch(generating, chunk.min(rest), rest);
        for turn in turns.iter_mut().filter(|turn| !turn.generates) {
            turn.tokens = turn.tokens.min(chunk);
            chunk -= turn.tokens;
        }
        turns.retain(|turn| turn.tokens > 0);
        turns
    }

    /// Prompt tokens for a step: fewer than `chunk` where the engine would pad too many.
    fn whole_batch(&self, generating: usize, chunk: usize, rest: usize) -> usize {
        let total = generating + chunk;
        let batches = &self.limits.batches;
        let Some(below) = batches.iter().rev().find(|batch| **batch <= total).copied() else { return chunk };
        let above = batches.iter().find(|batch| **batch >= total).copied().unwrap_or(below);
        // The tokens that are left out take another step.
        let apart = below + if chunk == rest { READ_BOUND.max(total - below) } else { 0 };
        if below > generating && above > apart { below - generating } else { chunk }
    }

    /// Feeds the engine; gives what requests chose, which may be something although it failed.
    fn feed(&mut self, turns: &[Turn]) -> (Vec<Option<Flow>>, Result<(), E::Error>) {
        let Scheduler { engine, running, scratch, .. } = self;
        scratch.clear();
        for turn in turns {
            let one = &running[turn.place];
            scratch.extend_from_slice(&one.work.tokens[one.fed..][..turn.tokens]);
        }
        let mut rest = scratch.as_slice();
        let mut parts = Vec::with_capacity(turns.len());
        for turn in turns {
            let (tokens, after) = rest.split_at(turn.tokens);
            rest = after;
            let one = &running[turn.place];
            let rows = if turn.tokens == one.rest() { one.work.request.rows() } else { Rows::Nothing };
            parts.push(StepPart { sequence: one.sequence, tokens, rows });
        }
        let mut flows = vec![None; turns.len()];
        let mut each = |index: usize, row: StepRow<'_>| {
            let work = &mut running[turns[index].place].work;
            let room = work.most - work.generated();
            flows[index] = Some(work.request.choose(row, &mut work.tokens, room));
        };
        let result = engine.step(&parts, &mut each);
        (flows, result)
    }

    /// Notes what was fed and chosen, and ends what is complete.
    fn settle(&mut self, turn: &Turn, flow: Option<Flow>) {
        let running = &mut self.running[turn.place];
        running.fed += turn.tokens;
        (running.shares_last, running.suspect) = (false, false);
        self.tree.computed(&running.path, running.fed);
        let Some(flow) = flow else { return };
        self.counts.generated_tokens += (running.work.tokens.len() - running.fed) as u64;
        let is_full = running.work.generated() >= running.work.most;
        match flow {
            Flow::Done => self.finish(turn.place, RequestEnd::Done),
            Flow::Refused(message) => self.finish(turn.place, RequestEnd::Refused(message)),
            Flow::More if is_full => self.finish(turn.place, RequestEnd::Length),
            Flow::More => {}
        }
    }

    /// Keeps what a step that failed has left of a request, if it is what it was or more.
    fn salvage(&mut self, turn: &Turn, flow: Option<Flow>, message: &str) {
        let running = &mut self.running[turn.place];
        let len = self.engine.len(running.sequence);
        if len < running.fed || running.suspect {
            return self.fail(turn.place, message);
        }
        if flow.is_some() {
            // Its row came before the failure.
            return match len == running.fed + turn.tokens {
                true => self.settle(turn, flow),
                false => self.fail(turn.place, message),
            };
        }
        // The last token is fed again: the row behind it did not come.
        let kept = len.min(running.work.tokens.len() - 1);
        if kept < len && self.engine.truncate(running.sequence, kept) < kept {
            return self.fail(turn.place, message);
        }
        running.shares_last &= kept == running.fed;
        (running.fed, running.suspect) = (kept, true);
        self.tree.computed(&running.path, kept);
    }
}
