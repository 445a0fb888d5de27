//! Admission: which requests of the queue begin, and which running ones are parked.

use crate::scheduler::{Running, Waiting};
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
            if self.running.len() >= self.limits.parallel {
                let (running, parallel) = (self.running.len(), self.limits.parallel);
                for waiting in self.queue.iter_mut().skip(place) {
                    waiting.reason = WaitReason::Sequences { running, parallel };
                }
                return;
            }
            match self.try_admit(place) {
                Ok(()) => self.queue.iter_mut().take(place).for_each(|waiting| waiting.passed += 1),
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
        let mut found = self.prefix_of(place);
        let work = &self.queue[place].work;
        if found.pending {
            return Err(WaitReason::Prefix);
        }
        let limits = &self.limits;
        let all = limits.pages_of(work.rows());
        let elastic = all > (limits.pages / RESERVED_PART).max(1);
        // A request that grows needs a page soon, and so do the others that grow.
        let growing = self.running.iter().filter(|running| running.elastic).count();
        let (promised, spare) = match elastic {
            false => (work.rows(), 0),
            true => ((work.tokens.len() + limits.page_rows).min(work.rows()), growing),
        };
        let pages = limits.pages_of(promised);
        let available = self.available();
        let enough = |found: &Match| {
            let pinned = self.tree.evictable_of(&found.path);
            let needed = pages - found.path.len();
            let alone = self.running.is_empty();
            if needed + if alone { 0 } else { spare } <= available.saturating_sub(pinned) {
                return Ok(());
            }
            Err(WaitReason::Pages { needed: needed + spare, available: available.saturating_sub(pinned) })
        };
        enough(&found)?;
        if self.running.len() + self.tree.kept() >= self.limits.sequences {
            // The sequence that goes may be the one that this request begins with.
            if let Some(eviction) = self.tree.evict_sequence() {
                self.apply(eviction);
            }
            found = Match { pending: false, ..self.prefix_of(place) };
        }
        let forked = self.tree.source(&found).and_then(|from| self.engine.fork(from, found.len).ok());
        let (sequence, found) = match forked {
            Some(sequence) => (sequence, found),
            None => match self.engine.start() {
                Ok(sequence) => (sequence, Match::default()),
                Err(_) => {
                    let (running, parallel) = (self.running.len(), self.limits.parallel);
                    return Err(WaitReason::Sequences { running, parallel });
                }
            },
        };
        let Some(Waiting { mut work, .. }) = self.queue.remove(place) else { return Ok(()) };
        let path = self.tree.run(work.salt, sequence, &found, &work.tokens[..work.tokens.len()]);
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
            work,
        };
        let after = self.running.partition_point(|other| other.work.id < running.work.id);
        self.running.insert(after, running);
        Ok(())
    }

    /// Puts a running request back into the queue. Its pages stay in the tree until others need them.
    pub(crate) fn park(&mut self, place: usize) {
        let work = self.stop(place);
        self.counts.parked += 1;
        let waiting = Waiting { work, passed: 0, reason: WaitReason::Parked };
        let after = self.queue.partition_point(|other| other.work.id < waiting.work.id);
        self.queue.insert(after, waiting);
    }
}
