//! One connection to a server.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use orlop_backend::DeviceError;

use super::device::RpcOptions;
use crate::channel::{Channel, Disagreement, Side};
use crate::codec::{
    CodecError, Dialect, ENCRYPTED, ReplyLength, RpcReply, RpcRequest, RpcVersion, TensorRecord, command,
    reply_length,
};
use crate::{RpcAddress, RpcError};

/// Commands are sent at the latest when they are this many bytes.
const FLUSH_BYTES: usize = 64 << 10;

/// Bytes of a command and the length of its payload.
const HEADER_BYTES: usize = 9;

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
    encrypted: bool,
}

/// Connections that are sent what they were given before any of them is waited for: no server idles meanwhile.
pub(super) type Fellows = Arc<Mutex<Vec<Weak<Endpoint>>>>;

struct Wire {
    channel: Channel,
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
        // Servers before 4.0 take a greeting without contents, and close the connection after another.
        for dialect in [Dialect::all()[Dialect::all().len() - 1], Dialect::all()[0]] {
            let mut channel = open(address, options)?;
            match greet(&mut channel, &dialect, options.handshake) {
                Ok(Greeting::Hello(hello)) => {
                    let dialect = hello
                        .version
                        .dialect()
                        .map_err(|source| RpcError::Protocol { server: address.to_string(), source })?;
                    agree(&mut channel, address, options, &hello)?;
                    let wire = Wire { channel, pending: Vec::new(), owed: 0, stored: HashMap::new() };
                    let endpoint = Arc::new(Endpoint {
                        name,
                        dialect,
                        wire: Mutex::new(wire),
                        fellows: Arc::clone(fellows),
                        lost: OnceLock::new(),
                        programs: AtomicU64::new(0),
                        limit: options.answer,
                        encrypted: options.key.is_some(),
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
                Err(error) if is_timeout(&error) => return Err(silent(address, options)),
                Err(error) => return Err(refused(address, &error)),
            }
        }
        let reason = "the server closes the connection when it is greeted".to_owned();
        Err(RpcError::Connect { server: address.to_string(), reason })
    }

    /// What to say about encryption behind the version.
    pub(super) fn secrecy(&self) -> &'static str {
        if self.encrypted { ", encrypted" } else { "" }
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
        let Wire { channel, pending, .. } = &mut *wire;
        request.write_head(&self.dialect, pending);
        let sent = channel.write_all([pending, data], self.limit);
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
        wire.channel.read_all(answer, self.limit).map_err(|error| self.io(&doing(), &error))
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
        wire.channel.read_all(&mut length, self.limit).map_err(|error| self.io(doing, &error))?;
        let given = u64::from_le_bytes(length);
        if given == bytes {
            return Ok(());
        }
        Err(self.lose(format!("an answer of {given} bytes instead of {bytes} while {doing}")))
    }

    fn flush(&self, wire: &mut Wire) -> Result<(), DeviceError> {
        let Wire { channel, pending, .. } = wire;
        let sent = channel.write_all([pending, &[]], self.limit);
        pending.clear();
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

fn open(address: &RpcAddress, options: &RpcOptions) -> Result<Channel, RpcError> {
    let found = (&*address.host, address.port).to_socket_addrs();
    let found = found.map_err(|error| refused(address, &error))?;
    let mut last = None;
    for socket in found {
        match TcpStream::connect_timeout(&socket, options.connect) {
            Ok(stream) => {
                let channel = Channel::new(stream);
                let ready = channel.prepare();
                return ready.map(|()| channel).map_err(|error| refused(address, &error));
            }
            Err(error) => last = Some(error),
        }
    }
    let none = || std::io::Error::new(ErrorKind::NotFound, "the name has no address");
    Err(refused(address, &last.unwrap_or_else(none)))
}

enum Greeting {
    Hello(Hello),
    /// As servers do that do not take this kind of greeting.
    Closed,
    /// Something else speaks there.
    Other(CodecError),
}

/// A greeting and its answer.
struct Hello {
    version: RpcVersion,
    encrypts: bool,
    sent: Vec<u8>,
    answer: Vec<u8>,
}

fn greet(channel: &mut Channel, dialect: &Dialect, limit: Duration) -> std::io::Result<Greeting> {
    let mut sent = Vec::new();
    RpcRequest::Hello { capabilities: [0; 24] }.write(dialect, &mut sent);
    let mut length = [0; 8];
    let answered = channel.write_all([&sent, &[]], limit).and_then(|()| channel.read_all(&mut length, limit));
    if let Err(error) = answered {
        return if is_closed(&error) { Ok(Greeting::Closed) } else { Err(error) };
    }
    let given = u64::from_le_bytes(length);
    let expected = if dialect.capabilities { 28 } else { 3 };
    if given != expected {
        let expected = expected.to_string();
        return Ok(Greeting::Other(CodecError::Length { command: "the answer to HELLO", given, expected }));
    }
    let mut answer = vec![0; given as usize];
    channel.read_all(&mut answer, limit)?;
    Ok(match RpcReply::parse(dialect, command::HELLO, &answer) {
        Ok(RpcReply::Hello { version, padding, .. }) => {
            let payload = sent.split_off(HEADER_BYTES);
            Greeting::Hello(Hello { version, encrypts: padding & ENCRYPTED != 0, sent: payload, answer })
        }
        Ok(_) => Greeting::Closed,
        Err(error) => Greeting::Other(error),
    })
}

/// Encrypts if there is a key. With one, nothing is sent to a server that does not encrypt.
fn agree(
    channel: &mut Channel,
    address: &RpcAddress,
    options: &RpcOptions,
    hello: &Hello,
) -> Result<(), RpcError> {
    let server = address.to_string();
    match (&options.key, hello.encrypts) {
        (None, false) => Ok(()),
        (None, true) => Err(RpcError::NoKey { server }),
        (Some(_), false) => Err(RpcError::NotEncrypted { server }),
        (Some(key), true) => {
            let agreed = channel.encrypt(Side::Client, key, [&hello.sent, &hello.answer], options.handshake);
            agreed.map_err(|disagreement| match disagreement {
                Disagreement::Plain => RpcError::NotEncrypted { server },
                Disagreement::OtherKey => RpcError::OtherKey { server },
                // A server that does not know the key can say so by no other means.
                Disagreement::Broken(error) if is_closed(&error) => RpcError::OtherKey { server },
                Disagreement::Broken(error) if is_timeout(&error) => silent(address, options),
                Disagreement::Broken(error) => refused(address, &error),
            })
        }
    }
}

fn silent(address: &RpcAddress, options: &RpcOptions) -> RpcError {
    RpcError::Silent { server: address.to_string(), seconds: options.handshake.as_secs() }
}

fn refused(address: &RpcAddress, error: &std::io::Error) -> RpcError {
    RpcError::Connect { server: address.to_string(), reason: error.to_string() }
}

fn is_closed(error: &std::io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    [UnexpectedEof, ConnectionReset, ConnectionAborted, BrokenPipe].contains(&error.kind())
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
