use std::sync::Arc;

use orlop_backend::{Claim, Claims, CopyRoute, Device, Role, Slot, StoredTensor, copy};
use orlop_graph::{AccessKind, DType, TensorDesc};

use crate::support::{cpu, gpu};

#[test]
fn bytes_come_back_as_they_were_written_wherever_they_begin() {
    let device = gpu();
    // More than the staging memory holds, and not a whole number of words.
    let bytes = 3_000_003;
    let buffer = Arc::clone(&device.buffer_types(Role::Arena)[0]).allocate(bytes).unwrap();
    let claim = Claim::take(&*buffer, AccessKind::Write).unwrap();
    let mut expected: Vec<u8> = (0..bytes).map(|at| (at * 7 % 251) as u8).collect();
    buffer.write(&claim, 0, &expected).unwrap();
    for (offset, length) in [(0, 1), (1, 2), (5, 7), (8, 4), (1_000_001, 600_002), (2_999_999, 4)] {
        let piece: Vec<u8> = (0..length).map(|at| (at * 13 % 241) as u8).collect();
        buffer.write(&claim, offset, &piece).unwrap();
        expected[offset as usize..][..piece.len()].copy_from_slice(&piece);
    }
    buffer.fill(&claim, 100..200, 0).unwrap();
    buffer.fill(&claim, 301..303, 9).unwrap();
    expected[100..200].fill(0);
    expected[301..303].fill(9);
    let mut found = vec![0; bytes as usize];
    buffer.read(&claim, 0, &mut found).unwrap();
    assert!(found == expected);
    let mut part = [0; 5];
    buffer.read(&claim, 1_000_003, &mut part).unwrap();
    assert_eq!(part, expected[1_000_003..1_000_008]);
}

#[test]
fn tensors_are_copied_within_the_device_and_to_and_from_the_host() {
    let (device, host) = (gpu(), cpu());
    let desc = TensorDesc::contiguous(DType::F32, &[100, 7]).unwrap();
    let tensor = |device: &dyn Device| {
        let buffer = Arc::clone(&device.buffer_types(Role::Arena)[0]).allocate(desc.bytes()).unwrap();
        StoredTensor::new("x", desc, Slot { buffer, offset: 0 }).unwrap()
    };
    let (a, b, c) = (tensor(&*device), tensor(&*device), tensor(&*host));
    let bytes: Vec<u8> = (0..desc.bytes()).map(|at| (at % 253) as u8).collect();
    a.set(0, &bytes).unwrap();
    assert_eq!(copy(&a, &b).unwrap(), CopyRoute::Pulled);
    copy(&b, &c).unwrap();
    let mut found = vec![0; bytes.len()];
    c.get(0, &mut found).unwrap();
    assert_eq!(found, bytes);
    c.set(0, &vec![7; bytes.len()]).unwrap();
    copy(&c, &a).unwrap();
    a.get(0, &mut found).unwrap();
    assert_eq!(found, vec![7; bytes.len()]);
}

#[test]
fn a_queue_copies_beside_the_host_and_its_events_pass() {
    let (device, host) = (gpu(), cpu());
    let desc = TensorDesc::contiguous(DType::F32, &[1000]).unwrap();
    let tensor = |device: &dyn Device| {
        let buffer = Arc::clone(&device.buffer_types(Role::Arena)[0]).allocate(desc.bytes()).unwrap();
        StoredTensor::new("x", desc, Slot { buffer, offset: 0 }).unwrap()
    };
    let (from, to) = (tensor(&*host), tensor(&*device));
    from.set(0, &[5; 4000]).unwrap();
    let mut queue = device.queue().unwrap();
    let claims = [(&from.slot().buffer, AccessKind::Read), (&to.slot().buffer, AccessKind::Write)];
    let claims = Claims::take(claims).unwrap();
    // SAFETY: `copy` asks that other queues do not interfere under the same claims: there are none.
    unsafe { queue.copy(&from, &to, &claims) }.unwrap();
    let event = queue.record().unwrap();
    event.wait().unwrap();
    assert!(event.is_done());
    assert!(event.passed_at().is_some());
    queue.sync().unwrap();
    drop(claims);
    let mut found = [0; 4000];
    to.get(0, &mut found).unwrap();
    assert_eq!(found, [5; 4000]);
}
