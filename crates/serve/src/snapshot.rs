//! What the scheduler does now, for people to look at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::scheduler::{Waiting, Work};
use crate::tree::NodeId;
use crate::{PagedEngine, Request, RequestId, Scheduler, SchedulerCounts};

/// Requests of the queue that a snapshot shows.
const SHOWN: usize = 64;

/// Why a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// It has just come.
    New,
    /// It was parked to free pages for others, or its place while its reader takes nothing.
    Parked,
    /// The maximum number of requests runs.
    Sequences {
        /// How many run.
        running: usize,
        /// How many may run.
        parallel: usize,
    },
    /// Too few pages can be had.
    Pages {
        /// Pages that it needs.
        needed: usize,
        /// Pages that can be had.
        available: usize,
    },
    /// It begins as a prompt that is being processed, and shares its pages when they are computed.
    Prefix,
    /// An older request waits for pages, and enough younger ones have passed it.
    Behind,
}

/// The state of a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Pages of the cache.
    pub pages: usize,
    /// Pages that no sequence uses.
    pub free: usize,
    /// Pages that can be evicted.
    pub evictable: usize,
    /// Rows of a page.
    pub page_rows: usize,
    /// What the pages in use hold.
    pub uses: Vec<PageUse>,
    /// Requests with a sequence, the oldest first.
    pub running: Vec<RunningView>,
    /// Requests in the queue, the oldest first; of a long queue its beginning.
    pub queue: Vec<QueuedView>,
    /// All requests in the queue.
    pub waiting: usize,
    /// What happened so far.
    pub counts: SchedulerCounts,
}

/// A page of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageUse {
    /// Running requests that use it. None: it is kept for later requests.
    pub requests: Vec<RequestId>,
    /// Rows in use.
    pub rows: usize,
}

/// A request with a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningView {
    /// Which.
    pub id: RequestId,
    /// Tokens of its prompt.
    pub prompt: usize,
    /// Tokens of its prompt that were cached.
    pub cached: usize,
    /// Tokens in the cache.
    pub fed: usize,
    /// Generated tokens.
    pub generated: usize,
    /// Maximum of generated tokens.
    pub most: usize,
    /// Whether it can be parked.
    pub elastic: bool,
}

/// A request in the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueuedView {
    /// Which.
    pub id: RequestId,
    /// Tokens of its prompt.
    pub prompt: usize,
    /// Generated tokens; more than none if it was parked.
    pub generated: usize,
    /// Why it waits.
    pub reason: WaitReason,
    /// Estimated seconds until it begins, if speeds are known.
    pub wait: Option<f64>,
}

impl<E: PagedEngine, R: Request> Scheduler<E, R> {
    /// The state now.
    pub fn snapshot(&self) -> Snapshot {
        let mut users: BTreeMap<NodeId, Vec<RequestId>> = BTreeMap::new();
        for running in &self.running {
            running.path.iter().for_each(|id| users.entry(*id).or_default().push(running.work.id));
        }
        let mut uses: Vec<PageUse> = Vec::new();
        for (id, rows, _, computed) in self.tree.uses() {
            if computed {
                uses.push(PageUse { requests: users.remove(&id).unwrap_or_default(), rows });
            }
        }
        let page = self.limits.page_rows;
        for running in &self.running {
            // The rows behind the pages in the tree.
            let in_tree = (running.path.len() * page).min(running.fed / page * page);
            let mut rest = running.fed - in_tree;
            while rest > 0 {
                uses.push(PageUse { requests: vec![running.work.id], rows: rest.min(page) });
                rest = rest.saturating_sub(page);
            }
        }
        uses.sort_by(|a, b| a.requests.cmp(&b.requests).then(b.rows.cmp(&a.rows)));
        let running = self.running.iter().map(|running| {
            let usage = running.work.usage();
            RunningView {
                id: running.work.id,
                prompt: usage.prompt,
                cached: usage.cached,
                fed: running.fed,
                generated: usage.generated,
                most: running.work.most,
                elastic: running.elastic,
            }
        });
        let queue = self.queue.iter().take(SHOWN).zip(self.waits()).map(|(waiting, wait)| QueuedView {
            id: waiting.work.id,
            prompt: waiting.work.prompt,
            generated: waiting.work.generated(),
            reason: waiting.reason,
            wait,
        });
        Snapshot {
            pages: self.limits.pages,
            free: self.engine.free_pages(),
            evictable: self.tree.evictable(),
            page_rows: page,
            uses,
            running: running.collect(),
            queue: queue.collect(),
            waiting: self.queue.len(),
            counts: self.counts,
        }
    }

    /// Estimated seconds until a new request begins, if speeds are known.
    pub fn wait(&self) -> Option<f64> {
        self.waits().last().flatten()
    }

    /// Estimated seconds until each request of the queue, and a new one behind them, begins: each takes the place that is free
    /// first, and those that wait for pages the place of one that runs.
    fn waits(&self) -> impl Iterator<Item = Option<f64>> {
        let rest = |work: &Work<R>| work.most.saturating_sub(work.generated());
        let beside = self.running.len().max(1);
        let mut ends: BinaryHeap<Reverse<usize>> =
            self.running.iter().map(|running| Reverse(rest(&running.work))).collect();
        let free = self.limits.parallel.saturating_sub(self.running.len());
        ends.extend(std::iter::repeat_n(Reverse(0), free));
        let mut prompts: usize =
            self.running.iter().map(|running| running.work.prompt.saturating_sub(running.fed)).sum();
        let no_pages = !self.running.is_empty() && self.available() == 0;
        let works = self.queue.iter().map(Some).chain([None]);
        works.map(move |waiting| {
            let blocked = waiting.map_or(no_pages, |waiting| {
                matches!(waiting.reason, WaitReason::Pages { .. } | WaitReason::Behind)
            });
            if blocked {
                ends.retain(|end| end.0 > 0);
            }
            let tokens = ends.pop().map_or(0, |end| end.0);
            let before = prompts;
            if let Some(Waiting { work, .. }) = waiting {
                ends.push(Reverse(tokens + rest(work)));
                prompts += work.prompt;
            }
            match tokens {
                0 => Some(0.0),
                _ => {
                    Some(self.speed.prompt_seconds(before)? + self.speed.generation_seconds(beside, tokens)?)
                }
            }
        })
    }
}
