//! A device of a server.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use orlop_backend::{
    Bindings, BufferType, Device, DeviceClass, DeviceError, DeviceFacts, Link, LowerOptions, Memory,
    NodeQuery, Program, Queue, Reason, Role, Segment, StagingMemory, Steps, Support, same_type,
};
use orlop_graph::{Op, TensorDesc};

use super::canary;
use super::endpoint::{Endpoint, Fellows};
use super::lower::lower;
use super::memory::RpcMemory;
use super::program::RpcProgram;
use super::queue::RpcQueue;
use super::support;
use crate::codec::{RpcReply, RpcRequest, SOURCES, TensorRecord};
use crate::{RpcAddress, RpcError, RpcKey};

/// How long the parts of a conversation may take, and the key of the servers.
#[derive(Clone, Debug)]
pub struct RpcOptions {
    /// Until there is a connection. Default 5 s.
    pub connect: Duration,
    /// Until the server greets: one that serves another client does not. Default 5 s.
    pub handshake: Duration,
    /// Until an answer begins, which includes what the server computes before, and for each further MiB of it or of what is
    /// sent. Default 120 s.
    pub answer: Duration,
    /// The key of all servers, which must have the same one. Default `None`: servers that have one are refused.
    pub key: Option<RpcKey>,
}

impl Default for RpcOptions {
    fn default() -> RpcOptions {
        let seconds = Duration::from_secs;
        RpcOptions { connect: seconds(5), handshake: seconds(5), answer: seconds(120), key: None }
    }
}

/// More devices than a server has: a number beyond is not believed.
const MAX_DEVICES: u32 = 1024;

/// As [`MAX_DEVICES`], for the alignment of buffers.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// Bytes that are sent to measure a connection.
const PROBE_BYTES: u64 = 1 << 20;

/// A device of a server, named `rpc:host:port`; further ones of one server end with `#1` and so on.
pub struct RpcDevice {
    name: String,
    server: RpcAddress,
    endpoint: Arc<Endpoint>,
    number: u32,
    memory: [Arc<dyn BufferType>; 1],
    held: Arc<AtomicU64>,
    total: Memory,
    link: Link,
    /// Canaries that the server has passed.
    passed: Mutex<HashSet<String>>,
    /// Bytes that results take with their scratch, as the server said.
    scratch: Mutex<HashMap<String, u64>>,
}

impl RpcDevice {
    /// The devices of some servers, in order. Work for all of them may be under way at a time.
    ///
    /// # Errors
    /// [`RpcError`] for the first server that cannot be used.
    pub fn connect(servers: &[RpcAddress], options: &RpcOptions) -> Result<Vec<Arc<RpcDevice>>, RpcError> {
        let fellows = Fellows::default();
        let mut devices = Vec::new();
        for address in servers {
            let endpoint = Endpoint::connect(address, options, &fellows)?;
            let count = match endpoint.ask_fixed(&RpcRequest::DeviceCount, &mut [0; 4])? {
                RpcReply::Count(count) if count <= MAX_DEVICES => count,
                RpcReply::Count(count) => {
                    return Err(endpoint.lose(format!("it has {count} devices")).into());
                }
                _ => 0,
            };
            for number in 0..count {
                devices.push(Arc::new(RpcDevice::open(address, &endpoint, number)?));
            }
        }
        Ok(devices)
    }

