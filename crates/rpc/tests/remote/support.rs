//! A server in this process, and a client that speaks the protocol by hand.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orlop_backend::Device;
use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_graph::{DType, TensorDesc};
use orlop_rpc::codec::{
    Dialect, GgmlOp, GraphMessage, OpNumbers, RpcReply, RpcRequest, RpcVersion, SOURCES, TensorRecord,
};
use orlop_rpc::{RpcAccess, RpcAddress, RpcDevice, RpcKey, RpcLimits, RpcOptions, RpcServer, RpcServerEvent};

/// A server that is stopped when this is dropped.
pub(crate) struct Served {
    server: Arc<RpcServer>,
    thread: Option<JoinHandle<()>>,
    events: Arc<Mutex<Vec<RpcServerEvent>>>,
}

impl Served {
    pub(crate) fn new(limits: RpcLimits) -> Served {
        Served::speaking(RpcVersion::V5_1, limits)
    }

    pub(crate) fn speaking(version: RpcVersion, limits: RpcLimits) -> Served {
        Served::of(CpuDevice::new(ThreadPool::new(1).unwrap()), version, limits)
    }

    /// With a key.
    pub(crate) fn encrypted(key: &RpcKey, limits: RpcLimits) -> Served {
        let device = CpuDevice::new(ThreadPool::new(1).unwrap());
        Served::to(RpcAccess::Key(key.clone()), device, RpcVersion::V5_1, limits)
    }

    pub(crate) fn of(device: Arc<dyn Device>, version: RpcVersion, limits: RpcLimits) -> Served {
        Served::to(RpcAccess::Local, device, version, limits)
    }

    fn to(access: RpcAccess, device: Arc<dyn Device>, version: RpcVersion, limits: RpcLimits) -> Served {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Arc::new(RpcServer::bind(address, access, vec![device], version, limits).unwrap());
        let events = Arc::new(Mutex::new(Vec::new()));
        let (own, noted) = (Arc::clone(&server), Arc::clone(&events));
        let thread = std::thread::spawn(move || own.serve(&|event| noted.lock().unwrap().push(event)));
        Served { server, thread: Some(thread), events }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address().unwrap()
    }

    /// Why clients were refused so far.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let reason = |event: &RpcServerEvent| match event {
            RpcServerEvent::Refused(_, refusal) => Some(refusal.to_string()),
            _ => None,
        };
        events.iter().filter_map(reason).collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// The device of a server, with short time limits.
pub(crate) fn device_at(address: SocketAddr) -> Arc<RpcDevice> {
    devices_at(&[address]).remove(0)
}

pub(crate) fn devices_at(addresses: &[SocketAddr]) -> Vec<Arc<RpcDevice>> {
    let servers: Vec<RpcAddress> =
        addresses.iter().map(|address| address.to_string().parse().unwrap()).collect();
    RpcDevice::connect(&servers, &impatient()).unwrap()
}

pub(crate) fn impatient() -> RpcOptions {
    let limit = Duration::from_secs(10);
    RpcOptions { connect: limit, handshake: limit, answer: limit, key: None }
}

/// A client by hand.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) dialect: Dialect,
}

impl Raw {
    /// A connection that has greeted.
    pub(crate) fn connect(address: SocketAddr) -> Raw {
        let mut raw = Raw::silent(address);
        let hello = RpcRequest::Hello { capabilities: [0; 24] };
        assert_eq!(raw.ask(&hello, 28).len(), 28);
        raw
    }

    /// A connection that has said nothing.
    pub(crate) fn silent(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, dialect: RpcVersion::V5_1.dialect().unwrap() }
    }

    pub(crate) fn give(&mut self, request: &RpcRequest<'_>) {
        let mut bytes = Vec::new();
        request.write(&self.dialect, &mut bytes);
        // A server that has refused something before may have closed already.
        let _ = self.stream.write_all(&bytes);
    }

    pub(crate) fn ask(&mut self, request: &RpcRequest<'_>, bytes: usize) -> Vec<u8> {
        self.give(request);
        let mut length = [0; 8];
        self.stream.read_exact(&mut length).unwrap();
        assert_eq!(u64::from_le_bytes(length), bytes as u64);
        let mut reply = vec![0; bytes];
        self.stream.read_exact(&mut reply).unwrap();
        reply
    }

    /// A buffer: its handle and its address; zeros if there is none.
    pub(crate) fn allocate(&mut self, bytes: u64) -> (u64, u64) {
        let request = RpcRequest::AllocBuffer { device: 0, bytes };
        let reply = self.ask(&request, 16);
        let Ok(RpcReply::Pair(buffer, _)) = RpcReply::parse(&self.dialect, 0, &reply) else { panic!() };
        if buffer == 0 {
            return (0, 0);
        }
        let base = self.ask(&RpcRequest::BufferBase { buffer }, 8);
        (buffer, u64::from_le_bytes(base.try_into().unwrap()))
    }

    pub(crate) fn set(&mut self, tensor: &TensorRecord, data: &[u8]) {
        let tensor = Box::new(tensor.clone());
        self.give(&RpcRequest::SetTensor { tensor, store: false, offset: 0, data });
    }

    pub(crate) fn get(&mut self, tensor: &TensorRecord) -> Vec<u8> {
        let bytes = tensor.desc().unwrap().bytes();
        let tensor = Box::new(tensor.clone());
        self.ask(&RpcRequest::GetTensor { tensor, offset: 0, bytes }, bytes as usize)
    }

    /// Sends bytes as they are, and says whether the server closed the connection.
    pub(crate) fn is_refused(&mut self, bytes: &[u8]) -> bool {
        let _ = self.stream.write_all(bytes);
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_err() || rest.is_empty()
    }
}

/// A tensor at an offset of a buffer.
pub(crate) fn tensor(id: u64, (buffer, base): (u64, u64), offset: u64, desc: TensorDesc) -> TensorRecord {
    TensorRecord { buffer, data: base + offset, ..TensorRecord::leaf(id, &desc).unwrap() }
}

pub(crate) fn f32s(extents: &[u64]) -> TensorDesc {
    TensorDesc::contiguous(DType::F32, extents).unwrap()
}

pub(crate) fn i32s(extents: &[u64]) -> TensorDesc {
    TensorDesc::contiguous(DType::I32, extents).unwrap()
}

pub(crate) fn numbers() -> OpNumbers {
    RpcVersion::V5_1.dialect().unwrap().ops
}

/// The same tensor as the result of an op.
pub(crate) fn computed(record: &TensorRecord, op: GgmlOp, sources: &[u64]) -> TensorRecord {
    let mut ids = [0; SOURCES];
    ids[..sources.len()].copy_from_slice(sources);
    record.clone().computed(op, ids)
}

pub(crate) fn graph(nodes: &[u64], records: &[TensorRecord]) -> RpcRequest<'static> {
    RpcRequest::Compute(GraphMessage { device: 0, nodes: nodes.to_vec(), records: records.to_vec() })
}

pub(crate) fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub(crate) fn wait_for(done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(2));
    }
}
