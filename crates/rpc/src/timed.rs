//! Reading and writing with a limit on the time of each piece instead of each call of the system: a peer that sends a byte
//! now and then holds nothing up. And keep-alive, so that a peer that is gone without a word is noticed.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

/// Bytes that must pass within the time limit, or all if they are fewer.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Without a byte for this long, the system asks the peer whether it is there.
const ALIVE: Duration = Duration::from_secs(60);

/// How often it asks until it gives up.
const ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Sends small messages at once, and notices a peer that is gone.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let alive = TcpKeepalive::new().with_time(ALIVE).with_interval(ALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&alive)
}

/// Fills `bytes`.
pub(crate) fn read_all(stream: &mut TcpStream, mut bytes: &mut [u8], pace: &mut Pace) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_read_timeout(Some(pace.left()?))?;
        match stream.read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                pace.pass(read);
                bytes = &mut bytes[read..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes one slice behind the other, in as few calls as the system takes.
pub(crate) fn write_all(
    stream: &mut TcpStream,
    [mut first, mut second]: [&[u8]; 2],
    pace: &mut Pace,
) -> io::Result<()> {
    while !(first.is_empty() && second.is_empty()) {
        stream.set_write_timeout(Some(pace.left()?))?;
        match stream.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => {
                pace.pass(written);
                let of_first = written.min(first.len());
                (first, second) = (&first[of_first..], &second[written - of_first..]);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How long the current piece may still take.
pub(crate) struct Pace {
    limit: Duration,
    begin: Instant,
    bytes: usize,
}

impl Pace {
    /// Begins a piece.
    pub(crate) fn start(limit: Duration) -> Pace {
        Pace { limit, begin: Instant::now(), bytes: 0 }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.limit.checked_sub(self.begin.elapsed()).filter(|left| !left.is_zero());
        left.ok_or_else(|| ErrorKind::TimedOut.into())
    }

    fn pass(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= PIECE_BYTES {
            *self = Pace::start(self.limit);
        }
    }
}
