//! A server for clients of ggml's protocol, over any devices of this program.
//!
//! - Each client has a thread and a [`session`] of its own: buffers, programs and a quota, freed when it ends.
//! - What a client sends is checked before anything is done with it. Handles are random, addresses are invented, ops are on a
//!   list, results have the shapes that Orlop infers, and every tensor lies in a buffer of the client ([`check`]).
//! - [`RpcAccess`] says who may use it; with a key, the greeting is all that is not encrypted.
//! - The protocol has no errors: a refusal closes the connection, and [`RpcServerEvent`] says why.
//! - Devices compute for one client at a time, in the order in which they asked ([`turns`]).

mod check;
mod compute;
mod packed;
mod session;
mod store;
mod turns;

use std::any::Any;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orlop_backend::Device;

use self::session::Session;
use self::turns::Turns;
use crate::channel::{Channel, Disagreement, Side};
use crate::codec::{
    CodecError, Dialect, ENCRYPTED, RECORD_BYTES, RequestLength, RpcReply, RpcRequest, RpcVersion,
    TensorRecord, command, request_length,
};
use crate::timed::PIECE_BYTES;
use crate::{RpcError, RpcKey};

/// Who may use a server.
#[derive(Clone, Debug)]
pub enum RpcAccess {
    /// Programs of this machine: it listens on a loopback address.
    Local,
    /// Clients of Orlop that have the key, wherever they are. What passes is encrypted.
    Key(RpcKey),
    /// All that reach the address, and what passes can be read and changed on its way.
    Anyone,
}

/// What a server allows.
#[derive(Clone, Debug)]
pub struct RpcLimits {
    /// Clients at a time; further connections are closed. Default 8.
    pub clients: usize,
    /// Bytes of buffers and scratch of one client on each device. Default: no limit.
    pub bytes: u64,
    /// Buffers of one client. Default 4096.
    pub buffers: usize,
    /// Bytes of one graph's message: about 300 for each tensor. Default 64 MiB.
    pub graph_bytes: u64,
    /// Until a client has greeted; for a message or an answer, and for each further MiB of it. Default 30 s.
    pub message: Duration,
    /// Between messages. Default 1 h.
    pub idle: Duration,
    /// Threads of one computation. Default: as many as the device has.
    pub threads: usize,
}

impl Default for RpcLimits {
    fn default() -> RpcLimits {
        RpcLimits {
            clients: 8,
            bytes: u64::MAX,
            buffers: 4096,
            graph_bytes: 64 << 20,
            message: Duration::from_secs(30),
            idle: Duration::from_secs(3600),
            threads: usize::MAX,
        }
    }
}

/// What happened to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum RpcServerEvent {
    /// It connected.
    Connected(SocketAddr),
    /// It was sent away, since there are as many as allowed.
    Full(SocketAddr),
    /// It closed the connection.
    Left(SocketAddr),
    /// The connection was closed, for this reason.
    Refused(SocketAddr, Refusal),
}

