//! What brought other servers down, one test for each kind: the client is disconnected, and the next one is served.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use orlop_graph::{DType, Op, Patch, TensorDesc};
use orlop_rpc::codec::{GgmlOp, RpcReply, RpcRequest, RpcVersion, TensorRecord, command};
use orlop_rpc::{RpcAccess, RpcError, RpcLimits, RpcServer};

use crate::devices::OddDevice;
use crate::support::{Raw, Served, bytes_of, computed, f32s, graph, i32s, numbers, tensor, wait_for};

/// A client with a buffer of 4 KiB sends what `request` makes of it, and is refused for a reason with these words.
fn refused(words: &str, request: impl Fn((u64, u64)) -> Vec<RpcRequest<'static>>) {
    let served = Served::new(RpcLimits::default());
    let mut raw = Raw::connect(served.address());
    let buffer = raw.allocate(4096);
    let requests = request(buffer);
    requests.iter().for_each(|request| raw.give(request));
    // It ends, whatever was answered before.
    let mut answers = Vec::new();
    let _ = raw.stream.read_to_end(&mut answers);
    wait_for(|| !served.refusals().is_empty());
    let reasons = served.refusals();
    assert!(reasons[0].contains(words), "`{words}` is not in {reasons:?}");
    serves(&served);
}

/// A sum is computed for a new client.
fn serves(served: &Served) {
    let mut raw = Raw::connect(served.address());
    let buffer = raw.allocate(256);
    let [a, b, y] = [1, 2, 3].map(|id| tensor(id, buffer, 64 * (id - 1), f32s(&[4])));
    raw.set(&a, &bytes_of(&[1.0, 2.0, 3.0, 4.0]));
    raw.set(&b, &bytes_of(&[0.5; 4]));
    raw.give(&graph(&[3], &[a, b, computed(&y, encoded(&Op::Add), &[1, 2])]));
    assert_eq!(raw.get(&y), bytes_of(&[1.5, 2.5, 3.5, 4.5]));
    raw.give(&RpcRequest::Recompute { device: 0 });
    assert_eq!(raw.get(&y), bytes_of(&[1.5, 2.5, 3.5, 4.5]));
}

fn encoded(op: &Op) -> GgmlOp {
    numbers().encode(op).unwrap().0
}

fn get(tensor: TensorRecord, offset: u64, bytes: u64) -> Vec<RpcRequest<'static>> {
    vec![RpcRequest::GetTensor { tensor: Box::new(tensor), offset, bytes }]
}

#[test]
fn element_types_out_of_range_and_removed_ones() {
    for dtype in [4, 5, 31, 33, 36, 38, 77, u32::MAX] {
        refused("which is no element type", |buffer| {
            get(TensorRecord { dtype, ..tensor(1, buffer, 0, f32s(&[4])) }, 0, 16)
        });
    }
}

#[test]
fn addresses_outside_of_the_buffer() {
    for data in [0, 1, u64::MAX, u64::MAX - 8] {
        refused("lie outside", |buffer| {
            get(TensorRecord { data, ..tensor(1, buffer, 0, f32s(&[4])) }, 0, 16)
        });
    }
    refused("lie outside", |buffer| get(tensor(1, buffer, 4090, f32s(&[4])), 0, 16));
}

#[test]
fn data_outside_of_the_record() {
    for (offset, bytes) in [(0, 17), (8, 9), (u64::MAX, 2), (17, 0)] {
        refused("lie outside", |buffer| get(tensor(1, buffer, 0, f32s(&[4])), offset, bytes));
    }
    refused("lie outside", |buffer| {
        let tensor = Box::new(tensor(1, buffer, 0, f32s(&[4])));
        vec![RpcRequest::SetTensor { tensor, store: false, offset: 8, data: &[0; 9] }]
    });
}

#[test]
fn copies_that_would_overrun_their_destination() {
    refused("lie outside", |buffer| {
        let [from, to] = [0, 4000].map(|offset| Box::new(tensor(1, buffer, offset, f32s(&[64]))));
        vec![RpcRequest::CopyTensor { from, to }]
    });
    let served = Served::new(RpcLimits::default());
    let mut raw = Raw::connect(served.address());
    let buffer = raw.allocate(4096);
    let from = Box::new(tensor(1, buffer, 0, f32s(&[64])));
    let to = Box::new(tensor(2, buffer, 512, f32s(&[32])));
    assert_eq!(raw.ask(&RpcRequest::CopyTensor { from, to }, 1), [0], "layouts differ: not done");
}

