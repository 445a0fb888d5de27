//! Keys: who has none or another one is refused, and what passes cannot be read, changed or sent again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orlop_backend::{BufferType, Claim, Device, Role};
use orlop_graph::{AccessKind, DType, GraphBuilder};
use orlop_rpc::codec::{RpcRequest, RpcVersion};
use orlop_rpc::{RpcAccess, RpcDevice, RpcError, RpcKey, RpcLimits, RpcOptions, RpcServer};
use orlop_testkit::{Disturbance, Relay, f32_bytes, run_unplanned};

use crate::support::{Raw, Served, impatient};

fn key(digits: &str) -> RpcKey {
    digits.repeat(32).parse().unwrap()
}

fn connect(address: SocketAddr, key: Option<&RpcKey>) -> Result<Arc<RpcDevice>, RpcError> {
    let options = RpcOptions { key: key.cloned(), ..impatient() };
    Ok(RpcDevice::connect(&[address.to_string().parse().unwrap()], &options)?.remove(0))
}

/// Why the server sent a client away, which another thread notes.
fn refusal(served: &Served) -> String {
    let begin = Instant::now();
    loop {
        if let Some(reason) = served.refusals().pop() {
            return reason;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "the server refused nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a client sent, all of it once the connection has ended.
type Heard = Arc<Mutex<Vec<u8>>>;

/// Listens for one client of a server, and notes what it sends.
fn overheard(server: SocketAddr) -> (SocketAddr, Heard) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Heard::default();
    let noted = Arc::clone(&heard);
    std::thread::spawn(move || {
        let (mut client, mut server) = (listener.accept().unwrap().0, TcpStream::connect(server).unwrap());
        let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
        let mut piece = vec![0; 64 << 10];
        while let Ok(count @ 1..) = client.read(&mut piece) {
            noted.lock().unwrap().extend(&piece[..count]);
            server.write_all(&piece[..count]).unwrap();
        }
        let _ = server.shutdown(Shutdown::Write);
    });
    (address, heard)
}

/// Values of several records, doubled there.
fn doubles(device: Arc<RpcDevice>) -> bool {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[100_000]);
    let y = b.scale(x, 2.0);
    b.output(y);
    let graph = b.build().unwrap();
    let device: Arc<dyn Device> = device;
    let found = run_unplanned(&device, &graph, &[(x, f32_bytes(&[1.25; 100_000]))]).unwrap();
    found.f32s(y).unwrap() == [2.5; 100_000]
}

#[test]
fn with_equal_keys_nothing_can_be_read_on_the_way() {
    let key = key("1f");
    let values = f32_bytes(&[1.25; 8]);
    let readable = |heard: Heard| heard.lock().unwrap().windows(values.len()).any(|bytes| bytes == values);
    let served = Served::encrypted(&key, RpcLimits::default());
    let (address, heard) = overheard(served.address());
    let device = connect(address, Some(&key)).unwrap();
    assert_eq!(device.facts().description, "ggml RPC 5.1.0, encrypted");
    assert!(doubles(device) && !readable(heard));
    assert_eq!(served.refusals(), Vec::<String>::new());

    let served = Served::new(RpcLimits::default());
    let (address, heard) = overheard(served.address());
    assert!(doubles(connect(address, None).unwrap()) && readable(heard));
}

#[test]
fn ends_without_the_same_key_are_refused() {
    let [one, two] = ["01", "02"].map(key);
    let served = Served::encrypted(&one, RpcLimits::default());
    let error = connect(served.address(), Some(&two)).unwrap_err();
    assert_eq!(error, RpcError::OtherKey { server: served.address().to_string() });
    assert_eq!(refusal(&served), "the client has another key");

    let served = Served::encrypted(&one, RpcLimits::default());
    let error = connect(served.address(), None).unwrap_err();
    assert_eq!(error, RpcError::NoKey { server: served.address().to_string() });
    assert_eq!(refusal(&served), "the client left when it was asked for a key");

    // As llama.cpp's client continues.
    let served = Served::encrypted(&one, RpcLimits::default());
    let mut raw = Raw::connect(served.address());
    let mut bytes = Vec::new();
    RpcRequest::DeviceCount.write(&raw.dialect, &mut bytes);
    assert!(raw.is_refused(&bytes));
    assert_eq!(refusal(&served), "the client does not encrypt, and a key is needed");
    assert!(doubles(connect(served.address(), Some(&one)).unwrap()), "the next client is served");
}

#[test]
fn a_client_with_a_key_tells_a_plain_server_nothing() {
    for version in [RpcVersion::V5_1, RpcVersion { major: 3, minor: 6, patch: 1 }] {
        let served = Served::speaking(version, RpcLimits::default());
        let relay = Relay::start(served.address(), [Disturbance::default(); 2]).unwrap();
        let error = connect(relay.address(), Some(&key("01"))).unwrap_err();
        assert_eq!(error, RpcError::NotEncrypted { server: relay.address().to_string() });
        // Greetings: one of 33 bytes, and one of 9 where the first is not understood.
        let greetings = if version == RpcVersion::V5_1 { 33 } else { 42 };
        assert_eq!(relay.counts().sent, greetings);
    }
}

/// What a client says if its way to the server and back is disturbed, and what the server says.
fn disturbed(disturbances: [Disturbance; 2]) -> (String, Served) {
    let limit = Duration::from_millis(400);
    let key = key("77");
    let served = Served::encrypted(&key, RpcLimits { message: limit, ..RpcLimits::default() });
    let relay = Relay::start(served.address(), disturbances).unwrap();
    let options = RpcOptions { handshake: limit, answer: limit, key: Some(key), ..impatient() };
    let begin = Instant::now();
    let address = relay.address().to_string().parse().unwrap();
    let error = match RpcDevice::connect(&[address], &options) {
        Err(error) => error.to_string(),
        Ok(devices) => {
            let memory: &Arc<dyn BufferType> = &devices[0].buffer_types(Role::Arena)[0];
            let buffer = Arc::clone(memory).allocate(256 << 10).expect("what is disturbed comes later");
            let claim = Claim::take(&*buffer, AccessKind::Read).unwrap();
            let mut bytes = vec![1; 256 << 10];
            buffer.read(&claim, 0, &mut bytes).expect_err("the answer was disturbed").to_string()
        }
    };
    assert!(begin.elapsed() < Duration::from_secs(8), "{error}");
    (error, served)
}

/// The greeting is 33 bytes and 36 back, the agreement 50 and 50, the first record 27 and 30.
#[test]
fn bytes_that_are_changed_are_one_sentence() {
    let flip = |at| Disturbance { flip: Some(at), ..Disturbance::default() };
    let plain = Disturbance::default();
    // The greeting, the length, the public key and the tag of the agreement.
    for at in [20, 33, 40, 82] {
        let (error, served) = disturbed([flip(at), plain]);
        assert!(error.ends_with("has another key"), "{at}: {error}");
        let said = refusal(&served);
        let expected = if at == 33 { "the client does not encrypt" } else { "the client has another key" };
        assert!(said.starts_with(expected), "{at}: {said}");
    }
    for (at, expected) in [
        (8, "protocol version 250.1.0 is not known"),
        (11, "does not encrypt, and a key was given"),
        (20, "has another key"),
        (36, "does not encrypt, and a key was given"),
        (40, "has another key"),
        (85, "has another key"),
        (88, "what came was changed or repeated on its way while waiting for the answer to DEVICE_COUNT"),
        (115, "what came was changed or repeated on its way while waiting for the answer to DEVICE_COUNT"),
        // In data.
        (100_000, "what came was changed or repeated on its way while waiting for the answer to GET_TENSOR"),
    ] {
        let (error, _) = disturbed([plain, flip(at)]);
        assert!(error.contains(expected), "{at}: {error}");
    }
    for at in [85, 100, 109] {
        let (error, served) = disturbed([flip(at), plain]);
        assert!(error.contains("closed") || error.contains("reset"), "{at}: {error}");
        assert_eq!(refusal(&served), "what came was changed or repeated on its way", "{at}");
    }
}

#[test]
fn connections_that_end_or_stall_are_one_sentence() {
    for at in [40, 86, 90, 100_000] {
        let cut = Disturbance { cut: Some(at), ..Disturbance::default() };
        let (error, _) = disturbed([Disturbance::default(), cut]);
        assert!(error.contains("closed") || error.contains("another key"), "{at}: {error}");
        let stall = Disturbance { stall: Some(at), ..Disturbance::default() };
        let (error, _) = disturbed([Disturbance::default(), stall]);
        let given_up = error.contains("until the time limit") || error.contains("does not answer");
        assert!(given_up, "{at}: {error}");
    }
}

#[test]
fn what_was_sent_once_is_not_taken_again() {
    // A record, in the same connection.
    let again = Disturbance { again: Some([83, 110]), ..Disturbance::default() };
    let (error, served) = disturbed([again, Disturbance::default()]);
    assert!(error.contains("closed") || error.contains("reset"), "{error}");
    assert_eq!(refusal(&served), "what came was changed or repeated on its way");

    // All that a client sent, in another.
    let key = key("5a");
    let served = Served::encrypted(&key, RpcLimits::default());
    let (address, heard) = overheard(served.address());
    assert!(doubles(connect(address, Some(&key)).unwrap()));
    assert_eq!(served.refusals(), Vec::<String>::new());
    let mut thief = TcpStream::connect(served.address()).unwrap();
    let _ = thief.write_all(&heard.lock().unwrap());
    assert_eq!(refusal(&served), "what came was changed or repeated on its way");
}

#[test]
fn a_key_or_its_absence_on_purpose_opens_other_addresses() {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let bind = |access, version| RpcServer::bind(address, access, Vec::new(), version, RpcLimits::default());
    assert!(matches!(bind(RpcAccess::Local, RpcVersion::V5_1), Err(RpcError::NotLoopback { .. })));
    assert!(bind(RpcAccess::Key(key("01")), RpcVersion::V5_1).is_ok());
    assert!(bind(RpcAccess::Anyone, RpcVersion::V5_1).is_ok());
    let version = RpcVersion { major: 3, minor: 6, patch: 1 };
    let refused = bind(RpcAccess::Key(key("01")), version).err();
    assert_eq!(refused, Some(RpcError::PlainVersion { version }));
}

#[test]
fn what_is_given_travels_with_the_question_in_one_round_trip() {
    let key = key("3c");
    let served = Served::encrypted(&key, RpcLimits::default());
    let relay = Relay::start(served.address(), [Disturbance::default(); 2]).unwrap();
    let device = connect(relay.address(), Some(&key)).unwrap();
    let buffer = Arc::clone(&device.buffer_types(Role::Arena)[0]).allocate(4096).unwrap();
    let claim = Claim::take(&*buffer, AccessKind::Write).unwrap();
    let before = relay.counts();
    buffer.write(&claim, 0, &[1; 1024]).unwrap();
    buffer.write(&claim, 2048, &[2; 1024]).unwrap();
    drop(claim);
    let mut bytes = [9; 2048];
    let read = Claim::take(&*buffer, AccessKind::Read).unwrap();
    buffer.read(&read, 512, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[511], bytes[512], bytes[1535], bytes[1536]), (1, 1, 0, 0, 2));
    let counts = relay.counts().since(&before);
    assert_eq!(counts.round_trips, 1, "{counts:?}");
}
