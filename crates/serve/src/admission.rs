//! Admission: which requests of the queue begin, and which running ones are parked.

use crate::scheduler::{Running, Waiting, Work};
use crate::tree::Match;
use crate::{PagedEngine, Request, Scheduler, WaitReason};

/// A request is promised all the pages that it may need, if these are at most this part of all pages.
const RESERVED_PART: usize = 8;

/// Younger requests that may begin before one that waits for pages.
const MAX_PASSED: u32 = 16;

/// Requests of the queue that are looked at.
const LOOKAHEAD: usize = 128;

impl<E: PagedEngine, R: Request> Scheduler<E, R> {
    /// Begins requests, the oldest first. One that waits for pages lets a limited number of younger ones pass.
    pub(crate) fn admit(&mut self) {
        let mut place = 0;
        while place < self.queue.len().min(LOOKAHEAD) {
            if !self.queue[place].work.request.is_ready() {
                place += 1;
                continue;
            }
            if self.running.len() >= self.limits.parallel && !self.park_unready(&mut place) {
                let (running, parallel) = (self.running.len(), self.limits.parallel);
                for waiting in self.queue.iter_mut().skip(place) {
                    waiting.reason = WaitReason::Sequences { running, parallel };
                }
                return;
            }
            match self.try_admit(place) {
                Ok(()) => self.queue.iter_mut().take(place).for_each(|waiting| waiting.passed += 1),
                Err(WaitReason::Pages { .. }) if self.park_unready(&mut place) => {}
                Err(reason) => {
                    let waiting = &mut self.queue[place];
                    waiting.reason = reason;
                    if matches!(reason, WaitReason::Pages { .. }) && waiting.passed >= MAX_PASSED {
                        for younger in self.queue.iter_mut().skip(place + 1) {
                            younger.reason = WaitReason::Behind;
                        }
                        return;
                    }
                    place += 1;
                }
            }
        }
    }

    /// What the cache holds of the beginning of a waiting request; its last token is always fed.
    fn prefix_of(&self, place: usize) -> Match {
        let work = &self.queue[place].work;
        match self.limits.shares {
            true => self.tree.find(work.salt, &work.tokens, work.tokens.len() - 1),
            false => Match::default(),
        }
    }

    fn try_admit(&mut self, place: usize) -> Result<(), WaitReason> {
        let found = self.prefix_of(place);
        if found.pending {
            return Err(WaitReason::Prefix);
        }
        self.check_pages(place, &found)?;
        let found = match self.running.len() + self.tree.kept() >= self.limits.sequences {
            false => found,
            true => {
                // The sequence that goes may be the one that this request begins with.
                if let Some(eviction) = self.tree.evict_sequence() {
                    self.apply(eviction);
                }
                Match { pending: false, ..self.prefix_of(place) }
            }
        };
        let (sequence, found) = self.begin(place, found)?;
        let (promised, elastic) = self.promise(&self.queue[place].work);
        let Some(Waiting { mut work, .. }) = self.queue.remove(place) else { return Ok(()) };
        let path = self.tree.run(work.salt, sequence, &found, &work.tokens);
        let cached = found.len.min(work.prompt);
        if work.cached.is_none() {
            work.cached = Some(cached);
            self.counts.cached_tokens += cached as u64;
            work.request.admitted(cached);
        }
        self.counts.admitted += 1;
        let running = Running {
            sequence,
            path,
            fed: found.len,
            shares_last: found.partial.is_some(),
            promised,
            elastic,
            suspect: false,
            work,
        };
        let after = self.running.partition_point(|other| other.work.id < running.work.id);
        self.running.insert(after, running);
        Ok(())
    }

    /// Rows that a request is promised, and whether it may need more.
    fn promise(&self, work: &Work<R>) -> (usize, bool) {
        let elastic = self.limits.pages_of(work.rows()) > (self.limits.pages / RESERVED_PART).max(1);
        match elastic {
            false => (work.rows(), false),
            true => ((work.tokens.len() + self.limits.page_rows).min(work.rows()), true),
        }
    }

    /// Whether a waiting request that begins with a match can have the pages that it is to be promised.
    fn check_pages(&self, place: usize, found: &Match) -> Result<(), WaitReason> {
        let (promised, elastic) = self.promise(&self.queue[place].work);
        // A request that grows needs a page soon, and so do the others that grow.
        let growing = self.running.iter().filter(|running| running.elastic).count();
        let spare = if elastic && !self.running.is_empty() { growing } else { 0 };
        let needed = self.limits.pages_of(promised) - found.path.len() + spare;
        let available = self.available().saturating_sub(self.tree.evictable_of(&found.path));
        if needed <= available { Ok(()) } else { Err(WaitReason::Pages { needed, available }) }
    }

    /// A sequence that begins with a match, or an empty one where the engine cannot go back to it.
    fn begin(&mut self, place: usize, found: Match) -> Result<(E::Sequence, Match), WaitReason> {
        self.check_pages(place, &found)?;
        let forked = self.tree.source(&found).and_then(|from| self.engine.fork(from, found.len).ok());
        if let Some(sequence) = forked {
            return Ok((sequence, found));
        }
        let nothing = Match::default();
        self.check_pages(place, &nothing)?;
        let (running, parallel) = (self.running.len(), self.limits.parallel);
        let sequence = self.engine.start().map_err(|_| WaitReason::Sequences { running, parallel })?;
        Ok((sequence, nothing))
    }

    /// Parks the youngest request whose reader takes nothing, for one of the queue, whose place may change by that. Gives
    /// whether there was one.
    fn park_unready(&mut self, place: &mut usize) -> bool {
        let Some(unready) = self.running.iter().rposition(|running| !running.work.request.is_ready()) else {
            return false;
        };
        if self.park(unready) <= *place {
            *place += 1;
        }
        true
    }

    /// Puts a running request back into the queue, and gives its place there. Its pages stay in the tree until others need them.
    pub(crate) fn park(&mut self, place: usize) -> usize {
        let work = self.stop(place);
        self.counts.parked += 1;
        self.wait_again(work)
    }

    /// Puts a request that was admitted back into the queue.
    pub(crate) fn wait_again(&mut self, work: Work<R>) -> usize {
        let waiting = Waiting { work, passed: 0, reason: WaitReason::Parked };
        let after = self.queue.partition_point(|other| other.work.id < waiting.work.id);
        self.queue.insert(after, waiting);
        after
    }
}
