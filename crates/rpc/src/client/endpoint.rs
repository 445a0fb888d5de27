//! One connection to a server.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use orlop_backend::DeviceError;

use super::device::RpcOptions;
use crate::codec::{Dialect, ReplyLength, RpcReply, RpcRequest, TensorRecord, command, reply_length};
use crate::{RpcAddress, RpcError, timed};

/// Commands are sent at the latest when they are this many bytes.
const FLUSH_BYTES: usize = 64 << 10;

/// A connection. Everything that is asked of it is done in the order in which it was asked.
pub(super) struct Endpoint {
    /// `rpc:host:port`.
    pub(super) name: String,
    pub(super) dialect: Dialect,
    wire: Mutex<Wire>,
    fellows: Fellows,
    lost: OnceLock<String>,
    programs: AtomicU64,
    /// [`RpcOptions::answer`].
    limit: Duration,
}

/// Connections that are sent what they were given before any of them is waited for: no server idles meanwhile.
pub(super) type Fellows = Arc<Mutex<Vec<Weak<Endpoint>>>>;

struct Wire {
    stream: TcpStream,
    /// Commands that are not sent yet.
    pending: Vec<u8>,
    /// Replies without contents that come before the next one.
    owed: usize,
    /// What the server computes for each device when it is told to repeat.
    stored: HashMap<u32, (u64, u64)>,
}

impl Endpoint {
    pub(super) fn connect(
        address: &RpcAddress,
        options: &RpcOptions,
        fellows: &Fellows,
    ) -> Result<Arc<Endpoint>, RpcError> {
        let name = format!("rpc:{address}");
        let silent =
            || RpcError::Silent { server: address.to_string(), seconds: options.handshake.as_secs() };
        // Servers before 4.0 take a greeting without contents, and close the connection after another.
        for dialect in [Dialect::all()[Dialect::all().len() - 1], Dialect::all()[0]] {
            let mut stream = open(address, options)?;
            match greet(&mut stream, &dialect, options.handshake) {
                Ok(Greeting::Version(version)) => {
                    let dialect = version
                        .dialect()
                        .map_err(|source| RpcError::Protocol { server: address.to_string(), source })?;
                    let wire = Wire { stream, pending: Vec::new(), owed: 0, stored: HashMap::new() };
                    let endpoint = Arc::new(Endpoint {
                        name,
                        dialect,
                        wire: Mutex::new(wire),
                        fellows: Arc::clone(fellows),
                        lost: OnceLock::new(),
                        programs: AtomicU64::new(0),
                        limit: options.answer,
                    });
                    let mut known = fellows.lock().unwrap_or_else(PoisonError::into_inner);
                    known.retain(|other| other.strong_count() > 0);
                    known.push(Arc::downgrade(&endpoint));
                    return Ok(endpoint);
                }
                Ok(Greeting::Closed) => {}
                Ok(Greeting::Other(source)) => {
                    return Err(RpcError::Protocol { server: address.to_string(), source });
                }
                Err(error) if is_timeout(&error) => return Err(silent()),
                Err(error) => return Err(refused(address, &error)),
            }
        }
        let reason = "the server closes the connection when it is greeted".to_owned();
        Err(RpcError::Connect { server: address.to_string(), reason })
    }

    /// A number for a program.
    pub(super) fn next_program(&self) -> u64 {
        self.programs.fetch_add(1, Ordering::Relaxed)
    }

    /// Passes unless the connection is lost.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(DeviceError::Lost { device: self.name.clone(), reason: reason.clone() }),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Gives the connection up, for the first reason that there is.
    pub(super) fn lose(&self, reason: String) -> DeviceError {
        let reason = self.lost.get_or_init(|| reason).clone();
        DeviceError::Lost { device: self.name.clone(), reason }
    }

    fn io(&self, doing: &str, error: &std::io::Error) -> DeviceError {
        let reason = match error.kind() {
            _ if is_timeout(error) => format!("no progress while {doing}, until the time limit"),
            ErrorKind::UnexpectedEof => format!("the server closed the connection while {doing}"),
            _ => format!("{error} while {doing}"),
        };
        self.lose(reason)
    }