/// Why a client's connection is closed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A message that is none.
    #[error(transparent)]
    Message(#[from] CodecError),
    /// The first message is another than HELLO, or HELLO comes twice.
    #[error("command {0} where another must come")]
    OutOfOrder(u8),
    /// A message is too long.
    #[error("{command} with {given} bytes, {most} are allowed")]
    TooLong {
        /// The command.
        command: &'static str,
        /// Its bytes.
        given: u64,
        /// The limit.
        most: u64,
    },
    /// A device that is not served.
    #[error("device {given} of {devices}")]
    Device {
        /// The number that was sent.
        given: u32,
        /// How many there are.
        devices: usize,
    },
    /// A handle that is not the client's.
    #[error("buffer {0:#x} is not known")]
    Buffer(u64),
    /// A tensor that lies outside its buffer, or an access outside its tensor.
    #[error("{tensor}: {bytes} bytes at {address:#x} lie outside")]
    Outside {
        /// The tensor's name.
        tensor: String,
        /// The address that was sent.
        address: u64,
        /// Bytes from there.
        bytes: u64,
    },
    /// A node that does not fit together, or that is not supported.
    #[error("node `{tensor}` of op {op}: {reason}")]
    Node {
        /// The tensor's name.
        tensor: String,
        /// The number of its op.
        op: u32,
        /// What is wrong.
        reason: String,
    },
    /// A graph whose parts do not fit together.
    #[error("the graph is refused: {0}")]
    Graph(&'static str),
    /// A graph is to be repeated, and there is none.
    #[error("device {0} has no graph to repeat")]
    NoGraph(u32),
    /// The quota is used up where that cannot be said in an answer.
    #[error("{bytes} bytes of scratch exceed what is left of the client's memory")]
    Quota {
        /// What is needed.
        bytes: u64,
    },
    /// What a device says.
    #[error(transparent)]
    Compute(#[from] orlop_backend::DeviceError),
    /// The client has no key, or another one.
    #[error("the client {0}")]
    Key(&'static str),
    /// The connection broke, or the client was silent for too long.
    #[error("{0}")]
    Connection(String),
    /// A bug of a device or of the server.
    #[error("this is a bug in orlop: {0}")]
    Panic(String),
}

/// A server that listens.
pub struct RpcServer {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What the threads of a server share.
struct Shared {
    devices: Vec<Arc<dyn Device>>,
    access: RpcAccess,
    limits: RpcLimits,
    dialect: Dialect,
    turns: Turns,
    clients: AtomicUsize,
    stopped: AtomicBool,
    numbers: AtomicU64,
    open: Mutex<Vec<(u64, TcpStream)>>,
}

impl RpcServer {
    /// Listens on an address. The version is what clients are told: they must have the same major number.
    ///
    /// # Errors
    /// [`RpcError::Listen`], [`RpcError::NotLoopback`]; [`RpcError::Protocol`] for a version that is not known, and
    /// [`RpcError::PlainVersion`] for one that cannot ask for a key.
    pub fn bind(
        address: SocketAddr,
        access: RpcAccess,
        devices: Vec<Arc<dyn Device>>,
        version: RpcVersion,
        limits: RpcLimits,
    ) -> Result<RpcServer, RpcError> {
        let server = address.to_string();
        let protocol = |source| RpcError::Protocol { server: server.clone(), source };
        let dialect = version.dialect().map_err(protocol)?;
        match access {
            RpcAccess::Local if !address.ip().is_loopback() => {
                return Err(RpcError::NotLoopback { address: server });
            }
            RpcAccess::Key(_) if !dialect.capabilities => return Err(RpcError::PlainVersion { version }),
            _ => {}
        }
        let listener = TcpListener::bind(address)
            .map_err(|error| RpcError::Listen { address: address.to_string(), reason: error.to_string() })?;
        let shared = Shared {
            devices,
            access,
            limits,
            dialect,
            turns: Turns::default(),
            clients: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            open: Mutex::default(),
        };
        Ok(RpcServer { listener, shared: Arc::new(shared) })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// [`RpcError::Listen`].
    pub fn address(&self) -> Result<SocketAddr, RpcError> {
        let address = self.listener.local_addr();
        address.map_err(|error| RpcError::Listen { address: String::new(), reason: error.to_string() })
    }

    /// Serves clients until [`RpcServer::stop`]; `report` hears of each.
    pub fn serve(&self, report: &(dyn Fn(RpcServerEvent) + Sync)) {
        std::thread::scope(|scope| {
            for stream in self.listener.incoming() {
                if self.shared.stopped.load(Ordering::Acquire) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let Ok(peer) = stream.peer_addr() else { continue };
                let shared = &*self.shared;
                if shared.clients.fetch_add(1, Ordering::AcqRel) >= shared.limits.clients {
                    shared.clients.fetch_sub(1, Ordering::AcqRel);
                    report(RpcServerEvent::Full(peer));
                    continue;
                }
                let place = Place { shared, number: shared.note(&stream) };
                scope.spawn(move || {
                    report(RpcServerEvent::Connected(peer));
                    let talk =
                        AssertUnwindSafe(|| Conversation { shared, channel: Channel::new(stream) }.hold());
                    let ended = catch_unwind(talk).unwrap_or_else(|panic| Err(panicked(&*panic)));
                    drop(place);
                    report(match ended {
                        Ok(()) => RpcServerEvent::Left(peer),
                        Err(refusal) => RpcServerEvent::Refused(peer, refusal),
                    });
                });
            }
            self.shared.close_all();
        });
    }

    /// Ends [`RpcServer::serve`] on another thread, and the conversations with all clients.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        // Wakes the thread that waits for clients.
        if let Ok(address) = self.listener.local_addr() {
            let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        }
        self.shared.close_all();
    }
}

impl Shared {
    /// Remembers a connection, to close it when the server stops.
    fn note(&self, stream: &TcpStream) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        if let Ok(stream) = stream.try_clone() {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).push((number, stream));
        }
        number
    }

    fn forget(&self, number: u64) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != number);
    }

    fn close_all(&self) {
        for (_, stream) in &*self.open.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A client's place among those that are allowed; free for another when this is dropped.
struct Place<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.forget(self.number);
        self.shared.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Refusal {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    Refusal::Panic(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
}

/// One client's connection.
struct Conversation<'a> {
    shared: &'a Shared,
    channel: Channel,
}

impl Conversation<'_> {
    /// Talks until the client leaves.
    fn hold(mut self) -> Result<(), Refusal> {
        let Shared { devices, limits, dialect, turns, .. } = self.shared;
        self.channel.prepare().map_err(|error| silence(&error))?;
        let mut session = Session::new(devices, limits, dialect, turns);
        let mut greeted = false;
        let mut answer = Vec::new();
        let mut payload = Vec::new();
        loop {
            let wait = if greeted { limits.idle } else { limits.message };
            let Some((number, length)) = self.header(wait)? else { return Ok(()) };
            if (number == command::HELLO) == greeted {
                return Err(Refusal::OutOfOrder(number));
            }
            greeted = true;
            let allowed = request_length(dialect, number)?;
            let name = command::NAMES[usize::from(number)];
            let wrong = |expected: String| CodecError::Length { command: name, given: length, expected };
            match allowed {
                RequestLength::Exactly(bytes) if bytes != length => {
                    return Err(wrong(bytes.to_string()).into());
                }
                RequestLength::AtLeast(bytes) if length < bytes => {
                    return Err(wrong(format!("at least {bytes}")).into());
                }
                _ => {}
            }
            answer.clear();
            if number == command::SET_TENSOR {
                self.set_tensor(&mut session, length, &mut payload)?;
                continue;
            }
            if length > limits.graph_bytes {
                return Err(Refusal::TooLong { command: name, given: length, most: limits.graph_bytes });
            }
            self.read(&mut payload, length)?;
            let request = RpcRequest::parse(dialect, number, &payload)?;
            if number == command::HELLO {
                self.greet(&payload)?;
                continue;
            }
            if let RpcRequest::GetTensor { tensor, offset, bytes } = &request {
                let place = session.data_place(tensor, *offset, *bytes)?;
                self.get_tensor(&session, tensor.buffer, place, &mut answer)?;
                continue;
            }
            session.answer(&request, &mut answer)?;
            self.write(&answer)?;
        }
    }

    /// Answers HELLO, and agrees on keys if there must be some.
    fn greet(&mut self, hello: &[u8]) -> Result<(), Refusal> {
        let Shared { access, dialect, limits, .. } = self.shared;
        let padding = if matches!(access, RpcAccess::Key(_)) { ENCRYPTED } else { 0 };
        let reply = RpcReply::Hello { version: dialect.version, padding, capabilities: [0; 24] };
        let mut answer = Vec::new();
        reply.write(dialect, &mut answer);
        self.write(&answer)?;
        let RpcAccess::Key(key) = access else { return Ok(()) };
        let agreed = self.channel.encrypt(Side::Server, key, [hello, &answer[8..]], limits.message);
        agreed.map_err(|disagreement| match disagreement {
            Disagreement::Plain => Refusal::Key("does not encrypt, and a key is needed"),
            Disagreement::OtherKey => Refusal::Key("has another key"),
            Disagreement::Broken(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Refusal::Key("left when it was asked for a key")
            }
            Disagreement::Broken(error) => silence(&error),
        })
    }

    /// The next command and its length; `None` if the client has left.
    fn header(&mut self, wait: Duration) -> Result<Option<(u8, u64)>, Refusal> {
        if !self.channel.wait(wait).map_err(|error| silence(&error))? {
            return Ok(None);
        }
        let mut header = [0; 9];
        self.fill(&mut header)?;
        let [number, length @ ..] = header;
        Ok(Some((number, u64::from_le_bytes(length))))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Refusal> {
        self.channel.read_all(bytes, self.shared.limits.message).map_err(|error| silence(&error))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.channel.write_all([bytes, &[]], self.shared.limits.message).map_err(|error| silence(&error))
    }

    /// Reads a payload, piece by piece: memory grows with what arrives.
    fn read(&mut self, payload: &mut Vec<u8>, length: u64) -> Result<(), Refusal> {
        payload.clear();
        while (payload.len() as u64) < length {
            let begin = payload.len();
            let piece = (length - begin as u64).min(PIECE_BYTES as u64) as usize;
            payload.resize(begin + piece, 0);
            self.fill(&mut payload[begin..])?;
        }
        Ok(())
    }

    /// Data goes to its place as it comes.
    fn set_tensor(
        &mut self,
        session: &mut Session<'_>,
        length: u64,
        piece: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let dialect = &self.shared.dialect;
        let head = (RECORD_BYTES + 8 + usize::from(dialect.store_flag)) as u64;
        self.read(piece, head)?;
        let request = RpcRequest::parse(dialect, command::SET_TENSOR, piece)?;
        let RpcRequest::SetTensor { tensor, offset, .. } = request else { return Ok(()) };
        let tensor: TensorRecord = *tensor;
        let place = session.data_place(&tensor, offset, length - head)?;
        let mut at = place.start;
        while at < place.end {
            self.read(piece, (place.end - at).min(PIECE_BYTES as u64))?;
            session.write(tensor.buffer, at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Data goes to the client as it is read, piece by piece: an answer takes no memory of its size.
    fn get_tensor(
        &mut self,
        session: &Session<'_>,
        buffer: u64,
        place: Range<u64>,
        piece: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        self.write(&(place.end - place.start).to_le_bytes())?;
        let mut at = place.start;
        while at < place.end {
            piece.resize((place.end - at).min(PIECE_BYTES as u64) as usize, 0);
            session.read(buffer, at, piece)?;
            self.write(piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

fn silence(error: &io::Error) -> Refusal {
    Refusal::Connection(match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no message within the time limit".to_owned(),
        _ => error.to_string(),
    })
}
