//! The engine's thread: it owns the engines, the schedulers and the samplers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use orlop_llm::Error;
use orlop_serve::{ModelMove, ModelUse};

use super::lane::Lane;
use super::mailbox::{Mailbox, Message, Taken};
use crate::metrics::Metrics;
use crate::model::LoadedModel;

/// The longest sleep while there is no request.
const IDLE: Duration = Duration::from_secs(3600);

/// The longest sleep while requests wait for their readers.
const PAUSE: Duration = Duration::from_millis(200);

/// The engine's thread. Models that are in memory take turns, step by step; they are loaded by threads of their own.
pub(crate) struct EngineLoop {
    lanes: Vec<Lane>,
    /// Bytes of each device.
    capacity: Vec<u64>,
    mailbox: Arc<Mailbox>,
    metrics: Arc<Metrics>,
    loading: Option<Loading>,
    /// Generations that came, and those that were lost before all.
    came: u64,
}

/// A model that is being loaded.
struct Loading {
    lane: usize,
    engine: Receiver<Result<LoadedModel, Error>>,
}

/// Rings when it is dropped.
struct Bell(Arc<Mailbox>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl EngineLoop {
    /// Models on devices of some capacity.
    pub(crate) fn new(
        lanes: Vec<Lane>,
        capacity: Vec<u64>,
        mailbox: Arc<Mailbox>,
        metrics: Arc<Metrics>,
    ) -> EngineLoop {
        EngineLoop { lanes, capacity, mailbox, metrics, loading: None, came: 1 }
    }

    /// Runs until the mailbox says that everything ends and everything has.
    ///
    /// # Errors
    /// A device is lost, and a model cannot be loaded without it. All requests have failed then.
    pub(crate) fn run(mut self) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            let Taken { messages, ends } = self.mailbox.take();
            messages.into_iter().for_each(|message| self.hear(message));
            if let Some(ends) = ends
                && (self.lanes.iter().all(Lane::is_idle) || Instant::now() >= ends)
            {
                self.lanes.iter_mut().for_each(Lane::release_all);
                self.publish(true);
                self.lanes.iter().for_each(|lane| lane.ready.live.end());
                return Ok(());
            }
            for lane in self.lanes.iter_mut().filter(|lane| lane.is_lost()) {
                // The memory of the old engine is free before the new one takes its own.
                lane.leave();
                lane.lost = true;
            }
            if let Err(error) = self.receive() {
                self.end_all(&error);
                return Err(error);
            }
            self.arrange();
            let mut idle = true;
            for scheduler in self.lanes.iter_mut().filter_map(Lane::scheduler_mut) {
                if !scheduler.is_idle() {
                    let report = scheduler.step(&mut || begin.elapsed());
                    self.metrics.step(&report);
                    idle &= report.is_idle();
                }
            }
            self.publish(idle);
            if idle {
                // Requests without tokens to feed wait for their readers.
                let paused = self.lanes.iter().filter_map(Lane::scheduler).any(|one| !one.is_idle());
                self.mailbox.wait(if paused { PAUSE } else { IDLE });
            }
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Submit { key, model, generation, ring } => {
                self.lanes[model].hold(self.came, key, &generation, &ring);
                self.came += 1;
            }
            Message::Release(key) => self.lanes.iter_mut().for_each(|lane| lane.release(key)),
        }
    }

    /// Gives requests to models that are in memory, and memory to models that have requests.
    fn arrange(&mut self) {
        let uses: Vec<ModelUse> = self.lanes.iter().map(Lane::usage).collect();
        let next = ModelMove::next(&self.capacity, &uses);
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            lane.admit(match &next {
                ModelMove::Drain { models, until } if models.contains(&index) => Some(*until),
                ModelMove::Load { unload, .. } if unload.contains(&index) => Some(0),
                _ => None,
            });
        }
        if let ModelMove::Load { model, unload } = next
            && self.loading.is_none()
        {
            unload.into_iter().for_each(|index| self.lanes[index].leave());
            self.start_loading(model);
        }
    }

    /// Loads a model in a thread of its own: those that are in memory go on.
    fn start_loading(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        let (send, engine) = channel();
        let (load, mailbox) = (Arc::clone(&lane.load), Arc::clone(&self.mailbox));
        let started = thread::Builder::new().name("orlop-load".to_owned()).spawn(move || {
            // It rings when the engine has been sent, or never will be.
            let _bell = Bell(mailbox);
            let send = send;
            // Nothing waits for it if the server has ended.
            let _ = send.send(load());
        });
        match started {
            Ok(_) => {
                lane.come();
                self.loading = Some(Loading { lane: index, engine });
            }
            Err(error) => lane.fail(&format!("the model cannot be loaded: {error}")),
        }
    }

    /// Takes an engine that has been loaded.
    ///
    /// # Errors
    /// A model whose device was lost cannot be loaded.
    fn receive(&mut self) -> Result<(), Error> {
        let Some(Loading { lane, engine }) = &self.loading else { return Ok(()) };
        let lane = &mut self.lanes[*lane];
        match engine.try_recv() {
            Err(TryRecvError::Empty) => return Ok(()),
            Ok(Ok(engine)) => lane.arrive(engine),
            Ok(Err(error)) if lane.lost => return Err(error),
            Ok(Err(error)) => lane.fail(&format!("the model cannot be loaded: {error}")),
            Err(TryRecvError::Disconnected) => {
                lane.fail("the model cannot be loaded: its thread has panicked")
            }
        }
        self.loading = None;
        Ok(())
    }

    /// Fails all requests, those that have just come, too.
    fn end_all(&mut self, error: &Error) {
        self.mailbox.end_within(Duration::ZERO);
        self.mailbox.take().messages.into_iter().for_each(|message| self.hear(message));
        for lane in &mut self.lanes {
            lane.fail(&format!("a device is lost: {error}"));
            lane.ready.live.end();
        }
    }

    /// Tells what happens now.
    fn publish(&self, idle: bool) {
        let (mut running, mut waiting, mut used, mut pages) = (0, 0, 0, 0);
        for lane in &self.lanes {
            waiting += lane.held();
            let Some(scheduler) = lane.scheduler() else { continue };
            running += scheduler.running();
            waiting += scheduler.waiting();
            let (of_them, all) = scheduler.engine().page_counts();
            (used, pages) = (used + of_them, pages + all);
            self.metrics.counts(&lane.ready.name, scheduler.counts());
            lane.ready.live.publish(scheduler.wait(), idle, || scheduler.snapshot());
        }
        self.metrics.requests(running, waiting);
        self.metrics.pages(used as f64 / pages.max(1) as f64);
    }
}