    fn wire(&self) -> Result<MutexGuard<'_, Wire>, DeviceError> {
        let wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        Ok(wire)
    }

    /// Gives a command whose answer has no contents, or that has none.
    pub(super) fn give(&self, request: &RpcRequest<'_>) -> Result<(), DeviceError> {
        let mut wire = self.wire()?;
        self.append(&mut wire, request);
        if wire.pending.len() >= FLUSH_BYTES { self.flush(&mut wire) } else { Ok(()) }
    }

    fn append(&self, wire: &mut Wire, request: &RpcRequest<'_>) {
        request.write(&self.dialect, &mut wire.pending);
        let answered = reply_length(&self.dialect, request.command());
        wire.owed += usize::from(answered == Ok(ReplyLength::Exactly(0)));
    }

    /// Gives the bytes of a tensor. Many are sent from where they are.
    pub(super) fn give_data(
        &self,
        tensor: TensorRecord,
        offset: u64,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        let request = RpcRequest::SetTensor { tensor: Box::new(tensor), store: false, offset, data };
        if data.len() < FLUSH_BYTES {
            return self.give(&request);
        }
        let mut wire = self.wire()?;
        let Wire { stream, pending, .. } = &mut *wire;
        request.write_head(&self.dialect, pending);
        let sent = timed::write_all(stream, [pending, data], self.limit);
        pending.clear();
        sent.map_err(|error| self.io("sending a tensor", &error))
    }

    /// Gives a program, or the command to repeat it if the server has it: `program` and `form` name it.
    pub(super) fn give_graph(
        &self,
        device: u32,
        [program, form]: [u64; 2],
        message: &[u8],
    ) -> Result<(), DeviceError> {
        let mut wire = self.wire()?;
        if wire.stored.insert(device, (program, form)) == Some((program, form)) {
            self.append(&mut wire, &RpcRequest::Recompute { device });
        } else {
            wire.pending.push(command::GRAPH_COMPUTE);
            wire.pending.extend((message.len() as u64).to_le_bytes());
            wire.pending.extend(message);
        }
        if wire.pending.len() >= FLUSH_BYTES { self.flush(&mut wire) } else { Ok(()) }
    }

    /// Asks for an answer and waits for it: everything given before goes with the question, in one write.
    pub(super) fn ask(&self, request: &RpcRequest<'_>, answer: &mut [u8]) -> Result<(), DeviceError> {
        self.send_fellows();
        let mut wire = self.wire()?;
        self.append(&mut wire, request);
        self.flush(&mut wire)?;
        let doing = || format!("waiting for the answer to {}", request.name());
        for _ in 0..std::mem::take(&mut wire.owed) {
            self.expect(&mut wire, 0, &doing())?;
        }
        self.expect(&mut wire, answer.len() as u64, &doing())?;
        timed::read_all(&mut wire.stream, answer, self.limit).map_err(|error| self.io(&doing(), &error))
    }

    /// Asks for an answer of a fixed length.
    pub(super) fn ask_fixed<'a>(
        &self,
        request: &RpcRequest<'_>,
        answer: &'a mut [u8],
    ) -> Result<RpcReply<'a>, DeviceError> {
        self.ask(request, answer)?;
        RpcReply::parse(&self.dialect, request.command(), answer)
            .map_err(|error| self.lose(error.to_string()))
    }

    /// A number that the server answers.
    pub(super) fn ask_number(&self, request: &RpcRequest<'_>) -> Result<u64, DeviceError> {
        match self.ask_fixed(request, &mut [0; 8])? {
            RpcReply::Number(number) => Ok(number),
            _ => Err(self.lose(format!("{} was not answered by a number", request.name()))),
        }
    }

    /// Two numbers that the server answers.
    pub(super) fn ask_pair(&self, request: &RpcRequest<'_>) -> Result<(u64, u64), DeviceError> {
        match self.ask_fixed(request, &mut [0; 16])? {
            RpcReply::Pair(first, second) => Ok((first, second)),
            _ => Err(self.lose(format!("{} was not answered by two numbers", request.name()))),
        }
    }

    fn expect(&self, wire: &mut Wire, bytes: u64, doing: &str) -> Result<(), DeviceError> {
        let mut length = [0; 8];
        timed::read_all(&mut wire.stream, &mut length, self.limit).map_err(|error| self.io(doing, &error))?;
        let given = u64::from_le_bytes(length);
        if given == bytes {
            return Ok(());
        }
        Err(self.lose(format!("an answer of {given} bytes instead of {bytes} while {doing}")))
    }

    fn flush(&self, wire: &mut Wire) -> Result<(), DeviceError> {
        let sent = timed::write_all(&mut wire.stream, [&wire.pending, &[]], self.limit);
        wire.pending.clear();
        sent.map_err(|error| self.io("sending commands", &error))
    }

    /// Sends what the other connections were given. One that is busy sends for itself.
    fn send_fellows(&self) {
        let fellows: Vec<Arc<Endpoint>> = {
            let known = self.fellows.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().filter_map(Weak::upgrade).collect()
        };
        for fellow in fellows.iter().filter(|fellow| !std::ptr::eq(&***fellow, self)) {
            if let Ok(mut wire) = fellow.wire.try_lock()
                && !wire.pending.is_empty()
            {
                // An error is met again by the next who uses that connection.
                let _ = fellow.flush(&mut wire);
            }
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.dialect.version)
    }
}

