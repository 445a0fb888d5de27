//! The engine's thread: it owns the engine, the scheduler and the samplers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_serve::{RequestId, Scheduler, Submission};

use super::generation::Generation;
use super::job::Job;
use super::live::Live;
use super::mailbox::{Key, Mailbox, Message};
use super::paged_model::PagedModel;
use super::ring::{Ended, Event, Ring, Times};
use crate::metrics::Metrics;
use orlop_llm::Tokenizer;

/// The longest sleep while there is no request.
const IDLE: Duration = Duration::from_secs(3600);

/// The longest sleep while requests wait for their readers.
const PAUSE: Duration = Duration::from_millis(200);

/// The engine's thread.
#[derive(Debug)]
pub(crate) struct EngineLoop {
    pub(crate) scheduler: Scheduler<PagedModel, Job>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) live: Arc<Live>,
    /// The requests of each generation.
    pub(crate) known: HashMap<Key, Vec<RequestId>>,
}

impl EngineLoop {
    /// Runs until the mailbox says that everything ends and everything has.
    pub(crate) fn run(mut self) {
        let begin = Instant::now();
        loop {
            for message in self.mailbox.take() {
                match message {
                    Message::Submit(key, generation, ring) => self.submit(key, &generation, &ring),
                    Message::Release(key) => self.release(key),
                }
            }
            if let Some(ends) = self.mailbox.ends()
                && (self.scheduler.is_idle() || Instant::now() >= ends)
            {
                let keys: Vec<Key> = self.known.keys().copied().collect();
                keys.into_iter().for_each(|key| self.release(key));
                self.publish(true);
                return;
            }
            let mut idle = self.scheduler.is_idle();
            if !idle {
                let report = self.scheduler.step(&mut || begin.elapsed());
                self.metrics.step(&report);
                idle = report.is_idle();
            }
            self.publish(idle);
            if idle {
                // Requests without tokens to feed wait for their readers.
                let most = if self.scheduler.is_idle() { IDLE } else { PAUSE };
                self.mailbox.wait(most);
            }
        }
    }

    fn submit(&mut self, key: Key, generation: &Generation, ring: &Arc<Ring>) {
        let mut ids = Vec::with_capacity(generation.choices());
        let each = generation.answers;
        let prompts = generation.prompts.iter().enumerate();
        for (answer, prompt) in
            prompts.flat_map(|(at, prompt)| (0..each).map(move |n| (at * each + n, prompt)))
        {
            let (tokenizer, metrics) = (Arc::clone(&self.tokenizer), Arc::clone(&self.metrics));
            let job = Job::new(generation, prompt, answer, Arc::clone(ring), tokenizer, metrics);
            let (max_tokens, salt) = (generation.max_tokens, generation.salt);
            let submission = Submission { prompt: prompt.clone(), max_tokens, salt };
            match self.scheduler.submit(submission, job) {
                Ok(id) => ids.push(id),
                // Requests are checked before they are submitted.
                Err((refused, _)) => {
                    let end = orlop_serve::RequestEnd::Failed(format!("{refused:?}"));
                    let (usage, times) = (Default::default(), Times::default());
                    ring.push(answer, Event::End(Ended { end, usage, stopped_by: None, times }));
                }
            }
        }
        self.known.insert(key, ids);
    }

    /// Ends what is left of a generation.
    fn release(&mut self, key: Key) {
        for id in self.known.remove(&key).into_iter().flatten() {
            self.scheduler.cancel(id);
        }
    }

    /// Tells what happens now.
    fn publish(&mut self, idle: bool) {
        self.metrics.counts(self.scheduler.counts(), self.scheduler.running(), self.scheduler.waiting());
        self.metrics.pages(self.scheduler.engine().used_pages());
        let wait = self.scheduler.wait();
        self.live.publish(wait, idle, || self.scheduler.snapshot());
    }
}
