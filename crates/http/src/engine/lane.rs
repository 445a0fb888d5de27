//! A model with its requests, in memory or not.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use orlop_serve::{
    ModelUse, PagedEngine, Request, RequestEnd, RequestId, RequestUsage, Scheduler, Submission, Suspended,
};

use super::generation::Generation;
use super::job::Job;
use super::mailbox::Key;
use super::paged_model::PagedModel;
use super::ring::Ring;
use crate::front::{Ready, Residence};
use crate::metrics::Metrics;
use crate::model::{LoadModel, LoadedModel};

/// A model with its requests.
pub(crate) struct Lane {
    pub(crate) ready: Arc<Ready>,
    pub(crate) load: Arc<LoadModel>,
    /// Maximum of tokens of a sequence.
    pub(crate) context: Option<u64>,
    /// Maximum of requests that run at the same time.
    pub(crate) parallel: usize,
    pub(crate) metrics: Arc<Metrics>,
    state: LaneState,
    /// The oldest first.
    held: VecDeque<Held>,
    /// The requests of each generation that are not held.
    known: HashMap<Key, Vec<RequestId>>,
    /// The last request that was not held.
    used: u64,
    /// A device was lost, and the model is not loaded on others yet.
    pub(crate) lost: bool,
}

/// Where the model is.
enum LaneState {
    /// Not in memory; with the requests of an engine that was lost.
    Away(Suspended<Job>),
    /// The same, but on its way.
    Coming(Suspended<Job>),
    Here(Box<Scheduler<PagedModel, Job>>),
}

/// A generation that waits for its model.
struct Held {
    /// Its number among all that came.
    came: u64,
    key: Key,
    jobs: Vec<(Submission, Job)>,
}

impl Lane {
    pub(crate) fn new(
        ready: Arc<Ready>,
        load: Arc<LoadModel>,
        context: Option<u64>,
        parallel: usize,
        metrics: Arc<Metrics>,
    ) -> Lane {
        let state = LaneState::Away(Suspended::default());
        let (held, known, used) = (VecDeque::new(), HashMap::new(), 0);
        Lane { ready, load, context, parallel, metrics, state, held, known, used, lost: false }
    }

    /// The scheduler, if the model is in memory.
    pub(crate) fn scheduler(&self) -> Option<&Scheduler<PagedModel, Job>> {
        match &self.state {
            LaneState::Here(scheduler) => Some(scheduler),
            LaneState::Away(_) | LaneState::Coming(_) => None,
        }
    }

    pub(crate) fn scheduler_mut(&mut self) -> Option<&mut Scheduler<PagedModel, Job>> {
        match &mut self.state {
            LaneState::Here(scheduler) => Some(scheduler),
            LaneState::Away(_) | LaneState::Coming(_) => None,
        }
    }