fn open(address: &RpcAddress, options: &RpcOptions) -> Result<TcpStream, RpcError> {
    let found = (&*address.host, address.port).to_socket_addrs();
    let found = found.map_err(|error| refused(address, &error))?;
    let mut last = None;
    for socket in found {
        match TcpStream::connect_timeout(&socket, options.connect) {
            Ok(stream) => {
                let ready = timed::prepare(&stream);
                return ready.map(|()| stream).map_err(|error| refused(address, &error));
            }
            Err(error) => last = Some(error),
        }
    }
    let none = || std::io::Error::new(ErrorKind::NotFound, "the name has no address");
    Err(refused(address, &last.unwrap_or_else(none)))
}

enum Greeting {
    Version(crate::codec::RpcVersion),
    /// As servers do that do not take this kind of greeting.
    Closed,
    /// Something else speaks there.
    Other(crate::codec::CodecError),
}

fn greet(stream: &mut TcpStream, dialect: &Dialect, limit: Duration) -> std::io::Result<Greeting> {
    let mut hello = Vec::new();
    RpcRequest::Hello { capabilities: [0; 24] }.write(dialect, &mut hello);
    let mut length = [0; 8];
    let sent = timed::write_all(stream, [&hello, &[]], limit);
    let answered = sent.and_then(|()| timed::read_all(stream, &mut length, limit));
    if let Err(error) = answered {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        let closed = [UnexpectedEof, ConnectionReset, ConnectionAborted, BrokenPipe].contains(&error.kind());
        return if closed { Ok(Greeting::Closed) } else { Err(error) };
    }
    let given = u64::from_le_bytes(length);
    let expected = if dialect.capabilities { 28 } else { 3 };
    if given != expected {
        let expected = expected.to_string();
        let source = crate::codec::CodecError::Length { command: "the answer to HELLO", given, expected };
        return Ok(Greeting::Other(source));
    }
    let mut answer = [0; 28];
    let answer = &mut answer[..given as usize];
    timed::read_all(stream, answer, limit)?;
    Ok(match RpcReply::parse(dialect, command::HELLO, answer) {
        Ok(RpcReply::Hello { version, .. }) => Greeting::Version(version),
        Ok(_) => Greeting::Closed,
        Err(error) => Greeting::Other(error),
    })
}

fn refused(address: &RpcAddress, error: &std::io::Error) -> RpcError {
    RpcError::Connect { server: address.to_string(), reason: error.to_string() }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