    fn open(server: &RpcAddress, endpoint: &Arc<Endpoint>, number: u32) -> Result<RpcDevice, RpcError> {
        let name = match number {
            0 => endpoint.name.clone(),
            _ => format!("{}#{number}", endpoint.name),
        };
        let ping = RpcRequest::Alignment { device: number };
        let alignment = endpoint.ask_number(&ping)?;
        let max_bytes = endpoint.ask_number(&RpcRequest::MaxSize { device: number })?;
        let (free, total) = endpoint.ask_pair(&RpcRequest::DeviceMemory { device: number })?;
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return Err(DeviceError::BadAlignment(alignment).into());
        }
        let held = Arc::new(AtomicU64::new(0));
        let memory: Arc<dyn BufferType> = Arc::new(RpcMemory {
            name: name.clone(),
            endpoint: Arc::clone(endpoint),
            device: number,
            alignment,
            max_bytes,
            held: Arc::clone(&held),
        });
        let link = measure(endpoint, &ping, &memory)?;
        Ok(RpcDevice {
            name,
            server: server.clone(),
            endpoint: Arc::clone(endpoint),
            number,
            memory: [memory],
            held,
            total: Memory { total, free },
            link,
            passed: Mutex::default(),
            scratch: Mutex::default(),
        })
    }

    /// The server that it is a device of.
    pub fn server(&self) -> &RpcAddress {
        &self.server
    }

    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Whether the server has passed a canary.
    pub(super) fn has_passed(&self, canary: &str) -> bool {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).contains(canary)
    }

    /// Notes that it has.
    pub(super) fn note_passed(&self, canary: String) {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).insert(canary);
    }

    /// Gives the server up.
    pub(super) fn lose(&self, reason: String) -> DeviceError {
        self.endpoint.lose(reason)
    }

    /// Bytes that the result of an op takes there, if they are more than its own: some backends put scratch behind it.
    pub(super) fn scratch(
        &self,
        op: &Op,
        inputs: &[TensorDesc],
        output: &TensorDesc,
    ) -> Result<Option<u64>, DeviceError> {
        let asks = matches!(
            op,
            Op::FlashAttention(_) | Op::MulMatId | Op::ArgSort { .. } | Op::TopK { .. } | Op::CumSum
        );
        // TopK is sorted into memory of its own, whose bytes nothing else reads.
        let Some((node, _)) = self.endpoint.dialect.ops.encode(op).filter(|_| asks) else { return Ok(None) };
        let key = format!("{op:?} {inputs:?}");
        let known = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let bytes = match known {
            Some(bytes) => bytes,
            None => {
                let leaf = |id, desc: &TensorDesc| TensorRecord::leaf(id, &support::normal(desc));
                let sources: Vec<Option<TensorRecord>> =
                    (2..).zip(inputs.iter().take(5)).map(|(id, desc)| leaf(id, desc)).collect();
                let mut ids = [0; SOURCES];
                for (id, source) in ids.iter_mut().zip(&sources) {
                    *id = source.as_ref().map_or(0, |source| source.id);
                }
                let Some(tensor) = leaf(1, output) else { return Ok(None) };
                let tensor = Box::new(tensor.computed(node, ids));
                let request = RpcRequest::AllocSize { device: self.number, tensor, sources };
                let bytes = self.endpoint.ask_number(&request)?;
                let memory = &self.memory[0];
                if bytes > memory.max_bytes() {
                    let (buffer_type, max) = (memory.name().to_owned(), memory.max_bytes());
                    return Err(DeviceError::TooLarge { buffer_type, bytes, max });
                }
                self.scratch.lock().unwrap_or_else(PoisonError::into_inner).insert(key, bytes);
                bytes
            }
        };
        Ok(Some(bytes).filter(|bytes| *bytes > output.bytes()))
    }
}

/// The latency of a connection, the best of three answers; and its throughput, by some bytes and an answer behind them.
fn measure(
    endpoint: &Endpoint,
    ping: &RpcRequest<'_>,
    memory: &Arc<dyn BufferType>,
) -> Result<Link, RpcError> {
    let mut latency = Duration::MAX;
    for _ in 0..3 {
        let begin = Instant::now();
        endpoint.ask_number(ping)?;
        latency = latency.min(begin.elapsed());
    }
    let buffer = Arc::clone(memory).allocate(PROBE_BYTES.min(memory.max_bytes()))?;
    let claim = orlop_backend::Claim::take(&*buffer, orlop_graph::AccessKind::Write)?;
    endpoint.ask_number(ping)?;
    let begin = Instant::now();
    buffer.write(&claim, 0, &vec![0xa5; buffer.bytes() as usize])?;
    endpoint.ask_number(ping)?;
    let moving = begin.elapsed().saturating_sub(latency).as_secs_f64().max(1e-6);
    Ok(Link { bytes_per_second: buffer.bytes() as f64 / moving, latency_seconds: latency.as_secs_f64() })
}

impl Device for RpcDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> DeviceFacts {
        let held = self.held.load(Ordering::Acquire);
        let Memory { total, free } = self.total;
        DeviceFacts {
            description: format!("ggml RPC {}{}", self.endpoint.dialect.version, self.endpoint.secrecy()),
            class: DeviceClass::Accelerator,
            memory: (total > 0).then_some(Memory { total, free: free.saturating_sub(held) }),
            // A server does not say what it is: numbers of a small processor.
            flops: 1e11,
            bytes_per_second: 2e10,
            cache_bytes: 0,
            launch_seconds: 5e-6,
            host_link: self.link,
            staging: StagingMemory::default(),
            asynchronous: false,
            lost: self.endpoint.is_lost(),
        }
    }

    fn buffer_types(&self, _: Role) -> &[Arc<dyn BufferType>] {
        &self.memory
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        for (operand, tensor) in node.inputs.iter().chain([&node.output]).enumerate() {
            if let Some(lies) = tensor.buffer_type
                && !same_type(lies, &self.memory[0])
            {
                return Support::No(Reason::BufferType { operand, buffer_type: lies.name().to_owned() });
            }
        }
        let inputs: Vec<TensorDesc> = node.inputs.iter().map(|operand| *operand.desc).collect();
        match support::check(self.endpoint.dialect.ops, node.op, &inputs, node.output.desc) {
            Ok(()) => Support::YES,
            Err(reason) => Support::No(reason),
        }
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        canary::try_ops(self, segment.nodes.iter().map(|node| &segment.graph.node(*node).op))?;
        lower(self, segment, options)
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        Ok(Arc::new(RpcProgram::new(self, steps, bindings)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        self.endpoint.check()?;
        Ok(Box::new(RpcQueue { endpoint: Arc::clone(&self.endpoint), device: self.number }))
    }
}

impl fmt::Debug for RpcDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.endpoint)
    }
}
