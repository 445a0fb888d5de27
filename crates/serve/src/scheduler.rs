//! The scheduler: its requests, and how they begin and end.

use std::collections::VecDeque;

use crate::speed::Speed;
use crate::tree::{Eviction, NodeId};
use crate::{
    Limits, PagedEngine, PrefixTree, Request, RequestEnd, RequestId, RequestUsage, Submission, Suspended,
    WaitReason,
};

/// Schedules requests on an engine.
#[derive(Debug)]
pub struct Scheduler<E: PagedEngine, R> {
    pub(crate) engine: E,
    pub(crate) limits: Limits,
    pub(crate) tree: PrefixTree<E::Sequence>,
    /// The oldest first.
    pub(crate) queue: VecDeque<Waiting<R>>,
    /// The oldest first.
    pub(crate) running: Vec<Running<R, E::Sequence>>,
    pub(crate) speed: Speed,
    pub(crate) counts: SchedulerCounts,
    /// Tokens of the parts of a step.
    pub(crate) scratch: Vec<u32>,
    /// Drafts of the parts of a step.
    pub(crate) drafts: Vec<Vec<u32>>,
    pub(crate) next: u64,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerCounts {
    /// Steps of the engine.
    pub steps: u64,
    /// Requests that were admitted, counted again after each parking.
    pub admitted: u64,
    /// Sequences that were parked.
    pub parked: u64,
    /// Pages that were evicted.
    pub evicted_pages: u64,
    /// Tokens of prompts that were found in the cache.
    pub cached_tokens: u64,
    /// Tokens of prompts that were processed.
    pub prompt_tokens: u64,
    /// Tokens that were generated.
    pub generated_tokens: u64,
    /// Tokens that were drafted and verified.
    pub drafted_tokens: u64,
    /// Of these, tokens that requests chose.
    pub accepted_tokens: u64,
}

/// Why a request is not accepted: it can never run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no token to begin with.
    EmptyPrompt,
    /// The prompt leaves no room for an answer.
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that a sequence may have.
        context: usize,
    },
}

/// A request that is not admitted, or was parked.
#[derive(Debug)]
pub(crate) struct Waiting<R> {
    pub(crate) work: Work<R>,
    /// Younger requests that were admitted before it because they needed fewer pages.
    pub(crate) passed: u32,
    pub(crate) reason: WaitReason,
}

/// A request, wherever it is.
#[derive(Debug)]
pub(crate) struct Work<R> {
    pub(crate) id: RequestId,
    pub(crate) request: R,
    pub(crate) salt: u64,
    /// The prompt, and what was generated.
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt: usize,
    /// Maximum number of tokens to generate.
    pub(crate) most: usize,
    /// Of the prompt, in the cache when it was first admitted.
    pub(crate) cached: Option<usize>,
    pub(crate) drafted: usize,
    pub(crate) accepted: usize,
}

/// A request with a sequence in the engine.
#[derive(Debug)]
pub(crate) struct Running<R, S> {
    pub(crate) work: Work<R>,
    pub(crate) sequence: S,
    /// Its pages that are in the tree.
    pub(crate) path: Vec<NodeId>,
    /// Tokens in the cache.
    pub(crate) fed: usize,
    /// Its last page is another sequence's until it is written.
    pub(crate) shares_last: bool,
    /// Rows that it can have in any case.
    pub(crate) promised: usize,
    /// It may need more than it was promised, and can be parked.
    pub(crate) elastic: bool,
    /// A step with it failed: it is fed alone until one succeeds.
    pub(crate) suspect: bool,
}

impl<R: Request> Work<R> {
    /// Tells the request that it has ended.
    pub(crate) fn end(self, end: RequestEnd) {
        let usage = self.usage();
        self.request.end(end, usage);
    }
}

impl<R> Work<R> {
    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt
    }

    pub(crate) fn usage(&self) -> RequestUsage {
        RequestUsage {
            prompt: self.prompt,
            cached: self.cached.unwrap_or(0),
            generated: self.generated(),
            drafted: self.drafted,
            accepted: self.accepted,
        }
    }

    /// Rows that it may need: the last token is not fed.
    pub(crate) fn rows(&self) -> usize {
        self.prompt + self.most - 1
    }
}

impl<R, S> Running<R, S> {
    /// Tokens that are to be fed.
    pub(crate) fn rest(&self) -> usize {
        self.work.tokens.len() - self.fed
    }
}

