//! Steps: which tokens of which requests the engine is fed next.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::pages::Growth;
use crate::scheduler::{Running, Work};
use crate::{DraftText, Flow, Limits, PagedEngine, Request, RequestEnd, Scheduler, StepPart, StepRow};

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
    /// Tokens that it has, and a draft behind them.
    tokens: usize,
    drafted: usize,
    generates: bool,
}

impl Turn {
    fn fed(&self) -> usize {
        self.tokens + self.drafted
    }
}

/// What a request chose in a step.
#[derive(Clone, Debug, Default)]
struct Choice {
    flow: Option<Flow>,
    /// Rows that the request has seen, or whose token was certain.
    rows: usize,
}

impl Choice {
    /// Takes the next row behind tokens whose number was `begin` at first. Breaks when the rest of the draft is of no use.
    fn take<R: Request>(
        &mut self,
        row: StepRow<'_>,
        work: &mut Work<R>,
        begin: usize,
        draft: &[u32],
    ) -> ControlFlow<()> {
        let at = begin + self.rows;
        if work.tokens.len() == at {
            let room = work.most - work.generated();
            self.flow = Some(work.request.choose(row, &mut work.tokens, room));
        }
        let agrees = draft.get(self.rows).is_some_and(|token| work.tokens.get(at) == Some(token));
        self.rows += 1;
        match self.flow {
            Some(Flow::More) if agrees && work.generated() < work.most => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// Tokens of the draft that stay in the cache.
    fn accepted(&self) -> usize {
        self.rows.saturating_sub(1)
    }
}

impl<R: Request, S> Running<R, S> {
    /// Tokens that can be drafted behind those of a turn: each has a row that it was promised, and one more token follows.
    fn draft_room(&self, turn: &Turn, limits: &Limits) -> usize {
        let rows = limits.pages_of(self.promised) * limits.page_rows;
        let wanted = self.work.most - self.work.generated();
        match turn.tokens == 1 && !self.suspect {
            true => rows.saturating_sub(self.fed + turn.tokens).min(wanted.saturating_sub(1)),
            false => 0,
        }
    }
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
        let mut turns = self.turns();
        if turns.is_empty() {
            return StepReport::default();
        }
        let begin = now();
        self.draft(&mut turns);
        let needed = |turn: &Turn| self.running[turn.place].needed(&self.limits, turn.fed());
        let needed = turns.iter().map(needed).sum();
        self.reclaim(needed);
        self.counts.steps += 1;
        let (choices, result) = self.feed(&turns);
        let time = now().saturating_sub(begin);
        let generating = turns.iter().filter(|turn| turn.generates).count();
        let prompt = turns.iter().filter(|turn| !turn.generates).map(|turn| turn.tokens).sum();
        match result {
            Ok(()) => {
                // A step with drafts takes longer, and gives more.
                if turns.iter().all(|turn| turn.drafted == 0) {
                    self.speed.learn(generating, prompt, time);
                }
                self.counts.prompt_tokens += prompt as u64;
                turns.iter().zip(choices).rev().for_each(|(turn, choice)| self.settle(turn, choice));
            }
            Err(error) => {
                let message = error.to_string();
                let chosen = turns.iter().zip(choices).rev();
                chosen.for_each(|(turn, choice)| self.salvage(turn, choice, &message));
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
            let turn = Turn { place, tokens: self.running[place].rest(), drafted: 0, generates };
            if generates && generating + turn.tokens <= batch {
                generating += turn.tokens;
                turns.push(turn);
            } else if !generates {
                turns.push(turn);
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

    /// Has the engine draft what may follow, in a step without prompt tokens.
    fn draft(&mut self, turns: &mut [Turn]) {
        let Scheduler { engine, limits, running, drafts, .. } = self;
        drafts.iter_mut().for_each(Vec::clear);
        drafts.resize(drafts.len().max(turns.len()), Vec::new());
        if turns.iter().any(|turn| !turn.generates) {
            return;
        }
        let texts = turns.iter().map(|turn| {
            let one = &running[turn.place];
            DraftText { sequence: one.sequence, tokens: &one.work.tokens, most: one.draft_room(turn, limits) }
        });
        let texts: Vec<DraftText<'_, E::Sequence>> = texts.collect();
        engine.draft(&texts, &mut drafts[..turns.len()]);
        let fed: usize = turns.iter().map(|turn| turn.tokens).sum();
        let mut room = limits.batch().saturating_sub(fed);
        for ((turn, text), draft) in turns.iter_mut().zip(&texts).zip(drafts) {
            draft.truncate(text.most.min(room));
            turn.drafted = draft.len();
            room -= draft.len();
        }
    }

    /// Feeds the engine; gives what requests chose, which may be something although it failed.
    fn feed(&mut self, turns: &[Turn]) -> (Vec<Choice>, Result<(), E::Error>) {
        let Scheduler { engine, running, scratch, drafts, .. } = self;
        scratch.clear();
        for (turn, draft) in turns.iter().zip(&*drafts) {
            let one = &running[turn.place];
            scratch.extend_from_slice(&one.work.tokens[one.fed..][..turn.tokens]);
            scratch.extend_from_slice(draft);
        }
        let mut rest = scratch.as_slice();
        let mut parts = Vec::with_capacity(turns.len());
        for turn in turns {
            let (tokens, after) = rest.split_at(turn.fed());
            rest = after;
            let one = &running[turn.place];
            let rows = if turn.tokens == one.rest() { one.work.request.rows() } else { Rows::Nothing };
            parts.push(StepPart { sequence: one.sequence, tokens, drafted: turn.drafted, rows });
        }
        let mut choices = vec![Choice::default(); turns.len()];
        let mut each = |index: usize, row: StepRow<'_>| {
            let (turn, draft) = (&turns[index], &drafts[index]);
            let Running { work, fed, .. } = &mut running[turn.place];
            choices[index].take(row, work, *fed + turn.tokens, draft)
        };
        let result = engine.step(&parts, &mut each);
        (choices, result)
    }

    /// Notes what was fed and chosen, and ends what is complete.
    fn settle(&mut self, turn: &Turn, choice: Choice) {
        let accepted = choice.accepted();
        let running = &mut self.running[turn.place];
        let before = running.fed + turn.tokens;
        running.fed = before + accepted;
        (running.shares_last, running.suspect) = (false, false);
        running.work.drafted += turn.drafted;
        running.work.accepted += accepted;
        self.tree.computed(&running.path, running.fed);
        let Some(flow) = choice.flow else { return };
        self.counts.generated_tokens += (running.work.tokens.len() - before) as u64;
        self.counts.drafted_tokens += turn.drafted as u64;
        self.counts.accepted_tokens += accepted as u64;
        let (sequence, fed) = (running.sequence, running.fed);
        let is_full = running.work.generated() >= running.work.most;
        // Some engines cannot go back to before a draft.
        let is_damaged = accepted < turn.drafted && self.engine.truncate(sequence, fed) < fed;
        let end = match flow {
            Flow::Done => Some(RequestEnd::Done),
            Flow::Refused(message) => Some(RequestEnd::Refused(message)),
            Flow::More if is_full => Some(RequestEnd::Length),
            Flow::More => None,
        };
        match (end, is_damaged) {
            (Some(end), false) => self.finish(turn.place, end),
            (Some(end), true) => self.discard(turn.place).end(end),
            (None, false) => {}
            (None, true) => {
                let work = self.discard(turn.place);
                self.wait_again(work);
            }
        }
    }

    /// Keeps what a step that failed has left of a request, if it is what it was or more.
    fn salvage(&mut self, turn: &Turn, choice: Choice, message: &str) {
        let running = &mut self.running[turn.place];
        let len = self.engine.len(running.sequence);
        if len < running.fed || running.suspect {
            return self.fail(turn.place, message);
        }
        if choice.flow.is_some() {
            // Its rows came before the failure.
            return match len == running.fed + turn.fed() {
                true => self.settle(turn, choice),
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
