//! Servers that die, stall, or send garbage: one sentence within a bounded time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_backend::{BufferType, Claim, Device, DeviceError, LowerOptions, Role, SegmentTables};
use orlop_graph::AccessKind;
use orlop_rpc::codec::command;
use orlop_rpc::{RpcDevice, RpcError, RpcLimits, RpcOptions};
use orlop_testkit::{Disturbance, Relay};

use crate::support::{Served, impatient};

/// Opens a device through a relay that disturbs the server's answers, and reads 64 KiB; the error, and when it came.
fn error_with(answers: Disturbance) -> String {
    let served = Served::new(RpcLimits::default());
    let relay = Relay::start(served.address(), [Disturbance::default(), answers]).unwrap();
    let options = RpcOptions {
        handshake: Duration::from_millis(400),
        answer: Duration::from_millis(400),
        ..impatient()
    };
    let begin = Instant::now();
    let address = relay.address().to_string().parse().unwrap();
    let error = match RpcDevice::connect(&[address], &options) {
        Err(error) => error.to_string(),
        Ok(devices) => {
            let device = Arc::clone(&devices[0]);
            let error = read(&*device).expect_err("the server was disturbed");
            assert!(matches!(error, DeviceError::Lost { .. }), "{error:?}");
            assert!(device.facts().lost);
            // From then on at once, and with the same words.
            assert_eq!(read(&*device), Err(error.clone()));
            error.to_string()
        }
    };
    assert!(begin.elapsed() < Duration::from_secs(8), "{error}");
    error
}

fn read(device: &dyn Device) -> Result<(), DeviceError> {
    let memory: &Arc<dyn BufferType> = &device.buffer_types(Role::Arena)[0];
    let buffer = Arc::clone(memory).allocate(64 << 10)?;
    let claim = Claim::take(&*buffer, AccessKind::Read)?;
    let mut bytes = vec![1; 64 << 10];
    buffer.read(&claim, 0, &mut bytes)?;
    assert_eq!(bytes, vec![0; 64 << 10]);
    Ok(())
}

#[test]
fn connections_that_end_anywhere_are_one_sentence() {
    // In the greeting's length, in the greeting, behind it, in the facts of the device, in the data that is read.
    for cut in [0, 3, 20, 36, 50, 150, 5000] {
        let error = error_with(Disturbance { cut: Some(cut), ..Disturbance::default() });
        assert!(error.contains("closed") || error.contains("connect"), "{cut}: {error}");
    }
}

#[test]
fn servers_that_stall_are_given_up() {
    for stall in [0, 36, 120, 5000] {
        let error = error_with(Disturbance { stall: Some(stall), ..Disturbance::default() });
        assert!(
            error.contains("does not answer") || error.contains("until the time limit"),
            "{stall}: {error}"
        );
    }
}

#[test]
fn lengths_that_are_wrong_are_refused_before_anything_is_allocated() {
    // The highest byte of a length: of the greeting's, and of the answer that counts devices.
    for flip in [7, 36 + 7] {
        let error = error_with(Disturbance { flip: Some(flip), ..Disturbance::default() });
        assert!(error.contains("bytes"), "{flip}: {error}");
    }
}

#[test]
fn a_server_that_serves_another_client_is_said_to() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let options = RpcOptions { handshake: Duration::from_millis(200), ..impatient() };
    let error = RpcDevice::connect(&[address], &options).unwrap_err();
    assert!(matches!(error, RpcError::Silent { .. }), "{error}");
    assert!(error.to_string().ends_with("it may serve another client"), "{error}");
}

#[test]
fn forks_and_newer_versions_are_refused_by_name() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let fake = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut answer = 28u64.to_le_bytes().to_vec();
        answer.extend([7, 1, 0]);
        answer.resize(36, 0);
        stream.write_all(&answer).unwrap();
        stream
    });
    let error = RpcDevice::connect(&[address], &impatient()).unwrap_err().to_string();
    assert!(error.contains("protocol version 7.1.0 is not known (known: 3.6.1"), "{error}");
    fake.join().unwrap();
}

