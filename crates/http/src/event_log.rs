//! Events on their way to the observer, which has a thread of its own: a log that blocks delays no connection and no token.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::bounds;
use crate::options::{See, ServerEvent, ServerObserver};

/// Takes events for an observer, as long as it keeps up.
#[derive(Debug)]
pub(crate) struct EventLog(Option<Sending>);

#[derive(Debug)]
struct Sending {
    /// `None` ends the thread.
    events: SyncSender<Option<ServerEvent>>,
    dropped: Arc<AtomicU64>,
    ended: Mutex<Receiver<()>>,
}

/// Time between two looks at a channel that is full.
const LOOK: Duration = Duration::from_millis(5);

impl EventLog {
    /// Starts the thread of an observer that does something.
    pub(crate) fn start(observer: ServerObserver) -> io::Result<EventLog> {
        let Some(see) = observer.function() else { return Ok(EventLog(None)) };
        let (events, coming) = sync_channel(bounds::LOG_EVENTS);
        let (end, ended) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let missing = Arc::clone(&dropped);
        thread::Builder::new().name("orlop-log".to_owned()).spawn(move || {
            show(&coming, &missing, &see);
            // It may be that no end is waited for.
            let _ = end.send(());
        })?;
        Ok(EventLog(Some(Sending { events, dropped, ended: Mutex::new(ended) })))
    }

    /// Shows an event, soon; it is dropped if too many wait.
    pub(crate) fn see(&self, event: impl FnOnce() -> ServerEvent) {
        if let Some(Sending { events, dropped, .. }) = &self.0
            && events.try_send(Some(event())).is_err()
        {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all events were seen, for this time at most.
    pub(crate) fn finish(&self, within: Duration) {
        let Some(Sending { events, ended, .. }) = &self.0 else { return };
        let begin = Instant::now();
        while events.try_send(None).is_err() && begin.elapsed() < within {
            thread::sleep(LOOK);
        }
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        // An observer that does not return is left behind.
        let _ = ended.recv_timeout(within.saturating_sub(begin.elapsed()));
    }
}

fn show(coming: &Receiver<Option<ServerEvent>>, dropped: &AtomicU64, see: &Arc<See>) {
    while let Ok(Some(event)) = coming.recv() {
        see(&event);
        let events = dropped.swap(0, Ordering::Relaxed);
        if events > 0 {
            see(&ServerEvent::Dropped { events });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_that_blocks_holds_up_nothing_and_learns_what_it_missed() {
        let (go, may_go) = sync_channel::<()>(0);
        let may_go = Mutex::new(may_go);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        let log = EventLog::start(ServerObserver::new(move |event| {
            if into.lock().unwrap().is_empty() {
                may_go.lock().unwrap().recv().unwrap();
            }
            into.lock().unwrap().push(event.clone());
        }));
        let log = log.unwrap();
        let sent = 2 * bounds::LOG_EVENTS;
        for _ in 0..sent {
            log.see(|| ServerEvent::Signal);
        }
        go.send(()).unwrap();
        log.finish(Duration::from_secs(60));
        let seen = seen.lock().unwrap();
        let shown = seen.iter().filter(|event| **event == ServerEvent::Signal).count();
        let dropped = seen.iter().find_map(|event| match event {
            ServerEvent::Dropped { events } => Some(*events as usize),
            _ => None,
        });
        assert_eq!(shown + dropped.unwrap(), sent);
    }
}
