//! The thread of the connections.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::signals;
use super::timed_io::TimedIo;
use crate::bounds;
use crate::front::Front;
use crate::options::ServerEvent;

/// Time that connections have for the last bytes of what they are sending.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves connections until `closing` is notified.
pub(crate) fn run(
    listener: TcpListener,
    front: &Arc<Front>,
    router: &Router,
    closing: &Arc<Notify>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(bounds::TEXT_WORKERS + 1)
        .build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let graceful = GracefulShutdown::new();
        if let Some(grace) = front.options.grace {
            tokio::spawn(signals::end(Arc::clone(front), grace));
        }
        let mut closed = std::pin::pin!(closing.notified());
        loop {
            let accepted = std::future::poll_fn(|context| {
                if closed.as_mut().poll(context).is_ready() {
                    return std::task::Poll::Ready(None);
                }
                listener.poll_accept(context).map(Some)
            });
            match accepted.await {
                None => break,
                Some(Ok((stream, _))) => connect(stream, front, router, &graceful),
                Some(Err(error)) => {
                    front.log.see(|| ServerEvent::NotAccepted { error: error.to_string() });
                    // Too many files are open, mostly: some are closed soon.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        drop(listener);
        // Answers are complete; readers have the rest of the time to take them.
        let rest = front
            .mailbox
            .ends()
            .map_or(Duration::ZERO, |ends| ends.saturating_duration_since(Instant::now()));
        let _ = tokio::time::timeout(rest, front.mailbox.emptied()).await;
        let _ = tokio::time::timeout(LAST_WORDS, graceful.shutdown()).await;
        Ok(())
    })
}

/// Serves a connection in a task of its own, unless there are too many.
fn connect(stream: TcpStream, front: &Arc<Front>, router: &Router, graceful: &GracefulShutdown) {
    let count = Count::of(front);
    if front.connections.load(Ordering::Relaxed) > front.options.bounds.connections {
        return;
    }
    // Tokens are small, and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(front.options.bounds.head_time)
        .max_buf_size(bounds::HEAD_BYTES)
        .max_headers(bounds::HEADERS);
    let service = TowerToHyperService::new(router.clone());
    let io = TokioIo::new(TimedIo::new(stream, front.options.bounds.write_time));
    let connection = graceful.watch(builder.serve_connection(io, service));
    tokio::spawn(async move {
        // A client that breaks a connection has ended its requests.
        let _ = connection.await;
        drop(count);
    });
}

/// A connection that is counted while it is open.
struct Count(Arc<Front>);

impl Count {
    fn of(front: &Arc<Front>) -> Count {
        let before = front.connections.fetch_add(1, Ordering::Relaxed);
        front.metrics.connected(before + 1);
        Count(Arc::clone(front))
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let before = self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.metrics.connected(before.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::engine::generation::Generation;
    use crate::engine::mailbox::Room;
    use crate::engine::ring::Ring;
    use crate::{fuzz, routes};

    #[test]
    fn answers_that_are_complete_are_read_before_the_end() {
        let front = fuzz::front();
        let mailbox = Arc::clone(&front.mailbox);
        let room = Room { requests: 1, tokens: 1 };
        let ring = Arc::new(Ring::new(1, Arc::clone(&mailbox)));
        let read = mailbox.submit(0, Generation::default(), ring, room).unwrap();
        mailbox.end_within(Duration::from_secs(600));
        let closing = Arc::new(Notify::new());
        closing.notify_one();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connections = thread::spawn(move || run(listener, &front, &routes::router(&front), &closing));
        thread::sleep(Duration::from_millis(200));
        assert!(!connections.is_finished(), "an answer is still read");
        mailbox.release(read);
        connections.join().unwrap().unwrap();
    }
}
