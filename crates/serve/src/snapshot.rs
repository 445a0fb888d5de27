//! What the scheduler does now, for people to look at.

use crate::{PagedEngine, Request, RequestId, Scheduler};

/// Why a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// It has just come.
    New,
    /// It was parked to free pages for others.
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
    /// Requests in the queue, the oldest first.
    pub queue: Vec<QueuedView>,
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
        let mut uses: Vec<PageUse> = Vec::new();
        for (id, rows, _, computed) in self.tree.uses() {
            let with = self.running.iter().filter(|running| running.path.contains(&id));
            let requests = with.map(|running| running.work.id).collect();
            if computed {
                uses.push(PageUse { requests, rows });
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
        let queue = self.queue.iter().enumerate().map(|(place, waiting)| QueuedView {
            id: waiting.work.id,
            prompt: waiting.work.prompt,
            generated: waiting.work.generated(),
            reason: waiting.reason,
            wait: self.wait(place),
        });
        Snapshot {
            pages: self.limits.pages,
            free: self.engine.free_pages(),
            evictable: self.tree.evictable(),
            page_rows: page,
            uses,
            running: running.collect(),
            queue: queue.collect(),
        }
    }

    /// Estimated seconds until the request at a place of the queue begins: the work before it, divided among the running ones.
    pub fn wait(&self, place: usize) -> Option<f64> {
        let side_by_side = self.running.len().max(1);
        let prompts: usize =
            self.running.iter().map(|running| running.work.prompt.saturating_sub(running.fed)).sum();
        let before = self.queue.iter().take(place);
        let prompts = prompts + before.clone().map(|waiting| waiting.work.prompt).sum::<usize>();
        let rest = |most: usize, generated: usize| most.saturating_sub(generated);
        let shortest =
            self.running.iter().map(|running| rest(running.work.most, running.work.generated())).min();
        let queued: usize = before.map(|waiting| rest(waiting.work.most, waiting.work.generated())).sum();
        let tokens = shortest.unwrap_or(0) + queued / side_by_side;
        Some(self.speed.prompt_seconds(prompts)? + self.speed.generation_seconds(side_by_side, tokens)?)
    }
}
