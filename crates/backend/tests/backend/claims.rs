use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orlop_backend::{Buffer, Claim, Claims, DeviceError, Holder};
use orlop_graph::AccessKind::{Read, Write};

use crate::fixtures::{contents, f32, host, stored};

fn busy(holder: Holder) -> DeviceError {
    DeviceError::Busy { buffer_type: "host".to_owned(), holder }
}

fn not_claimed() -> DeviceError {
    DeviceError::NotClaimed { buffer_type: "host".to_owned() }
}

#[test]
fn many_readers_or_one_writer() {
    let buffer = host(8);
    let readers: Vec<Claim> = (0..3).map(|_| Claim::take(&*buffer, Read).unwrap()).collect();
    assert_eq!(Claim::take(&*buffer, Write).unwrap_err(), busy(Holder::Readers(3)));
    assert_eq!(busy(Holder::Readers(3)).to_string(), "a buffer of host is busy: 3 readers");
    drop(readers);
    let writer = Claim::take(&*buffer, Write).unwrap();
    for kind in [Read, Write] {
        assert_eq!(Claim::take(&*buffer, kind).unwrap_err(), busy(Holder::Writer));
    }
    drop(writer);
    assert!(Claim::take(&*buffer, Write).is_ok());
}

#[test]
fn a_claim_allows_its_buffer_and_its_kind() {
    let [one, two] = [host(8), host(8)];
    let read = Claim::take(&*one, Read).unwrap();
    assert!(read.allows(&*one, Read) && !read.allows(&*one, Write) && !read.allows(&*two, Read));
    assert_eq!(one.write(&read, 0, &[1]), Err(not_claimed()));
    assert_eq!(one.fill(&read, 0..1, 1), Err(not_claimed()));
    assert_eq!(two.read(&read, 0, &mut [0]), Err(not_claimed()));
    let write = Claim::take(&*two, Write).unwrap();
    assert!(write.allows(&*two, Read) && write.allows(&*two, Write));
    assert_eq!(two.pull([&write, &write], 0, &*one, 0..4), Err(not_claimed()));
    assert_eq!(two.pull([&read, &write], 0, &*one, 0..4), Err(not_claimed()));
    assert_eq!(one.push([&write, &read], 0..4, &*two, 0), Err(not_claimed()));
    assert_eq!(one.push([&read, &read], 0..4, &*two, 0), Err(not_claimed()));
    assert_eq!(two.pull([&write, &read], 0, &*one, 0..4), Ok(true));
    assert_eq!(one.push([&read, &write], 0..4, &*two, 0), Ok(true));
}

#[test]
fn a_claim_outlives_its_buffer_and_allows_no_other() {
    let buffer = host(8);
    let claim = Claim::take(&*buffer, Write).unwrap();
    drop(buffer);
    for _ in 0..100 {
        assert!(!claim.allows(&*host(8), Read));
    }
}

#[test]
fn generations_count_writes_and_not_reads() {
    let buffer = host(8);
    drop(Claim::take(&*buffer, Read).unwrap());
    let write = Claim::take(&*buffer, Write).unwrap();
    assert_eq!(buffer.gate().generation(), 0);
    drop(write);
    assert_eq!(buffer.gate().generation(), 1);
    drop(Claims::take([(&buffer, Write), (&buffer, Write)]).unwrap());
    assert_eq!(buffer.gate().generation(), 2);
}

#[test]
fn a_run_merges_what_it_names_twice() {
    let [one, two] = [host(8), host(8)];
    let again = Arc::clone(&one);
    for wanted in [[(&one, Read), (&again, Write)], [(&one, Write), (&again, Read)]] {
        let claims = Claims::take(wanted.into_iter().chain([(&two, Read), (&two, Read)])).unwrap();
        claims.check(&*one, Write).unwrap();
        claims.check(&*one, Read).unwrap();
        claims.check(&*two, Read).unwrap();
        assert_eq!(claims.check(&*two, Write), Err(not_claimed()));
        assert_eq!(Claim::take(&*two, Write).unwrap_err(), busy(Holder::Readers(1)));
    }
    assert!(Claim::take(&*one, Write).is_ok());
    let none = Claims::take([]).unwrap();
    assert_eq!(none.check(&*one, Read), Err(not_claimed()));
}

#[test]
fn a_run_claims_everything_or_nothing() {
    let buffers = [host(8), host(8), host(8)];
    let held = Claim::take(&*buffers[2], Read).unwrap();
    let refused = Claims::take(buffers.iter().map(|buffer| (buffer, Write))).unwrap_err();
    assert_eq!(refused, busy(Holder::Readers(1)));
    for buffer in &buffers[..2] {
        assert!(Claim::take(&**buffer, Write).is_ok());
    }
    drop(held);
    assert!(Claims::take(buffers.iter().map(|buffer| (buffer, Write))).is_ok());
}

#[test]
fn a_run_holds_its_buffers_until_the_last_clone_and_the_last_lent_claim_go() {
    let buffer = host(8);
    let claims = Claims::take([(&buffer, Write)]).unwrap();
    let queue = claims.clone();
    // SAFETY: `lend` asks that no other lent claim touches what this one writes; there is no other.
    let lent = unsafe { queue.lend(&*buffer, Write) }.unwrap();
    drop(claims);
    buffer.write(&lent, 0, &[5]).unwrap();
    drop(queue);
    assert_eq!(Claim::take(&*buffer, Read).unwrap_err(), busy(Holder::Writer));
    drop(lent);
    assert_eq!((contents(&buffer)[0], buffer.gate().generation()), (5, 1));
}

