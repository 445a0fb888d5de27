//! Signals that end a server.

use std::sync::Arc;
use std::time::Duration;

use crate::front::Front;
use crate::options::ServerEvent;

/// Ends the server at the first signal, within `grace`, and at the second at once. Before it runs, signals end the process.
pub(crate) async fn end(front: Arc<Front>, grace: Duration) {
    front.running.notified().await;
    let Ok(mut signals) = Signals::new() else { return };
    let mut within = grace;
    loop {
        signals.next().await;
        front.log.see(|| ServerEvent::Signal);
        front.mailbox.end_within(within);
        within = Duration::ZERO;
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        std::future::poll_fn(|context| {
            let interrupted = self.interrupt.poll_recv(context).is_ready();
            let terminated = self.terminate.poll_recv(context).is_ready();
            if interrupted || terminated { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