#[test]
fn operands_without_a_buffer() {
    for data in [0, 0x7fff_0000] {
        refused("buffer 0x0 is not known", |buffer| {
            let a = TensorRecord { buffer: 0, data, ..tensor(1, buffer, 0, f32s(&[4])) };
            let y = computed(&tensor(2, buffer, 64, f32s(&[4])), encoded(&Op::Cont), &[1]);
            vec![graph(&[2], &[a, y])]
        });
    }
}

#[test]
fn buffers_of_others_and_handles_that_are_guessed() {
    let served = Served::new(RpcLimits::default());
    let [mut one, mut two] = [(); 2].map(|()| Raw::connect(served.address()));
    let (a, b) = (one.allocate(64), two.allocate(64));
    let c = one.allocate(64);
    assert!(a.0 != b.0 && a.0.abs_diff(c.0) > 1 << 20, "{a:?} {b:?} {c:?}");
    assert_eq!(a.1 % 4096, 0);
    assert!(a.1 != 0 && c.1.abs_diff(a.1) > 1 << 40, "far apart");
    let request =
        RpcRequest::GetTensor { tensor: Box::new(tensor(1, a, 0, f32s(&[1]))), offset: 0, bytes: 4 };
    two.give(&request);
    assert!(two.is_refused(&[]));
    assert_eq!(one.get(&tensor(1, a, 0, f32s(&[1]))), [0; 4], "its own is served");
}

#[test]
fn graphs_that_are_repeated_after_their_memory_was_freed() {
    refused("has no graph to repeat", |buffer| {
        let a = tensor(1, buffer, 0, f32s(&[4]));
        let y = computed(&tensor(2, buffer, 64, f32s(&[4])), encoded(&Op::Cont), &[1]);
        vec![
            graph(&[2], &[a, y]),
            RpcRequest::Recompute { device: 0 },
            RpcRequest::FreeBuffer { buffer: buffer.0 },
            RpcRequest::Recompute { device: 0 },
        ]
    });
}

#[test]
fn ops_that_hold_addresses_and_ops_that_do_not_exist() {
    for number in [92, 93, 94, 95, 96, 101, 5000, u32::MAX] {
        refused("is not supported", |buffer| {
            let a = tensor(1, buffer, 0, f32s(&[4]));
            let op = GgmlOp { number, params: [0x41; 16] };
            vec![graph(&[2], &[a, computed(&tensor(2, buffer, 64, f32s(&[4])), op, &[1])])]
        });
    }
}

#[test]
fn lengths_of_any_size() {
    let served = Served::new(RpcLimits::default());
    for number in 0..=20u8 {
        for length in [1, 311, 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX] {
            let mut raw = Raw::connect(served.address());
            let mut bytes = vec![number];
            bytes.extend(u64::to_le_bytes(length));
            bytes.extend([0; 64]);
            assert!(raw.is_refused(&bytes), "{number} {length}");
        }
    }
    serves(&served);
}

#[test]
fn rows_that_are_not_whole_blocks() {
    refused("the innermost extent is 33", |buffer| {
        let dtype = DType::Q4_0.gguf_id();
        let record = TensorRecord { dtype, ..tensor(1, buffer, 0, f32s(&[33])) };
        get(record, 0, 18)
    });
}

#[test]
fn nodes_without_a_record_and_numbers_that_come_twice() {
    let sum = |buffer, nodes: &[u64], twice: bool| {
        let a = tensor(1, buffer, 0, f32s(&[4]));
        let y = computed(&tensor(2, buffer, 64, f32s(&[4])), encoded(&Op::Cont), &[1]);
        let records = if twice { vec![a.clone(), a, y] } else { vec![a, y] };
        vec![graph(nodes, &records)]
    };
    refused("a node has no record", |buffer| sum(buffer, &[0], false));
    refused("a node has no record", |buffer| sum(buffer, &[2, 9], false));
    refused("a node comes twice", |buffer| sum(buffer, &[2, 2], false));
    refused("comes twice", |buffer| sum(buffer, &[2], true));
    refused("is missing", |buffer| {
        let y = computed(&tensor(2, buffer, 64, f32s(&[4])), encoded(&Op::Cont), &[7]);
        vec![graph(&[2], &[y])]
    });
}

