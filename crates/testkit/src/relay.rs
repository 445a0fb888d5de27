//! A relay between a client and a server of ggml's RPC protocol, for tests: it counts, delays, and breaks connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a relay does to the bytes of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbance {
    /// Every byte comes this much later.
    pub delay: Duration,
    /// Closes both sides behind this many bytes.
    pub cut: Option<u64>,
    /// Passes nothing on behind this many bytes, and keeps the connection.
    pub stall: Option<u64>,
    /// Inverts the byte at this position.
    pub flip: Option<u64>,
    /// Sends the bytes from the first position to the second once more behind them.
    pub again: Option<[u64; 2]>,
    /// Puts these bytes at this position.
    pub replace: Option<(u64, [u8; 3])>,
}

/// What went through a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// How often each command came, by its number.
    pub commands: Vec<u64>,
    /// Bytes to the server.
    pub sent: u64,
    /// Bytes to the client.
    pub received: u64,
    /// How often the client sent something and the server answered.
    pub round_trips: u64,
}

impl RelayCounts {
    /// What came since an earlier count.
    pub fn since(&self, earlier: &RelayCounts) -> RelayCounts {
        let before = |command: usize| earlier.commands.get(command).copied().unwrap_or(0);
        RelayCounts {
            commands: self.commands.iter().enumerate().map(|(index, count)| count - before(index)).collect(),
            sent: self.sent - earlier.sent,
            received: self.received - earlier.received,
            round_trips: self.round_trips - earlier.round_trips,
        }
    }

    /// All commands.
    pub fn all_commands(&self) -> u64 {
        self.commands.iter().sum()
    }
}

#[derive(Debug, Default)]
struct Shared {
    counts: Mutex<Tally>,
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct Tally {
    counts: RelayCounts,
    /// The last bytes went to the server.
    asked: bool,
}

/// A relay that listens until it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// A relay to a server, which disturbs what goes to it and what comes back.
    ///
    /// # Errors
    /// What keeps it from listening.
    pub fn start(server: SocketAddr, disturbances: [Disturbance; 2]) -> std::io::Result<Relay> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for client in listener.incoming() {
                if own.stopped.load(Ordering::Acquire) {
                    return;
                }
                let Ok(client) = client else { continue };
                let Ok(server) = TcpStream::connect(server) else { continue };
                join(&own, client, server, disturbances);
            }
        });
        Ok(Relay { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What went through so far.
    pub fn counts(&self) -> RelayCounts {
        self.shared.tally().counts.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, to_server: bool, bytes: u64, commands: &[u8]) {
        let Tally { counts, asked } = &mut *self.tally();
        if to_server {
            counts.sent += bytes;
            for command in commands {
                let index = usize::from(*command);
                if counts.commands.len() <= index {
                    counts.commands.resize(index + 1, 0);
                }
                counts.commands[index] += 1;
            }
        } else {
            counts.received += bytes;
            counts.round_trips += u64::from(*asked);
        }
        *asked = to_server;
    }
}

/// Passes bytes between two connections, on threads that end with them.
fn join(shared: &Arc<Shared>, client: TcpStream, server: TcpStream, disturbances: [Disturbance; 2]) {
    let clones = (client.try_clone(), server.try_clone());
    let (Ok(client_again), Ok(server_again)) = clones else { return };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let [to_server, to_client] = disturbances;
    pass(Arc::clone(shared), client, server, to_server, true);
    pass(Arc::clone(shared), server_again, client_again, to_client, false);
}

fn pass(shared: Arc<Shared>, from: TcpStream, to: TcpStream, how: Disturbance, to_server: bool) {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    let reader = move || read(&shared, from, &sender, how, to_server);
    std::thread::spawn(reader);
    std::thread::spawn(move || write(to, &receiver));
}

fn read(
    shared: &Shared,
    mut from: TcpStream,
    sender: &Sender<(Instant, Vec<u8>)>,
    how: Disturbance,
    to_server: bool,
) {
    let (mut passed, mut commands, mut again) = (0u64, Commands::default(), Vec::new());
    let mut piece = vec![0; 256 << 10];
    loop {
        let count = match from.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let limit = how.cut.or(how.stall).unwrap_or(u64::MAX);
        let kept = (count as u64).min(limit.saturating_sub(passed)) as usize;
        let mut bytes = piece[..kept].to_vec();
        if let Some(at) = how.flip.and_then(|at| at.checked_sub(passed))
            && let Some(byte) = bytes.get_mut(at as usize)
        {
            *byte ^= 0xff;
        }
        for (index, new) in how.replace.iter().flat_map(|(at, bytes)| (*at..).zip(bytes)) {
            let old = index.checked_sub(passed).and_then(|at| bytes.get_mut(at as usize));
            old.into_iter().for_each(|old| *old = *new);
        }
        if let Some([begin, end]) = how.again {
            let within = |at: u64| (at.max(passed) - passed).min(kept as u64) as usize;
            again.extend_from_slice(&bytes[within(begin)..within(end)]);
            if (passed..passed + kept as u64).contains(&(end - 1)) {
                bytes.splice(within(end)..within(end), again.drain(..));
            }
        }
        let found = if to_server { commands.find(&bytes) } else { Vec::new() };
        if !bytes.is_empty() {
            shared.count(to_server, kept as u64, &found);
        }
        passed += kept as u64;
        if sender.send((Instant::now() + how.delay, bytes)).is_err() {
            return;
        }
        if kept < count && how.cut.is_some() {
            let _ = from.shutdown(Shutdown::Both);
            return;
        }
    }
}

fn write(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((when, bytes)) = receiver.recv() {
        std::thread::sleep(when.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Finds commands in a stream: a number, a length of 8 bytes, and as many bytes.
#[derive(Default)]
struct Commands {
    header: Vec<u8>,
    /// Bytes of a payload that are still to come.
    rest: u64,
}

impl Commands {
    fn find(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let skipped = self.rest.min(bytes.len() as u64) as usize;
            self.rest -= skipped as u64;
            bytes = &bytes[skipped..];
            let missing = (9 - self.header.len()).min(bytes.len());
            self.header.extend(&bytes[..missing]);
            bytes = &bytes[missing..];
            if let [command, length @ ..] = &self.header[..]
                && let Ok(length) = <[u8; 8]>::try_from(length)
            {
                found.push(*command);
                self.rest = u64::from_le_bytes(length);
                self.header.clear();
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        for (command, length) in [(14u8, 24u64), (15, 0), (6, 300), (10, 12)] {
            stream.push(command);
            stream.extend(length.to_le_bytes());
            stream.extend(vec![9; length as usize]);
        }
        for piece in [1, 7, 9, 100, 1000] {
            let mut commands = Commands::default();
            let found: Vec<u8> = stream.chunks(piece).flat_map(|bytes| commands.find(bytes)).collect();
            assert_eq!(found, [14, 15, 6, 10], "{piece}");
        }
    }
}
