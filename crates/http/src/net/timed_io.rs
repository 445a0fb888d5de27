//! A connection whose writes end after a time with little progress: a reader that takes almost nothing is gone.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::bounds;

/// A connection with a limit on the time of writes.
#[derive(Debug)]
pub(crate) struct TimedIo<S> {
    stream: S,
    most: Duration,
    late: Option<Late>,
}

/// A reader that is behind: not everything could be written.
#[derive(Debug)]
struct Late {
    timer: Pin<Box<Sleep>>,
    /// Bytes since the timer began.
    taken: usize,
}

impl<S> TimedIo<S> {
    pub(crate) fn new(stream: S, most: Duration) -> TimedIo<S> {
        TimedIo { stream, most, late: None }
    }

    /// The result of a write, or an error if its reader has taken too little for too long. The time begins when a write waits,
    /// and anew with every few KiB; it ends when all is written, which is when the connection is flushed.
    fn timed(
        &mut self,
        result: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match (&result, &mut self.late) {
            (Poll::Ready(Ok(bytes)), Some(late)) => {
                late.taken += bytes;
                if late.taken >= bounds::SLOWEST_BYTES {
                    self.late = None;
                }
                result
            }
            (Poll::Ready(_), _) => result,
            (Poll::Pending, _) => {
                let most = self.most;
                let late = self.late.get_or_insert_with(|| Late { timer: Box::pin(sleep(most)), taken: 0 });
                ready!(late.timer.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(result, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.late = None;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.timed(result, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Takes this many bytes, each after a write that waits.
    struct Slow {
        each: usize,
        waits: bool,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.waits = !self.waits;
            if !self.waits {
                return Poll::Ready(Ok(self.each));
            }
            // As if its reader had taken something.
            context.waker().wake_by_ref();
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Writes to a reader that takes this many bytes at a time, flushing after each or not, for longer than it may take.
    fn write(each: usize, flushed: bool) -> io::Result<()> {
        let most = Duration::from_millis(20);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut io = TimedIo::new(Slow { each, waits: false }, most);
            for _ in 0..40 {
                poll_fn(|context| Pin::new(&mut io).poll_write(context, &[0; 1 << 16])).await?;
                if flushed {
                    poll_fn(|context| Pin::new(&mut io).poll_flush(context)).await?;
                }
                tokio::time::sleep(most / 10).await;
            }
            Ok(())
        })
    }

    #[test]
    fn a_reader_that_takes_a_byte_now_and_then_is_gone() {
        assert_eq!(write(1, false).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(write(100, false).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_reader_that_keeps_up_is_not() {
        write(bounds::SLOWEST_BYTES, false).unwrap();
        write(1, true).unwrap();
    }
}