#[test]
fn a_run_gives_its_claims_up_and_takes_them_again() {
    let [one, two] = [host(8), host(8)];
    let mut claims = Claims::take([(&one, Write), (&two, Read)]).unwrap();
    assert!(claims.release());
    assert_eq!(claims.check(&*one, Read), Err(not_claimed()));
    assert_eq!(one.gate().generation(), 1, "it may have been written");
    let writer = Claim::take(&*two, Write).unwrap();
    assert_eq!(claims.retake(), Err(busy(Holder::Writer)));
    assert!(Claim::take(&*one, Write).is_ok(), "all or nothing");
    drop(writer);
    claims.retake().unwrap();
    claims.retake().unwrap();
    assert_eq!(Claim::take(&*two, Write).unwrap_err(), busy(Holder::Readers(1)));
    let clone = claims.clone();
    assert!(!claims.release(), "a clone still holds them");
    assert_eq!(clone.check(&*one, Write), Ok(()));
    drop(clone);
    assert!(claims.release() && claims.release());
    let clone = claims.clone();
    assert_eq!(claims.retake(), Err(not_claimed()));
    drop(clone);
    claims.retake().unwrap();
    drop(claims);
    for buffer in [&one, &two] {
        assert!(Claim::take(&**buffer, Write).is_ok());
    }
}

#[test]
fn what_a_run_did_not_claim_is_not_lent() {
    let [one, two] = [host(8), host(8)];
    let claims = Claims::take([(&one, Read)]).unwrap();
    for (buffer, kind) in [(&one, Write), (&two, Read), (&two, Write)] {
        // SAFETY: nothing is lent, so nothing is used.
        assert_eq!(unsafe { claims.lend(&**buffer, kind) }.unwrap_err(), not_claimed());
    }
    assert_eq!(not_claimed().to_string(), "a buffer of host is touched without a claim to it");
}

#[test]
fn lent_claims_serve_several_threads_at_once() {
    let buffer = host(64);
    let claims = Claims::take([(&buffer, Write)]).unwrap();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (claims, buffer) = (&claims, &buffer);
            scope.spawn(move || {
                // SAFETY: `lend` asks that lent claims do not meet: each thread has its own sixteen bytes.
                let claim = unsafe { claims.lend(&**buffer, Write) }.unwrap();
                buffer.fill(&claim, part * 16..part * 16 + 16, part as u8 + 1).unwrap();
            });
        }
    });
    drop(claims);
    assert!(contents(&buffer).chunks(16).zip(1..).all(|(part, value)| part == [value; 16]));
}

#[test]
fn writers_on_several_threads_never_meet_each_other_or_a_reader() {
    let buffer = host(4096);
    let tensor = stored(f32(&[1024]), &buffer, 0);
    let (written, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (tensor, written, refused) = (&tensor, &written, &refused);
            scope.spawn(move || {
                let mut bytes = vec![0; 4096];
                for _ in 0..300 {
                    let done = if thread < 2 {
                        tensor.memset(0, 4096, thread + 1)
                    } else {
                        tensor.get(0, &mut bytes)
                    };
                    match done {
                        Ok(()) if thread < 2 => written.fetch_add(1, Ordering::Relaxed),
                        Ok(()) => {
                            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                            0
                        }
                        Err(DeviceError::Busy { .. }) => refused.fetch_add(1, Ordering::Relaxed),
                        Err(other) => panic!("{other}"),
                    };
                    std::thread::yield_now();
                }
            });
        }
    });
    assert_eq!(buffer.gate().generation(), written.into_inner());
    assert!(refused.into_inner() < 1200);
    assert!(Claim::take(&*buffer, Write).is_ok());
}

#[test]
fn a_claim_can_go_to_another_thread() {
    let buffer = host(8);
    let claim = Claim::take(&*buffer, Write).unwrap();
    std::thread::scope(|scope| {
        let buffer: &dyn Buffer = &*buffer;
        scope.spawn(move || buffer.fill(&claim, 0..8, 3).unwrap());
    });
    assert_eq!(contents(&buffer), [3; 8]);
}

#[test]
fn a_panic_under_a_claim_releases_it() {
    let buffer = host(8);
    let panicked = std::thread::scope(|scope| {
        let buffer: &dyn Buffer = &*buffer;
        let thread = scope.spawn(move || {
            let _claim = Claim::take(buffer, Write).unwrap();
            std::panic::resume_unwind(Box::new(()));
        });
        thread.join().is_err()
    });
    assert!(panicked && Claim::take(&*buffer, Write).is_ok());
}

#[test]
fn claims_are_a_queues_alone_when_nothing_else_has_a_clone() {
    let (x, y) = (host(8), host(8));
    let claims = Claims::take([(&x, Write), (&y, Read)]).unwrap();
    let other = Claims::take([(&y, Read)]).unwrap();
    let mut kept = vec![other.clone(), claims.clone(), claims.clone()];
    let alone = |kept: &[Claims], buffer: &Arc<dyn Buffer>, kind| {
        Claims::held_alone(kept.iter(), &**buffer, kind).is_some()
    };
    assert!(!alone(&kept, &x, Write), "the caller has a clone");
    drop(claims);
    assert!(alone(&kept, &x, Write) && alone(&kept, &x, Read));
    assert!(!alone(&kept, &y, Write), "claimed for reading");
    assert!(!alone(&kept, &host(8), Read), "not claimed");
    // SAFETY: `lend` asks that conflicting uses are ordered: nothing is used here.
    let lent = unsafe { kept[1].lend(&*x, Read) }.unwrap();
    assert!(!alone(&kept, &x, Write), "a part of it is lent");
    drop(lent);
    kept.pop();
    assert!(alone(&kept, &x, Write));
}
