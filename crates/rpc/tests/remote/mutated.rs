//! Sessions whose bytes are spoiled: refused or served, never a panic, and the next client is served.

use std::io::{Read, Write};
use std::net::Shutdown;

use orlop_graph::Op;
use orlop_rpc::RpcLimits;
use orlop_rpc::codec::RpcRequest;
use orlop_testkit::Random;

use crate::support::{Raw, Served, bytes_of, computed, f32s, graph, i32s, numbers, tensor};

/// A session behind its first buffer, as bytes.
fn session(raw: &Raw, buffer: (u64, u64)) -> Vec<u8> {
    let op = |op: &Op| numbers().encode(op).unwrap().0;
    let table = tensor(1, buffer, 0, f32s(&[8, 4]));
    let ids = tensor(2, buffer, 256, i32s(&[2]));
    let rows = computed(&tensor(3, buffer, 512, f32s(&[8, 2])), op(&Op::GetRows), &[1, 2]);
    let normed = computed(&tensor(4, buffer, 1024, f32s(&[8, 2])), op(&Op::RmsNorm { eps: 1e-5 }), &[3]);
    let product = computed(&tensor(5, buffer, 2048, f32s(&[4, 2])), op(&Op::MulMat), &[1, 4]);
    let data = bytes_of(&[0.5; 32]);
    let mut bytes = Vec::new();
    let requests = [
        RpcRequest::SetTensor { tensor: Box::new(table.clone()), store: false, offset: 0, data: &data },
        RpcRequest::InitTensor { tensor: Box::new(table.clone()) },
        graph(&[3, 4, 5], &[table.clone(), ids, rows, normed, product.clone()]),
        RpcRequest::Recompute { device: 0 },
        RpcRequest::GetTensor { tensor: Box::new(product), offset: 0, bytes: 32 },
        RpcRequest::CopyTensor { from: Box::new(table.clone()), to: Box::new(table) },
        RpcRequest::FreeBuffer { buffer: buffer.0 },
    ];
    requests.iter().for_each(|request| request.write(&raw.dialect, &mut bytes));
    bytes
}

fn spoil(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.index(bytes.len());
    match random.index(5) {
        0 => bytes[at] ^= 1 << random.index(8),
        1 => bytes[at] = random.next() as u8,
        2 => drop(bytes.drain(at..(at + 1 + random.index(16)).min(bytes.len()))),
        3 => drop(bytes.splice(at..at, [0, 1, 255])),
        _ => {
            let telling = [0, 1, 1 << 31, u64::from(u32::MAX), 1 << 40, u64::MAX / 2, u64::MAX];
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&telling[random.index(7)].to_le_bytes()[..end - at]);
        }
    }
}

#[test]
fn spoiled_sessions_end_without_a_panic_and_the_next_client_is_served() {
    let served = Served::new(RpcLimits::default());
    let mut random = Random::new(31);
    let mut served_whole = 0;
    for round in 0..600 {
        let mut raw = Raw::connect(served.address());
        let buffer = raw.allocate(4096);
        let mut bytes = session(&raw, buffer);
        // The first is as it should be.
        for _ in 0..round.min(1 + random.index(3)) {
            spoil(&mut bytes, &mut random);
        }
        let _ = raw.stream.write_all(&bytes);
        let _ = raw.stream.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        let _ = raw.stream.read_to_end(&mut answers);
        served_whole += usize::from(answers.len() == 8 + 8 + 32 + 9 + 8);
    }
    assert!((1..500).contains(&served_whole), "{served_whole}");
    assert!(served.refusals().len() > 100);
    assert!(served.refusals().iter().all(|reason| !reason.contains("panicked")), "{:?}", served.refusals());
    assert!(Raw::connect(served.address()).allocate(64).0 != 0);
}