impl<E: PagedEngine, R: Request> Scheduler<E, R> {
    /// A scheduler without requests.
    pub fn new(engine: E) -> Scheduler<E, R> {
        let limits = engine.limits();
        let tree = PrefixTree::new(limits.page_rows, limits.attention);
        Scheduler {
            engine,
            limits,
            tree,
            queue: VecDeque::new(),
            running: Vec::new(),
            speed: Speed::default(),
            counts: SchedulerCounts::default(),
            scratch: Vec::new(),
            drafts: Vec::new(),
            next: 0,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine's sizes.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Pages that are kept for later requests, and can be evicted.
    pub fn evictable(&self) -> usize {
        self.tree.evictable()
    }

    /// Maximum number of tokens of a sequence.
    pub fn context(&self) -> usize {
        self.limits.context.min(self.limits.pages * self.limits.page_rows)
    }

    /// What happened so far.
    pub fn counts(&self) -> SchedulerCounts {
        self.counts
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty()
    }

    /// Requests that are not admitted.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Requests that have a sequence.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Adds a request to the queue.
    ///
    /// # Errors
    /// It can never run; the request is given back.
    pub fn submit(&mut self, submission: Submission, request: R) -> Result<RequestId, (Refused, R)> {
        let Submission { prompt, max_tokens, salt } = submission;
        let context = self.context();
        if prompt.is_empty() {
            return Err((Refused::EmptyPrompt, request));
        }
        if prompt.len() > context {
            return Err((Refused::TooLong { prompt: prompt.len(), context }, request));
        }
        let id = RequestId(self.next);
        self.next += 1;
        let length = prompt.len();
        let most = max_tokens.min(context - length + 1);
        let (cached, drafted, accepted) = (None, 0, 0);
        let work =
            Work { id, request, salt, tokens: prompt, prompt: length, most, cached, drafted, accepted };
        if most == 0 {
            work.end(RequestEnd::Length);
            return Ok(id);
        }
        self.queue.push_back(Waiting { work, passed: 0, reason: WaitReason::New });
        Ok(id)
    }

    /// Ends a request, wherever it is. What was computed for it stays in the cache. Gives whether there was such a request.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if let Some(place) = self.queue.iter().position(|waiting| waiting.work.id == id) {
            if let Some(waiting) = self.queue.remove(place) {
                waiting.work.end(RequestEnd::Cancelled);
            }
            return true;
        }
        let Some(place) = self.running.iter().position(|running| running.work.id == id) else { return false };
        self.finish(place, RequestEnd::Cancelled);
        true
    }

    /// Ends a running request, and keeps its pages.
    pub(crate) fn finish(&mut self, place: usize, end: RequestEnd) {
        self.stop(place).end(end);
    }

    /// Takes a request from the running ones, and keeps its pages for others and for itself.
    pub(crate) fn stop(&mut self, place: usize) -> Work<R> {
        let Running { work, sequence, path, fed, .. } = self.running.remove(place);
        self.engine.end_drafts(sequence);
        if self.limits.shares {
            let evictions = self.tree.keep(work.salt, sequence, path, &work.tokens[..fed]);
            evictions.into_iter().for_each(|eviction| self.apply(eviction));
        } else {
            self.tree.forget(sequence, &path);
            self.engine.end(sequence);
        }
        work
    }

    /// Ends a request whose sequence may be damaged.
    pub(crate) fn fail(&mut self, place: usize, message: &str) {
        self.discard(place).end(RequestEnd::Failed(message.to_owned()));
    }

    /// Takes a request from the running ones, and ends its sequence.
    pub(crate) fn discard(&mut self, place: usize) -> Work<R> {
        let Running { work, sequence, path, .. } = self.running.remove(place);
        self.engine.end_drafts(sequence);
        self.tree.forget(sequence, &path);
        self.engine.end(sequence);
        work
    }

    /// Ends the requests that lost tokens in a failed step although they were not fed, and forgets what is kept and lost tokens.
    pub(crate) fn forget_lost(&mut self, message: &str) {
        for place in (0..self.running.len()).rev() {
            let running = &self.running[place];
            if self.engine.len(running.sequence) < running.fed {
                self.fail(place, message);
            }
        }
        let (engine, tree) = (&self.engine, &self.tree);
        let lost: Vec<E::Sequence> = tree
            .kept_tokens()
            .filter_map(|(sequence, tokens)| (engine.len(sequence) < tokens).then_some(sequence))
            .collect();
        for sequence in lost {
            let eviction = self.tree.drop_kept(sequence);
            self.apply(eviction);
        }
    }

    /// Takes the engine away. Requests that run begin anew, later, with the tokens that they have.
    pub fn suspend(mut self) -> (E, Suspended<R>) {
        for running in std::mem::take(&mut self.running) {
            self.wait_again(running.work);
        }
        let Scheduler { engine, queue, counts, next, .. } = self;
        (engine, Suspended { queue, counts, next })
    }

    /// Evicts all pages that no running request uses.
    pub fn clear_cache(&mut self) {
        while let Some(eviction) = self.tree.evict_page() {
            self.apply(eviction);
        }
    }

    /// Does to the engine's sequences what was done to the tree.
    pub(crate) fn apply(&mut self, eviction: Eviction<E::Sequence>) {
        match eviction {
            Eviction::Truncate(sequence, len) => {
                if self.engine.truncate(sequence, len) < len {
                    self.tree.lost(sequence);
                    self.engine.end(sequence);
                }
            }
            Eviction::RequestEnd(sequence) => self.engine.end(sequence),
        }
    }
}
