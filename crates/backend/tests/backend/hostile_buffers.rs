//! Buffers written in safe code, as badly as safe code can: host memory stays sound.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_backend::{Buffer, BufferType, Claim, Claims, DeviceError, Gate, Holder};
use orlop_graph::AccessKind::{self, Read, Write};

use crate::fixtures::{contents, fill_with, host};

thread_local! {
    static STASH: RefCell<Option<Rc<Claim>>> = const { RefCell::new(None) };
}

/// Asked to move bytes, it reaches for its victim's memory instead, with the claim it is given and with one
/// that it finds lying about.
#[derive(Debug)]
struct Thief {
    victim: Arc<dyn Buffer>,
    gate: Arc<Gate>,
    caught: AtomicBool,
}

impl Thief {
    fn of(victim: &Arc<dyn Buffer>) -> Thief {
        Thief { victim: Arc::clone(victim), gate: Gate::new(), caught: AtomicBool::new(false) }
    }

    fn steal(&self, given: &Claim) {
        let stash = STASH.with(|stash| stash.borrow().clone());
        for claim in [Some(given), stash.as_deref()].into_iter().flatten() {
            let refused = [
                self.victim.write(claim, 0, &[0xEE; 8]),
                self.victim.fill(claim, 0..8, 0xEE),
                self.victim.read(claim, 0, &mut [0; 8]),
                self.victim.pull([claim, claim], 0, &*self.victim, 4..8).map(|_| ()),
                self.victim.push([claim, claim], 0..8, self, 0).map(|_| ()),
            ];
            let not_claimed = DeviceError::NotClaimed { buffer_type: "host".to_owned() };
            assert_eq!(refused, [(); 5].map(|()| Err(not_claimed.clone())));
        }
        self.caught.store(true, Ordering::Relaxed);
    }
}

// SAFETY: no host memory is reported, or that of a buffer which answers for it under the same gate.

unsafe impl Buffer for Thief {
    fn buffer_type(&self) -> &Arc<dyn BufferType> {
        self.victim.buffer_type()
    }

    fn bytes(&self) -> u64 {
        u64::MAX
    }

    fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    fn write(&self, claim: &Claim, _: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let before = bytes.to_vec();
        self.steal(claim);
        assert_eq!(bytes, before);
        Ok(())
    }

    fn read(&self, claim: &Claim, _: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        bytes.fill(1);
        self.steal(claim);
        assert!(bytes.iter().all(|byte| *byte == 1));
        Ok(())
    }

    fn fill(&self, _: &Claim, _: Range<u64>, _: u8) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn memory_lent_for_a_copy_is_out_of_reach_until_it_ends() {
    let victim = host(16);
    let claim = Rc::new(Claim::take(&*victim, Write).unwrap());
    STASH.with(|stash| *stash.borrow_mut() = Some(Rc::clone(&claim)));
    let pulled = Thief::of(&victim);
    assert_eq!(victim.pull([&claim, &claim], 0, &pulled, 0..8), Ok(true));
    let pushed = Thief::of(&victim);
    assert_eq!(victim.push([&claim, &claim], 0..8, &pushed, 0), Ok(true));
    assert!(pulled.caught.into_inner() && pushed.caught.into_inner());
    victim.write(&claim, 8, &[2; 8]).unwrap();
    STASH.with(|stash| stash.borrow_mut().take());
    drop(claim);
    assert_eq!(contents(&victim), [[1; 8], [2; 8]].concat());
}

#[test]
fn a_claim_works_again_after_a_copy_that_panicked() {
    #[derive(Debug)]
    struct Bomb(Thief);
    // SAFETY: no host memory is reported, or that of a buffer which answers for it under the same gate.
    unsafe impl Buffer for Bomb {
        fn buffer_type(&self) -> &Arc<dyn BufferType> {
            self.0.buffer_type()
        }
        fn bytes(&self) -> u64 {
            8
        }
        fn gate(&self) -> &Arc<Gate> {
            &self.0.gate
        }
        fn write(&self, _: &Claim, _: u64, _: &[u8]) -> Result<(), DeviceError> {
            Ok(())
        }
        fn read(&self, _: &Claim, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
            std::panic::resume_unwind(Box::new(()))
        }
        fn fill(&self, _: &Claim, _: Range<u64>, _: u8) -> Result<(), DeviceError> {
            Ok(())
        }
    }
    let buffer = host(8);
    let claim = Claim::take(&*buffer, Write).unwrap();
    let bomb = Bomb(Thief::of(&buffer));
    let pull = std::panic::AssertUnwindSafe(|| buffer.pull([&claim, &claim], 0, &bomb, 0..8));
    assert!(std::panic::catch_unwind(pull).is_err());
    buffer.write(&claim, 0, &[1; 8]).unwrap();
}

/// Shows one gate, then another, and never one of its own.
#[derive(Debug)]
struct Masked {
    faces: [Arc<dyn Buffer>; 2],
    second: AtomicBool,
}

// SAFETY: no host memory is reported, or that of a buffer which answers for it under the same gate.

unsafe impl Buffer for Masked {
    fn buffer_type(&self) -> &Arc<dyn BufferType> {
        self.faces[0].buffer_type()
    }