    /// Whether it has no requests.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
            && match &self.state {
                LaneState::Here(scheduler) => scheduler.is_idle(),
                LaneState::Away(suspended) | LaneState::Coming(suspended) => suspended.is_empty(),
            }
    }

    /// Whether a device is lost that it runs on.
    pub(crate) fn is_lost(&self) -> bool {
        self.scheduler().is_some_and(|scheduler| scheduler.engine().is_lost())
    }

    /// Answers that wait for the model.
    pub(crate) fn held(&self) -> usize {
        self.held.iter().map(|held| held.jobs.len()).sum()
    }

    /// What there is to know of it when memory is given away.
    pub(crate) fn usage(&self) -> ModelUse {
        let devices = &self.ready.planned.devices;
        let waits = self.held.front().map(|held| held.came);
        let (loaded, busy, waits) = match &self.state {
            LaneState::Here(scheduler) => (true, !scheduler.is_idle(), waits),
            LaneState::Coming(_) => (true, true, waits),
            // Those that ran when their engine was lost are the oldest.
            LaneState::Away(suspended) if !suspended.is_empty() => (false, false, Some(0)),
            LaneState::Away(_) => (false, false, waits),
        };
        let bytes = devices.iter().map(|device| device.total()).collect();
        ModelUse { bytes, loaded, busy, waits, used: self.used }
    }

    /// Adds a generation behind those that wait.
    pub(crate) fn hold(&mut self, came: u64, key: Key, generation: &Generation, ring: &Arc<Ring>) {
        let each = generation.answers;
        let prompts = generation.prompts.iter().enumerate();
        let answers = prompts.flat_map(|(at, prompt)| (0..each).map(move |n| (at * each + n, prompt)));
        let jobs = answers.map(|(answer, prompt)| {
            let (tokenizer, metrics) = (Arc::clone(&self.ready.tokenizer), Arc::clone(&self.metrics));
            let job = Job::new(generation, prompt, answer, Arc::clone(ring), tokenizer, metrics);
            let (max_tokens, salt) = (generation.max_tokens, generation.salt);
            (Submission { prompt: prompt.clone(), max_tokens, salt }, job)
        });
        self.held.push_back(Held { came, key, jobs: jobs.collect() });
    }

    /// Gives the model those that wait, if it is in memory: all, or those that came before another one.
    pub(crate) fn admit(&mut self, until: Option<u64>) {
        let LaneState::Here(scheduler) = &mut self.state else { return };
        while let Some(held) = self.held.pop_front_if(|held| until.is_none_or(|until| held.came < until)) {
            let mut ids = Vec::with_capacity(held.jobs.len());
            for (submission, job) in held.jobs {
                match scheduler.submit(submission, job) {
                    Ok(id) => ids.push(id),
                    // Requests are checked before they are submitted.
                    Err((refused, job)) => fail(job, &format!("{refused:?}")),
                }
            }
            self.known.insert(held.key, ids);
            self.used = held.came;
        }
    }

    /// Ends what is left of a generation.
    pub(crate) fn release(&mut self, key: Key) {
        if let Some(place) = self.held.iter().position(|held| held.key == key) {
            let jobs = self.held.remove(place).into_iter().flat_map(|held| held.jobs);
            jobs.for_each(|(_, job)| end(job, RequestEnd::Cancelled));
        }
        for id in self.known.remove(&key).into_iter().flatten() {
            match &mut self.state {
                LaneState::Here(scheduler) => scheduler.cancel(id),
                LaneState::Away(suspended) | LaneState::Coming(suspended) => suspended.cancel(id),
            };
        }
    }

    /// Ends everything.
    pub(crate) fn release_all(&mut self) {
        let held = self.held.iter().map(|held| held.key);
        let keys: Vec<Key> = self.known.keys().copied().chain(held).collect();
        keys.into_iter().for_each(|key| self.release(key));
    }

    /// Fails all requests: the model cannot be loaded.
    pub(crate) fn fail(&mut self, message: &str) {
        self.leave();
        if let LaneState::Away(suspended) = &mut self.state {
            suspended.fail(message);
        }
        let held = self.held.drain(..).flat_map(|held| held.jobs);
        held.for_each(|(_, job)| fail(job, message));
    }

    /// The model is being loaded from now on.
    pub(crate) fn come(&mut self) {
        self.change(|state| match state {
            LaneState::Away(suspended) => LaneState::Coming(suspended),
            state => state,
        });
        self.ready.residence.set(Residence::Loading);
    }

    /// The model is loaded.
    pub(crate) fn arrive(&mut self, loaded: LoadedModel) {
        self.metrics.loaded(&self.ready.name, &self.ready.planned, &loaded.memory());
        let engine = PagedModel::new(loaded, self.context, self.parallel);
        self.change(|state| match state {
            LaneState::Away(suspended) | LaneState::Coming(suspended) => {
                LaneState::Here(Box::new(suspended.resume(engine)))
            }
            state => state,
        });
        self.lost = false;
        self.ready.residence.set(Residence::Loaded);
    }

    /// Frees the model's memory. Its requests, if there are any, wait for it.
    pub(crate) fn leave(&mut self) {
        self.change(|state| match state {
            LaneState::Here(scheduler) => LaneState::Away(scheduler.suspend().1),
            LaneState::Away(suspended) | LaneState::Coming(suspended) => LaneState::Away(suspended),
        });
        self.metrics.unloaded(&self.ready.name, &self.ready.planned);
        self.ready.residence.set(Residence::Unloaded);
    }

    fn change(&mut self, change: impl FnOnce(LaneState) -> LaneState) {
        let state = std::mem::replace(&mut self.state, LaneState::Away(Suspended::default()));
        self.state = change(state);
    }
}

fn end(job: Job, end: RequestEnd) {
    Request::end(job, end, RequestUsage::default());
}

fn fail(job: Job, message: &str) {
    end(job, RequestEnd::Failed(message.to_owned()));
}
