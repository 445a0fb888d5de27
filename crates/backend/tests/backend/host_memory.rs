use std::sync::Arc;

use orlop_backend::{BufferType, Claim, DeviceError, HOST_ALIGNMENT, HostBufferType, same_type};
use orlop_graph::AccessKind;

use crate::fixtures::{contents, fill_with, host};

#[test]
fn every_buffer_begins_at_its_alignment() {
    for shift in 0..=12 {
        let alignment = 1 << shift;
        let kind = HostBufferType::with_limits("host", alignment, u64::MAX).unwrap();
        for bytes in [0, 1, 3, 64, 1000, 4096, 100_000] {
            let buffer = Arc::clone(&kind).allocate(bytes).unwrap();
            let span = buffer.host().unwrap();
            assert_eq!(span.base.addr().get() as u64 % alignment, 0);
            assert_eq!((span.bytes, span.writable, buffer.bytes()), (bytes, true, bytes));
        }
    }
    assert_eq!(HostBufferType::new("host").alignment(), HOST_ALIGNMENT);
}

#[test]
fn large_buffers_begin_where_large_pages_do() {
    for bytes in [2 << 20, (5 << 20) + 1] {
        let buffer = host(bytes);
        let span = buffer.host().unwrap();
        assert_eq!((span.bytes, buffer.bytes()), (bytes, bytes));
        assert!(contents(&buffer).iter().all(|byte| *byte == 0));
        if cfg!(target_os = "linux") {
            assert_eq!(span.base.addr().get() % (2 << 20), 0);
        }
    }
}

#[test]
fn alignments_that_are_no_power_of_two_are_refused() {
    for alignment in [0, 3, 48, u64::MAX] {
        let refused = HostBufferType::with_limits("host", alignment, 100).unwrap_err();
        assert_eq!(refused, DeviceError::BadAlignment(alignment));
    }
}

#[test]
fn new_memory_is_zero_to_the_last_byte_and_holds_what_is_written() {
    for bytes in [1, 63, 64, 65, 300_000] {
        // Leaves dirty blocks of this size behind for the allocator to reuse.
        for _ in 0..3 {
            let buffer = host(bytes);
            assert!(contents(&buffer).iter().all(|byte| *byte == 0));
            fill_with(&buffer, &vec![0xFF; bytes as usize]);
            assert!(contents(&buffer).iter().all(|byte| *byte == 0xFF));
        }
    }
}

#[test]
fn a_buffer_of_no_bytes_has_a_gate_and_nothing_else() {
    let buffer = host(0);
    let claim = Claim::take(&*buffer, AccessKind::Write).unwrap();
    buffer.write(&claim, 0, &[]).unwrap();
    buffer.read(&claim, 0, &mut []).unwrap();
    buffer.fill(&claim, 0..0, 1).unwrap();
    let outside = DeviceError::OutOfBounds { tensor: "host".into(), offset: 0, bytes: 1, available: 0 };
    assert_eq!(buffer.write(&claim, 0, &[1]), Err(outside));
    assert!(buffer.write(&claim, 1, &[]).is_err());
}

#[test]
fn a_buffer_beyond_the_types_limit_is_too_large() {
    let kind = HostBufferType::with_limits("small", 64, 100).unwrap();
    assert!(Arc::clone(&kind).allocate(100).is_ok());
    let refused = kind.allocate(101).unwrap_err();
    assert_eq!(refused, DeviceError::TooLarge { buffer_type: "small".into(), bytes: 101, max: 100 });
    assert_eq!(refused.to_string(), "a buffer of 101 bytes exceeds the 100 bytes that small allows");
}

#[test]
fn absurd_sizes_and_alignments_are_out_of_memory() {
    for bytes in [1 << 50, 1 << 62, i64::MAX as u64, 1 << 63, u64::MAX - 63, u64::MAX] {
        let refused = HostBufferType::new("host").allocate(bytes).unwrap_err();
        assert_eq!(refused, DeviceError::OutOfMemory { buffer_type: "host".into(), bytes });
    }
    let kind = HostBufferType::with_limits("host", 1 << 63, u64::MAX).unwrap();
    assert!(matches!(kind.allocate(1), Err(DeviceError::OutOfMemory { .. })));
}

#[test]
fn raw_access_checks_its_bounds_without_wrapping() {
    let buffer = host(16);
    let claim = Claim::take(&*buffer, AccessKind::Write).unwrap();
    for (offset, bytes) in [(17, 0), (16, 1), (0, 17), (u64::MAX, 1), (u64::MAX - 3, 8)] {
        let expected = DeviceError::OutOfBounds { tensor: "host".into(), offset, bytes, available: 16 };
        let mut data = vec![0; bytes as usize];
        assert_eq!(buffer.write(&claim, offset, &data), Err(expected.clone()));
        assert_eq!(buffer.read(&claim, offset, &mut data), Err(expected));
    }
    assert!(buffer.fill(&claim, 10..u64::MAX, 1).is_err());
    assert!(buffer.fill(&claim, u64::MAX..u64::MAX, 1).is_err());
    #[allow(clippy::reversed_empty_ranges)]
    buffer.fill(&claim, 10..2, 1).unwrap();
    assert_eq!(contents_under(&buffer, &claim), [0; 16]);
}

fn contents_under(buffer: &Arc<dyn orlop_backend::Buffer>, claim: &Claim) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    buffer.read(claim, 0, &mut bytes).expect("all of it");
    bytes
}

#[test]
fn a_buffer_knows_the_type_it_was_made_by() {
    let [one, two] = [HostBufferType::new("host"), HostBufferType::new("host")];
    let buffer = Arc::clone(&one).allocate(1).unwrap();
    assert!(same_type(buffer.buffer_type(), &(one as Arc<dyn BufferType>)));
    assert!(!same_type(buffer.buffer_type(), &(two as Arc<dyn BufferType>)));
    assert_eq!(format!("{buffer:?}"), "1 bytes of host");
}
