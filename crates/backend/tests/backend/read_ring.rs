use std::sync::{Arc, Mutex};

use orlop_backend::{DeviceError, ReadBlock, ReadBytes, ReadRing};

use crate::fixtures::pattern;

/// What was asked of the blocks, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Four bytes that a device has written at once.
struct Block {
    index: usize,
    written: [u8; 4],
    log: Log,
    fails: bool,
}

impl Block {
    fn write(&mut self, bytes: &[u8]) {
        self.log.lock().unwrap().push(format!("write {}", self.index));
        self.written[..bytes.len()].copy_from_slice(bytes);
    }
}

impl ReadBlock for Block {
    fn take(&mut self, to: &mut [u8]) -> Result<(), DeviceError> {
        self.log.lock().unwrap().push(format!("take {} of {}", to.len(), self.index));
        to.copy_from_slice(&self.written[..to.len()]);
        if self.fails { Err(DeviceError::Unbound { value: "a fault".to_owned() }) } else { Ok(()) }
    }
}

fn ring(blocks: usize, failing: Option<usize>) -> (ReadRing<Block>, Log) {
    let log = Log::default();
    let block =
        |index| Block { index, written: [0; 4], log: Arc::clone(&log), fails: failing == Some(index) };
    (ReadRing::new((0..blocks).map(block), 4), Arc::clone(&log))
}

fn read(ring: &ReadRing<Block>, bytes: &[u8]) -> impl ReadBytes + use<> {
    let write = |block: &mut Block, range: std::ops::Range<u64>| {
        block.write(&bytes[range.start as usize..range.end as usize]);
        Ok(())
    };
    ring.read(bytes.len() as u64, write).unwrap()
}

fn taken(read: &impl ReadBytes) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; read.bytes() as usize];
    read.copy_to(&mut bytes).map(|()| bytes)
}

fn noted(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock().unwrap())
}

#[test]
fn reads_that_fit_the_ring_are_not_taken_before_they_are_asked_for() {
    let (ring, log) = ring(3, None);
    let bytes = [pattern(4, 1), pattern(7, 2)];
    let reads = bytes.each_ref().map(|bytes| read(&ring, bytes));
    assert_eq!(noted(&log), ["write 0", "write 1", "write 2"]);
    assert_eq!(taken(&reads[1]).unwrap(), bytes[1]);
    assert_eq!(noted(&log), ["take 4 of 1", "take 3 of 2"]);
    assert_eq!(reads.each_ref().map(|read| taken(read).unwrap()), bytes);
}

#[test]
fn a_full_ring_moves_its_oldest_piece_to_the_read_that_it_belongs_to() {
    let (ring, log) = ring(2, None);
    let bytes = [pattern(3, 1), pattern(11, 2), pattern(0, 3), pattern(4, 4)];
    let reads = bytes.each_ref().map(|bytes| read(&ring, bytes));
    let moved = ["write 0", "write 1", "take 3 of 0", "write 0", "take 4 of 1", "write 1", "take 4 of 0"];
    assert_eq!(noted(&log)[..7], moved);
    for (read, bytes) in reads.iter().zip(&bytes).rev() {
        assert_eq!([taken(read).unwrap(), taken(read).unwrap()], [bytes.clone(), bytes.clone()]);
    }
}

#[test]
fn a_read_that_was_dropped_is_waited_for_and_copied_nowhere() {
    let (ring, log) = ring(1, None);
    drop(read(&ring, &[1, 2, 3]));
    let kept = read(&ring, &[4]);
    assert_eq!(noted(&log), ["write 0", "take 0 of 0", "write 0"]);
    assert_eq!(taken(&kept).unwrap(), [4]);
}

#[test]
fn an_error_of_a_piece_is_that_of_its_own_read() {
    let (ring, _) = ring(3, Some(1));
    let [first, second, third] = [1, 5, 1].map(|length| read(&ring, &pattern(length, length)));
    let fault = DeviceError::Unbound { value: "a fault".to_owned() };
    assert_eq!(taken(&first).unwrap(), pattern(1, 1));
    assert_eq!([taken(&second), taken(&second)], [Err(fault.clone()), Err(fault)]);
    assert_eq!(taken(&third).unwrap(), pattern(1, 1));
}

#[test]
fn a_read_that_cannot_be_started_leaves_the_others_and_the_ring_as_they_were() {
    let (ring, _) = ring(2, None);
    let before = read(&ring, &[1, 2]);
    let refused = DeviceError::Cancelled { step: 0, steps: 1 };
    let failed = ring.read(8, |_, range| if range.start == 0 { Ok(()) } else { Err(refused.clone()) });
    assert_eq!(failed.err(), Some(refused));
    let after = read(&ring, &pattern(9, 5));
    assert_eq!((taken(&before).unwrap(), taken(&after).unwrap()), (vec![1, 2], pattern(9, 5)));
}

#[test]
fn a_part_of_a_read_is_what_lies_there() {
    let (ring, _) = ring(2, None);
    let bytes = pattern(6, 6);
    let write = |block: &mut Block, range: std::ops::Range<u64>| {
        block.write(&bytes[range.start as usize..range.end as usize]);
        Ok(())
    };
    assert_eq!(taken(&ring.read(6, write).unwrap().part(1..5)).unwrap(), bytes[1..5]);
}