#[test]
fn results_of_another_shape_than_the_op_has() {
    refused("the result is", |buffer| {
        let table = tensor(1, buffer, 0, f32s(&[8, 4]));
        let ids = tensor(2, buffer, 256, i32s(&[2]));
        let y = computed(&tensor(3, buffer, 512, f32s(&[8, 64])), encoded(&Op::GetRows), &[1, 2]);
        vec![graph(&[3], &[table, ids, y])]
    });
    refused("operand 1", |buffer| {
        let rows = tensor(1, buffer, 0, f32s(&[16, 2]));
        let ids = tensor(2, buffer, 256, i32s(&[2]));
        let into = tensor(3, buffer, 512, f32s(&[8, 4]));
        vec![graph(&[3], &[rows, ids, computed(&into, encoded(&Op::SetRows), &[1, 2])])]
    });
}

#[test]
fn rows_outside_of_the_table() {
    for row in [4i32, -1, i32::MAX, i32::MIN] {
        refused("index", |buffer| {
            let table = tensor(1, buffer, 0, f32s(&[8, 4]));
            let ids = tensor(2, buffer, 256, i32s(&[1]));
            let y = computed(&tensor(3, buffer, 512, f32s(&[8, 1])), encoded(&Op::GetRows), &[1, 2]);
            let data: &'static [u8] = Box::leak(Box::new(row.to_le_bytes()));
            let set = RpcRequest::SetTensor { tensor: Box::new(ids.clone()), store: false, offset: 0, data };
            vec![set, graph(&[3], &[table, ids, y])]
        });
    }
}

#[test]
fn patches_with_negative_strides_and_outside_of_their_base() {
    let patch = |params: [i32; 4]| {
        move |buffer| {
            let base = tensor(1, buffer, 0, f32s(&[8, 4]));
            let patch = tensor(2, buffer, 256, f32s(&[2, 2]));
            let mut op = encoded(&Op::Acc(Patch { strides: [0; 3], offset: 0 }));
            op.params[..4].copy_from_slice(&params);
            vec![graph(&[3], &[base, patch, computed(&tensor(3, buffer, 512, f32s(&[8, 4])), op, &[1, 2])])]
        }
    };
    refused("must not be negative", patch([-32, 128, 128, 0]));
    refused("must not be negative", patch([32, 128, 128, -4]));
    refused("ends at byte", patch([32, 128, 128, 4096]));
}

#[test]
fn strides_beyond_64_bits_and_elements_that_overlap() {
    refused("sizes do not fit", |buffer| {
        let record = tensor(1, buffer, 0, f32s(&[4]));
        get(TensorRecord { extents: [u32::MAX; 4], strides: [u32::MAX; 4], ..record }, 0, 16)
    });
    refused("overlap", |buffer| {
        let from = tensor(1, buffer, 0, f32s(&[4, 4]));
        let desc = TensorDesc { strides: [4, 0, 0, 0], ..f32s(&[4, 4]) };
        vec![graph(&[2], &[from, computed(&tensor(2, buffer, 512, desc), encoded(&Op::Copy), &[1, 2])])]
    });
    refused("is not aligned", |buffer| {
        let a = tensor(1, buffer, 2, f32s(&[4]));
        vec![graph(&[2], &[a, computed(&tensor(2, buffer, 64, f32s(&[4])), encoded(&Op::Cont), &[1])])]
    });
}

#[test]
fn a_chain_of_sources_that_is_sent_backwards_needs_no_stack() {
    let served = Served::new(RpcLimits::default());
    let mut raw = Raw::connect(served.address());
    let buffer = raw.allocate(4096);
    let count = 50_000;
    let desc = f32s(&[4]);
    let link = |id: u64| computed(&tensor(id, buffer, 0, desc), encoded(&Op::Cont), &[id + 1]);
    let mut records: Vec<TensorRecord> = (1..count).map(link).collect();
    records.push(tensor(count, buffer, 0, desc));
    raw.give(&graph(&[1], &records));
    assert_eq!(raw.get(&tensor(1, buffer, 0, desc)), [0; 16]);
}

#[test]
fn a_hash_is_never_taken_for_data() {
    let served = Served::new(RpcLimits::default());
    let mut raw = Raw::connect(served.address());
    let tensor = Box::new(tensor(1, raw.allocate(64), 0, f32s(&[16])));
    assert_eq!(raw.ask(&RpcRequest::SetTensorHash { tensor, offset: 0, hash: 7 }, 1), [0]);
}

