//! Requests without an engine: what is left when a scheduler's engine is lost, or taken away.

use std::collections::VecDeque;

use crate::scheduler::{Waiting, Work};
use crate::{PagedEngine, Request, RequestEnd, RequestId, Scheduler, SchedulerCounts};

/// The requests of a scheduler whose engine was taken away ([`Scheduler::suspend`]).
#[derive(Debug)]
pub struct Suspended<R> {
    /// The oldest first.
    pub(crate) queue: VecDeque<Waiting<R>>,
    pub(crate) counts: SchedulerCounts,
    pub(crate) next: u64,
}

impl<R> Default for Suspended<R> {
    /// No requests.
    fn default() -> Suspended<R> {
        Suspended { queue: VecDeque::new(), counts: SchedulerCounts::default(), next: 0 }
    }
}

impl<R: Request> Suspended<R> {
    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Continues with an engine: requests keep their places, and those that do not fit its context end.
    pub fn resume<E: PagedEngine>(self, engine: E) -> Scheduler<E, R> {
        let Suspended { queue, counts, next } = self;
        let mut scheduler = Scheduler { counts, next, ..Scheduler::new(engine) };
        let context = scheduler.context();
        for waiting in queue {
            let Work { prompt, most, .. } = waiting.work;
            let room = (context + 1).saturating_sub(prompt);
            let most = most.min(room);
            if waiting.work.generated() < most {
                let work = Work { most, ..waiting.work };
                scheduler.queue.push_back(Waiting { work, ..waiting });
                continue;
            }
            let end = match room {
                0 => RequestEnd::Failed(format!(
                    "the engine now has a context of {context} tokens, and the prompt has {prompt}"
                )),
                _ => RequestEnd::Length,
            };
            waiting.work.end(end);
        }
        scheduler
    }

    /// Ends a request. Gives whether there was such a request.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let place = self.queue.iter().position(|waiting| waiting.work.id == id);
        let cancelled = place.and_then(|place| self.queue.remove(place));
        let was_there = cancelled.is_some();
        cancelled.into_iter().for_each(|waiting| waiting.work.end(RequestEnd::Cancelled));
        was_there
    }

    /// Ends all requests: there is no engine for them.
    pub fn fail(&mut self, message: &str) {
        self.queue.drain(..).for_each(|waiting| waiting.work.end(RequestEnd::Failed(message.to_owned())));
    }
}
