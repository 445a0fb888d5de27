use std::sync::Arc;

use orlop_backend::{Claim, Claims, DeviceError, Holder, Program, Queue, RunOptions};
use orlop_graph::AccessKind;

use crate::fixtures::{contents, f32, pattern, remote, stored};

/// Holds the claims of its work until it is waited for, as queues beside the host do.
#[derive(Debug, Default)]
struct Beside {
    claims: Vec<Claims>,
    waits: usize,
}

impl Queue for Beside {
    unsafe fn submit(
        &mut self,
        _: &Arc<dyn Program>,
        claims: &Claims,
        _: &RunOptions,
    ) -> Result<(), DeviceError> {
        self.claims.push(claims.clone());
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.claims.clear();
        self.waits += 1;
        Ok(())
    }
}

#[test]
fn bytes_given_to_a_queue_are_copied_and_arrive_behind_the_work_that_holds_their_buffer() {
    let (busy, idle) = (remote(16), remote(16));
    let mut queue = Beside::default();
    queue.claims.push(Claims::take([(&busy, AccessKind::Write)]).unwrap());
    let mut bytes = pattern(16, 1);
    let expected = bytes.clone();
    let arrived = [&idle, &busy].map(|buffer| queue.set(&stored(f32(&[4]), buffer, 0), 0, &bytes).unwrap());
    bytes.fill(0);
    assert!(arrived.iter().all(|event| event.is_done()));
    assert_eq!(queue.waits, 1, "only for the buffer that its own work held");
    assert_eq!([contents(&idle), contents(&busy)], [expected.clone(), expected]);
}

#[test]
fn bytes_read_by_a_queue_stay_what_they_were_until_they_are_taken() {
    let buffer = remote(16);
    let tensor = stored(f32(&[4]), &buffer, 0);
    let mut queue = Beside::default();
    let written = pattern(16, 2);
    queue.set(&tensor, 0, &written).unwrap();
    queue.claims.push(Claims::take([(&buffer, AccessKind::Write)]).unwrap());
    let read = queue.get(&tensor, 4, 8).unwrap();
    queue.set(&tensor, 0, &[0; 16]).unwrap();
    assert!(read.is_done());
    let mut taken = [1; 8];
    read.wait(&mut taken).unwrap();
    assert_eq!(taken[..], written[4..12]);
    let wrong = DeviceError::WrongLength { tensor: "a read".to_owned(), expected: 8, given: 4 };
    assert_eq!(read.wait(&mut [0; 4]), Err(wrong));
}

#[test]
fn a_queue_neither_writes_nor_reads_what_others_hold_or_what_lies_outside() {
    let buffer = remote(16);
    let tensor = stored(f32(&[4]), &buffer, 0);
    let mut queue = Beside::default();
    assert!(matches!(queue.set(&tensor, 12, &[0; 8]), Err(DeviceError::OutOfBounds { .. })));
    assert!(matches!(queue.get(&tensor, 0, 17), Err(DeviceError::OutOfBounds { .. })));
    assert_eq!(queue.waits, 0);
    let claim = Claim::take(&*buffer, AccessKind::Write).unwrap();
    let busy = |error: DeviceError| matches!(error, DeviceError::Busy { holder: Holder::Writer, .. });
    assert!(busy(queue.set(&tensor, 0, &[0; 16]).unwrap_err()));
    assert!(busy(queue.get(&tensor, 0, 16).unwrap_err()));
    drop(claim);
    queue.set(&tensor, 0, &[0; 16]).unwrap();
}