#[test]
fn memory_beyond_the_quota_and_too_many_buffers() {
    let served = Served::new(RpcLimits { bytes: 10_000, buffers: 3, ..RpcLimits::default() });
    let mut raw = Raw::connect(served.address());
    assert_eq!(raw.allocate(10_001), (0, 0));
    assert_eq!(raw.allocate(u64::MAX), (0, 0));
    let first = raw.allocate(8000);
    assert!(first.0 != 0);
    assert_eq!(raw.allocate(4000), (0, 0));
    raw.ask(&RpcRequest::FreeBuffer { buffer: first.0 }, 0);
    assert!((0..3).all(|_| raw.allocate(16).0 != 0));
    assert_eq!(raw.allocate(16), (0, 0));
    let memory = raw.ask(&RpcRequest::DeviceMemory { device: 0 }, 16);
    let reply = RpcReply::parse(&raw.dialect, command::GET_DEVICE_MEMORY, &memory);
    assert_eq!(reply, Ok(RpcReply::Pair(10_000 - 48, 10_000)), "the quota is what there is");
}

#[test]
fn scratch_counts_as_memory_of_the_client() {
    let served = Served::new(RpcLimits { bytes: 200_000, ..RpcLimits::default() });
    let mut raw = Raw::connect(served.address());
    let values = raw.allocate(100_000);
    let w = tensor(1, values, 0, f32s(&[64, 64]));
    // The result lies on its operand, so 8 KiB are computed elsewhere.
    let [x, y] = [2, 3].map(|id| tensor(id, values, 16_384, f32s(&[64, 32])));
    raw.give(&graph(&[3], &[w, x, computed(&y, encoded(&Op::MulMat), &[1, 2])]));
    assert_eq!(raw.get(&y).len(), 8192);
    assert_eq!(raw.allocate(100_000), (0, 0));
    assert!(raw.allocate(500).0 != 0);
}

/// A product with weights of 128 KiB; what the client may still allocate of 1 MiB afterwards.
fn left_behind_a_product(free: u64) -> u64 {
    let limits = RpcLimits { bytes: 1 << 20, ..RpcLimits::default() };
    let served = Served::of(OddDevice::with_free(free), RpcVersion::V5_1, limits);
    let mut raw = Raw::connect(served.address());
    let desc = TensorDesc::contiguous(DType::Q4_0, &[256, 1024]).unwrap();
    let (weights, values) = (raw.allocate(desc.bytes()), raw.allocate(16 << 10));
    let [x, y] =
        [(2, 0, 256), (3, 2048, 1024)].map(|(id, at, rows)| tensor(id, values, at, f32s(&[rows, 1])));
    raw.give(&graph(&[3], &[tensor(1, weights, 0, desc), x, computed(&y, encoded(&Op::MulMat), &[1, 2])]));
    raw.get(&y);
    let most = (0..1 << 10).rev().map(|kib| kib << 10);
    most.into_iter().find(|bytes| raw.allocate(*bytes).0 != 0).unwrap()
}

#[test]
fn copies_of_weights_leave_half_of_the_free_memory() {
    let [few, many] = [128 << 10, 1 << 40].map(left_behind_a_product);
    assert!(few >= many + (128 << 10), "{few} {many}");
}

#[test]
fn a_panic_of_a_device_ends_one_conversation_and_frees_its_place() {
    let limits = RpcLimits { clients: 1, ..RpcLimits::default() };
    let served = Served::of(OddDevice::with_a_bug(), RpcVersion::V5_1, limits);
    let mut raw = Raw::connect(served.address());
    let buffer = raw.allocate(256);
    let [x, y] = [1, 2].map(|id| tensor(id, buffer, 64 * (id - 1), f32s(&[4])));
    raw.give(&graph(&[2], &[x, computed(&y, encoded(&Op::Cont), &[1])]));
    assert!(raw.is_refused(&[]));
    wait_for(|| !served.refusals().is_empty());
    assert_eq!(served.refusals(), ["this is a bug in orlop: the device has a bug"]);
    serves(&served);
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_takes_no_memory_of_its_size() {
    let most = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    let bytes: u64 = 512 << 20;
    let served = Served::new(RpcLimits::default());
    let mut raw = Raw::connect(served.address());
    let record = tensor(1, raw.allocate(bytes), 0, f32s(&[bytes / 4]));
    let before = most();
    raw.give(&RpcRequest::GetTensor { tensor: Box::new(record), offset: 0, bytes });
    let read = std::io::copy(&mut (&raw.stream).take(8 + bytes), &mut std::io::sink()).unwrap();
    assert_eq!(read, 8 + bytes);
    assert!(most() - before < bytes / 2, "{before} {}", most());
}

#[cfg(target_os = "linux")]
#[test]
fn keep_alive_asks_silent_clients_whether_they_are_there() {
    let served = Served::new(RpcLimits::default());
    let raw = Raw::connect(served.address());
    let ports = [served.address(), raw.stream.local_addr().unwrap()].map(|at| format!(":{:04X}", at.port()));
    wait_for(|| {
        // The server's end: its address, the client's, the state, bytes under way, and the timer, of which 02 is keep-alive.
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|line| line[1].ends_with(&ports[0]) && line[2].ends_with(&ports[1])).unwrap();
        line[5].starts_with("02:")
    });
}