/// A server of one device that answers these numbers: devices, alignment, the address of buffers.
fn lying(devices: u32, alignment: u64, base: u64) -> RpcError {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let fake = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 9];
        while stream.read_exact(&mut head).is_ok() {
            let length = u64::from_le_bytes(head[1..].try_into().unwrap());
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).unwrap();
            let answer = match head[0] {
                command::HELLO => [&[5, 1, 0][..], &[0; 25]].concat(),
                command::DEVICE_COUNT => devices.to_le_bytes().to_vec(),
                command::GET_ALIGNMENT => alignment.to_le_bytes().to_vec(),
                command::GET_MAX_SIZE => u64::MAX.to_le_bytes().to_vec(),
                command::GET_DEVICE_MEMORY => vec![0; 16],
                command::ALLOC_BUFFER => [1u64.to_le_bytes(), u64::MAX.to_le_bytes()].concat(),
                command::BUFFER_GET_BASE => base.to_le_bytes().to_vec(),
                command::SET_TENSOR => continue,
                _ => Vec::new(),
            };
            stream.write_all(&(answer.len() as u64).to_le_bytes()).unwrap();
            stream.write_all(&answer).unwrap();
        }
    });
    let error = RpcDevice::connect(&[address], &impatient()).unwrap_err();
    fake.join().unwrap();
    error
}

#[test]
fn numbers_that_no_server_has_are_refused() {
    let lost = |error: RpcError| matches!(error, RpcError::Device(DeviceError::Lost { .. }));
    assert!(lost(lying(u32::MAX, 64, 1 << 40)));
    assert!(lost(lying(1, 64, u64::MAX - 10)));
    for alignment in [0, 3, 1 << 40] {
        let error = lying(1, alignment, 1 << 40);
        assert!(matches!(error, RpcError::Device(DeviceError::BadAlignment(given)) if given == alignment));
    }
}

#[test]
fn an_op_that_could_not_be_tried_is_tried_the_next_time() {
    let served = Served::new(RpcLimits { bytes: 4 << 20, ..RpcLimits::default() });
    let relay = Relay::start(served.address(), [Disturbance::default(), Disturbance::default()]).unwrap();
    let device = crate::support::device_at(relay.address());
    let memory = &device.buffer_types(Role::Arena)[0];
    let mut b = orlop_graph::GraphBuilder::new();
    let x = b.input("x", orlop_graph::DType::F32, &[4]);
    let y = b.silu(x);
    b.output(y);
    let graph = b.build().unwrap();
    let nodes: Vec<_> = graph.node_ids().collect();
    const GRAPH: usize = command::GRAPH_COMPUTE as usize;
    let lower = || {
        let before = relay.counts();
        let mut tables = SegmentTables::new(&graph);
        let segment = tables.segment(&graph, &nodes, |_| Some(Arc::clone(memory)), |_| true, None);
        let lowered = device.lower(&segment, &LowerOptions::default()).map(|_| ());
        (lowered, relay.counts().since(&before).commands.get(GRAPH).copied().unwrap_or(0))
    };
    let all = Arc::clone(memory).allocate(4 << 20).unwrap();
    let (refused, tried) = lower();
    assert!(matches!(refused, Err(DeviceError::OutOfMemory { .. })) && tried == 0, "{refused:?}");
    drop(all);
    assert_eq!(lower(), (Ok(()), 1));
    assert_eq!(lower(), (Ok(()), 0));
}

#[test]
fn full_memory_is_an_error_and_the_device_goes_on() {
    let served = Served::new(RpcLimits { bytes: 4 << 20, ..RpcLimits::default() });
    let device = crate::support::device_at(served.address());
    let memory = &device.buffer_types(Role::Arena)[0];
    let refused = Arc::clone(memory).allocate(64 << 20).unwrap_err();
    assert!(matches!(refused, DeviceError::OutOfMemory { bytes, .. } if bytes == 64 << 20), "{refused:?}");
    assert_eq!(read(&*device), Ok(()));
}

/// A server of 5.1.0 behind a greeting of 4.0.0: the same messages, with other numbers of ops.
#[test]
fn ops_with_other_numbers_are_found_before_they_are_used() {
    let served = Served::new(RpcLimits::default());
    // The version stands behind the length of the first answer.
    let answers = Disturbance { replace: Some((8, [4, 0, 0])), ..Disturbance::default() };
    let relay = Relay::start(served.address(), [Disturbance::default(), answers]).unwrap();
    let device: Arc<dyn Device> = crate::support::device_at(relay.address());
    let mut b = orlop_graph::GraphBuilder::new();
    let x = b.input("x", orlop_graph::DType::F32, &[4]);
    let y = b.silu(x);
    let graph = b.build().unwrap();
    let feeds = [(x, orlop_testkit::f32_bytes(&[1.0; 4]))];
    let error =
        orlop_testkit::run_unplanned(&device, &graph, &feeds).map(|outputs| outputs.f32s(y)).unwrap_err();
    assert!(matches!(error, DeviceError::Lost { .. }), "{error}");
    crate::support::wait_for(|| !served.refusals().is_empty());
    assert!(served.refusals()[0].contains("is not supported"), "{:?}", served.refusals());
}
