//! The engine's thread: it owns the engine, the scheduler and the samplers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_llm::{Error, Tokenizer};
use orlop_serve::{PagedEngine, RequestEnd, RequestId, RequestUsage, Scheduler, Submission};

use super::generation::Generation;
use super::job::Job;
use super::live::Live;
use super::mailbox::{Key, Mailbox, Message, Taken};
use super::paged_model::PagedModel;
use super::ring::{Ended, Event, Ring, Times};
use crate::metrics::Metrics;

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

/// Loads a model again on the devices that are left after a loss.
pub(crate) type Reload<'a> = &'a mut dyn FnMut() -> Result<PagedModel, Error>;

impl EngineLoop {
    /// Runs until the mailbox says that everything ends and everything has.
    ///
    /// # Errors
    /// A device is lost, and the model cannot be loaded without it. All requests have failed then.
    pub(crate) fn run(mut self, reload: Reload<'_>) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            let Taken { messages, ends } = self.mailbox.take();
            for message in messages {
                match message {
                    Message::Submit(key, generation, ring) => self.submit(key, &generation, &ring),
                    Message::Release(key) => self.release(key),
                }
            }
            if let Some(ends) = ends
                && (self.scheduler.is_idle() || Instant::now() >= ends)
            {
                let keys: Vec<Key> = self.known.keys().copied().collect();
                keys.into_iter().for_each(|key| self.release(key));
                self.publish(true);
                self.live.end();
                return Ok(());
            }
            if self.scheduler.engine().is_lost() {
                self = self.on_what_is_left(reload)?;
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

    /// Continues with the devices that are left.
    fn on_what_is_left(self, reload: Reload<'_>) -> Result<EngineLoop, Error> {
        let EngineLoop { scheduler, tokenizer, mailbox, metrics, live, known } = self;
        // The memory of the old engine is free before the new one takes its own.
        let (lost, suspended) = scheduler.suspend();
        drop(lost);
        match reload() {
            Ok(engine) => {
                let scheduler = suspended.resume(engine);
                Ok(EngineLoop { scheduler, tokenizer, mailbox, metrics, live, known })
            }
            Err(error) => {
                mailbox.end_within(Duration::ZERO);
                suspended.fail(&format!("a device is lost: {error}"));
                for message in mailbox.take().messages {
                    if let Message::Submit(_, generation, ring) = message {
                        (0..generation.choices())
                            .for_each(|answer| ring.push(answer, failed(&error.to_string())));
                    }
                }
                live.end();
                Err(error)
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
                Err((refused, _)) => ring.push(answer, failed(&format!("{refused:?}"))),
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

/// The end of an answer that was never begun.
fn failed(message: &str) -> Event {
    let (usage, times) = (RequestUsage::default(), Times::default());
    Event::End(Ended { end: RequestEnd::Failed(message.to_owned()), usage, stopped_by: None, times })
}