#[test]
fn a_byte_now_and_then_is_not_progress() {
    let limits = RpcLimits { message: Duration::from_millis(300), ..RpcLimits::default() };
    let served = Served::new(limits);
    let mut slow = Raw::connect(served.address());
    let mut message = Vec::new();
    RpcRequest::AllocBuffer { device: 0, bytes: 64 }.write(&slow.dialect, &mut message);
    for byte in message {
        // Until the server has closed the connection.
        let _ = slow.stream.write_all(&[byte]);
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for(|| !served.refusals().is_empty());
    assert!(served.refusals()[0].contains("time limit"), "{:?}", served.refusals());
    serves(&served);
}

#[test]
fn silent_and_slow_clients_keep_nobody_waiting() {
    let limits = RpcLimits { message: Duration::from_millis(150), clients: 4, ..RpcLimits::default() };
    let served = Served::new(limits);
    let mut silent = Raw::silent(served.address());
    let mut slow = Raw::connect(served.address());
    slow.stream.write_all(&[command::ALLOC_BUFFER, 12, 0]).unwrap();
    serves(&served);
    let mut rest = Vec::new();
    assert!(silent.stream.read_to_end(&mut rest).is_ok() && rest.is_empty());
    wait_for(|| served.refusals().len() >= 2);
    assert!(slow.is_refused(&[]));
    assert!(served.refusals().iter().all(|reason| reason.contains("time limit")), "{:?}", served.refusals());
}

#[test]
fn more_clients_than_allowed_are_sent_away() {
    let served = Served::new(RpcLimits { clients: 2, ..RpcLimits::default() });
    let [_one, two] = [(); 2].map(|()| Raw::connect(served.address()));
    assert!(Raw::silent(served.address()).is_refused(&[]));
    drop(two);
    wait_for(|| {
        let mut raw = Raw::silent(served.address());
        raw.give(&RpcRequest::Hello { capabilities: [0; 24] });
        raw.stream.read_exact(&mut [0; 36]).is_ok()
    });
}

#[test]
fn commands_before_the_greeting_and_a_second_greeting() {
    let served = Served::new(RpcLimits::default());
    let mut raw = Raw::silent(served.address());
    raw.give(&RpcRequest::DeviceCount);
    assert!(raw.is_refused(&[]));
    refused("where another must come", |_| vec![RpcRequest::Hello { capabilities: [1; 24] }]);
}

#[test]
fn other_machines_do_not_reach_it() {
    for host in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))] {
        let (address, limits) = (SocketAddr::new(host, 0), RpcLimits::default());
        let bound = RpcServer::bind(address, RpcAccess::Local, Vec::new(), RpcVersion::V5_1, limits);
        assert!(matches!(bound.err(), Some(RpcError::NotLoopback { .. })));
    }
}

/// Weights are copied to the layout of the device's products, and again after they were set anew.
#[test]
fn products_follow_weights_that_are_set_again() {
    let served = Served::new(RpcLimits::default());
    let mut raw = Raw::connect(served.address());
    let (weights, values) = (raw.allocate(36 * 64), raw.allocate(1024));
    let desc = TensorDesc::contiguous(DType::Q4_0, &[64, 64]).unwrap();
    let w = tensor(1, weights, 0, desc);
    let x = tensor(2, values, 0, f32s(&[64, 1]));
    let y = tensor(3, values, 512, f32s(&[64, 1]));
    raw.set(&x, &bytes_of(&[1.0; 64]));
    // Blocks of a scale of 1 and 32 numbers of 4 bits, 8 of which stand for 0.
    let blocks = |digit: u8| -> Vec<u8> {
        let block = [&[0x00, 0x3c][..], &[digit; 16]].concat();
        block.repeat(128)
    };
    raw.set(&w, &blocks(0x99));
    raw.give(&graph(&[3], &[w.clone(), x.clone(), computed(&y, encoded(&Op::MulMat), &[1, 2])]));
    assert_eq!(raw.get(&y), bytes_of(&[64.0; 64]));
    raw.set(&w, &blocks(0xaa));
    raw.give(&RpcRequest::Recompute { device: 0 });
    assert_eq!(raw.get(&y), bytes_of(&[128.0; 64]));
}
