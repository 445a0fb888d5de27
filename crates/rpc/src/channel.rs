//! A connection: plain, or encrypted when both ends have the same key.
//!
//! Encrypted, everything behind the greeting is Noise (`NNpsk0`): a message of each side by which they prove the key and agree
//! on new ones, then records. Before each message and record is its length, of two bytes. The greeting is part of what is
//! proved, so that nothing of it can be changed on its way. Keys are new for each connection and records are counted, so
//! what was sent once is not taken a second time.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Duration;

use snow::{Builder, HandshakeState, TransportState};

use crate::key::RpcKey;
use crate::timed::{self, Pace};

/// Curve, cipher and hash beside the pattern.
const PROTOCOL: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Bytes of each message that agrees on keys: a public key and a tag.
const AGREEMENT_BYTES: usize = 32 + TAG_BYTES;

/// Bytes by which a record is longer than what it holds.
const TAG_BYTES: usize = 16;

/// Bytes that a record holds at most.
const RECORD_BYTES: usize = u16::MAX as usize - TAG_BYTES;

/// Records are sent together up to about this many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Why two ends did not agree on keys.
#[derive(Debug)]
pub(crate) enum Disagreement {
    /// The other end does not encrypt.
    Plain,
    /// Its key is another, or the greeting was changed on its way.
    OtherKey,
    /// The connection broke.
    Broken(io::Error),
}

/// A connection.
pub(crate) struct Channel {
    stream: TcpStream,
    secret: Option<Secret>,
}

impl Channel {
    /// A plain connection.
    pub(crate) fn new(stream: TcpStream) -> Channel {
        Channel { stream, secret: None }
    }

    /// Sends small messages at once, and notices an end that is gone.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        timed::prepare(&self.stream)
    }

    /// Encrypts everything from now on; `greeting` is what was sent and answered before.
    pub(crate) fn encrypt(
        &mut self,
        side: Side,
        key: &RpcKey,
        greeting: [&[u8]; 2],
        limit: Duration,
    ) -> Result<(), Disagreement> {
        let mut state = agreement(side, key, &greeting.concat()).map_err(failed)?;
        let mut pace = Pace::start(limit);
        for sender in [Side::Client, Side::Server] {
            let mut message = [0; 2 + AGREEMENT_BYTES];
            let (length, body) = message.split_at_mut(2);
            if sender == side {
                length.copy_from_slice(&(AGREEMENT_BYTES as u16).to_le_bytes());
                state.write_message(&[], body).map_err(failed)?;
                timed::write_all(&mut self.stream, [&message, &[]], &mut pace)
                    .map_err(Disagreement::Broken)?;
            } else {
                timed::read_all(&mut self.stream, length, &mut pace).map_err(Disagreement::Broken)?;
                // A plain command is shorter, or longer.
                if *length != (AGREEMENT_BYTES as u16).to_le_bytes() {
                    return Err(Disagreement::Plain);
                }
                timed::read_all(&mut self.stream, body, &mut pace).map_err(Disagreement::Broken)?;
                state.read_message(body, &mut []).map_err(|_| Disagreement::OtherKey)?;
            }
        }
        let state = state.into_transport_mode().map_err(failed)?;
        self.secret = Some(Secret { state, record: Vec::new(), plain: Vec::new(), taken: 0 });
        Ok(())
    }

    /// Waits for what the other end sends next; `false` if it has closed the connection.
    pub(crate) fn wait(&self, limit: Duration) -> io::Result<bool> {
        if self.secret.as_ref().is_some_and(|secret| secret.taken < secret.plain.len()) {
            return Ok(true);
        }
        self.stream.set_read_timeout(Some(limit))?;
        loop {
            match self.stream.peek(&mut [0]) {
                Ok(count) => return Ok(count > 0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills `bytes`.
    pub(crate) fn read_all(&mut self, bytes: &mut [u8], limit: Duration) -> io::Result<()> {
        let mut pace = Pace::start(limit);
        match &mut self.secret {
            None => timed::read_all(&mut self.stream, bytes, &mut pace),
            Some(secret) => secret.read_all(&mut self.stream, bytes, &mut pace),
        }
    }

    /// Sends one slice behind the other.
    pub(crate) fn write_all(&mut self, slices: [&[u8]; 2], limit: Duration) -> io::Result<()> {
        let mut pace = Pace::start(limit);
        match &mut self.secret {
            None => timed::write_all(&mut self.stream, slices, &mut pace),
            Some(secret) => secret.write_all(&mut self.stream, slices, &mut pace),
        }
    }
}

/// What encrypts and decrypts.
struct Secret {
    state: TransportState,
    /// Records as they are on the wire.
    record: Vec<u8>,
    /// What the last record held, and how much of it was read.
    plain: Vec<u8>,
    taken: usize,
}

impl Secret {
    fn read_all(&mut self, stream: &mut TcpStream, mut bytes: &mut [u8], pace: &mut Pace) -> io::Result<()> {
        while !bytes.is_empty() {
            let rest = &self.plain[self.taken..];
            if !rest.is_empty() {
                let count = rest.len().min(bytes.len());
                let (filled, open) = bytes.split_at_mut(count);
                filled.copy_from_slice(&rest[..count]);
                self.taken += count;
                bytes = open;
                continue;
            }
            let mut length = [0; 2];
            timed::read_all(stream, &mut length, pace)?;
            let length = usize::from(u16::from_le_bytes(length));
            let Some(held) = length.checked_sub(TAG_BYTES).filter(|held| *held > 0) else {
                return Err(changed());
            };
            self.record.resize(length, 0);
            timed::read_all(stream, &mut self.record, pace)?;
            if held <= bytes.len() {
                let (filled, open) = bytes.split_at_mut(held);
                self.state.read_message(&self.record, filled).map_err(|_| changed())?;
                bytes = open;
            } else {
                // Nothing is left of the last record, whatever comes of this one.
                self.taken = held;
                self.plain.resize(held, 0);
                self.state.read_message(&self.record, &mut self.plain).map_err(|_| changed())?;
                self.taken = 0;
            }
        }
        Ok(())
    }

    fn write_all(&mut self, stream: &mut TcpStream, slices: [&[u8]; 2], pace: &mut Pace) -> io::Result<()> {
        self.record.clear();
        for piece in slices.iter().flat_map(|slice| slice.chunks(RECORD_BYTES)) {
            if self.record.len() >= BATCH_BYTES {
                timed::write_all(stream, [&self.record, &[]], pace)?;
                self.record.clear();
            }
            let length = piece.len() + TAG_BYTES;
            self.record.extend((length as u16).to_le_bytes());
            let begin = self.record.len();
            self.record.resize(begin + length, 0);
            self.state.write_message(piece, &mut self.record[begin..]).map_err(io::Error::other)?;
        }
        timed::write_all(stream, [&self.record, &[]], pace)
    }
}

fn agreement(side: Side, key: &RpcKey, greeting: &[u8]) -> Result<HandshakeState, snow::Error> {
    let builder = Builder::new(PROTOCOL.parse()?).psk(0, key.bytes())?.prologue(greeting)?;
    match side {
        Side::Client => builder.build_initiator(),
        Side::Server => builder.build_responder(),
    }
}

/// Without random numbers of the system, there are no keys.
fn failed(error: snow::Error) -> Disagreement {
    Disagreement::Broken(io::Error::other(error))
}

fn changed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "what came was changed or repeated on its way")
}