    fn bytes(&self) -> u64 {
        u64::MAX
    }

    fn gate(&self) -> &Arc<Gate> {
        self.faces[usize::from(self.second.fetch_xor(true, Ordering::Relaxed))].gate()
    }

    fn write(&self, _: &Claim, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn read(&self, _: &Claim, _: u64, _: &mut [u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn fill(&self, _: &Claim, _: Range<u64>, _: u8) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn a_claim_through_a_borrowed_gate_is_a_claim_to_its_owner() {
    let [one, two] = [host(8), host(8)];
    let faces = [Arc::clone(&one), Arc::clone(&one)];
    let mask = Masked { faces, second: AtomicBool::new(false) };
    let claim = Claim::take(&mask, Write).unwrap();
    one.write(&claim, 0, &[1; 8]).unwrap();
    assert!(!claim.allows(&*two, Read));
    let busy = DeviceError::Busy { buffer_type: "host".to_owned(), holder: Holder::Writer };
    assert_eq!(Claim::take(&*one, Read).unwrap_err(), busy);
    drop(claim);
    let reader = Claim::take(&mask, Read).unwrap();
    assert!(one.write(&reader, 0, &[2]).is_err());
}

#[test]
fn a_gate_that_changes_leaves_every_gate_as_it_was() {
    let [one, two] = [host(8), host(8)];
    let mask = Arc::new(Masked { faces: [one.clone(), two.clone()], second: AtomicBool::new(false) });
    for _ in 0..5 {
        let claim = Claim::take(&*mask, Write).unwrap();
        assert_ne!(claim.allows(&*one, AccessKind::Write), claim.allows(&*two, AccessKind::Write));
        drop(claim);
        let mask: Arc<dyn Buffer> = mask.clone();
        drop(Claims::take([(&mask, Write), (&one, Read), (&mask, Read)]).ok());
        for buffer in [&one, &two] {
            drop(Claim::take(&**buffer, Write).unwrap());
        }
    }
}

#[test]
fn a_copy_from_a_borrowed_gate_stays_within_the_owners_bounds() {
    let one = host(8);
    fill_with(&one, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let mask = Masked { faces: [one.clone(), one.clone()], second: AtomicBool::new(false) };
    let claim = Claim::take(&*one, Write).unwrap();
    assert!(matches!(one.pull([&claim, &claim], 0, &mask, 6..10), Err(DeviceError::OutOfBounds { .. })));
    assert!(one.pull([&claim, &claim], 0, &mask, u64::MAX - 1..u64::MAX).is_err());
    assert_eq!(one.push([&claim, &claim], 0..100, &mask, 0), Ok(false));
}

#[test]
fn pulling_from_itself_moves_bytes_that_may_overlap() {
    let buffer = host(8);
    fill_with(&buffer, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let claim = Claim::take(&*buffer, Write).unwrap();
    assert_eq!(buffer.pull([&claim, &claim], 2, &*buffer, 0..6), Ok(true));
    assert_eq!(buffer.push([&claim, &claim], 0..6, &*buffer, 2), Ok(false));
    drop(claim);
    assert_eq!(contents(&buffer), [1, 2, 1, 2, 3, 4, 5, 6]);
    let claim = Claim::take(&*buffer, Write).unwrap();
    assert_eq!(buffer.pull([&claim, &claim], 0, &*buffer, 2..8), Ok(true));
    drop(claim);
    assert_eq!(contents(&buffer), [1, 2, 3, 4, 5, 6, 5, 6]);
    let reader = Claim::take(&*buffer, Read).unwrap();
    let other = Claim::take(&*buffer, Read).unwrap();
    assert!(buffer.pull([&reader, &other], 0, &*buffer, 2..8).is_err());
}

#[test]
fn copies_between_empty_buffers_move_nothing() {
    let [one, two] = [host(0), host(0)];
    let [read, write] = [Claim::take(&*one, Read).unwrap(), Claim::take(&*two, Write).unwrap()];
    assert_eq!(two.pull([&write, &read], 0, &*one, 0..0), Ok(true));
    assert_eq!(one.push([&read, &write], 0..0, &*two, 0), Ok(true));
    assert!(two.pull([&write, &read], 0, &*one, 0..1).is_err());
}
