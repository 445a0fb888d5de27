use std::sync::Arc;

use orlop_backend::{Claim, DeviceError, Pieces, Slot, StoredTensor};
use orlop_graph::{AccessKind, DType, TensorDesc};

use crate::fixtures::{contents, f32, fill_with, host, pattern, remote, stored, strided};

fn outside(offset: u64, bytes: u64, available: u64) -> DeviceError {
    DeviceError::OutOfBounds { tensor: "x".to_owned(), offset, bytes, available }
}

#[test]
fn a_tensor_must_fit_its_buffer() {
    let buffer = host(64);
    let place = |offset| Slot { buffer: Arc::clone(&buffer), offset };
    let tensor = StoredTensor::new("x", f32(&[4]), place(48)).unwrap();
    assert_eq!((tensor.name(), tensor.desc(), tensor.slot().offset), ("x", &f32(&[4]), 48));
    for offset in [49, 64, 65, u64::MAX - 8, u64::MAX] {
        assert_eq!(StoredTensor::new("x", f32(&[4]), place(offset)).unwrap_err(), outside(offset, 16, 64));
    }
    assert!(StoredTensor::new("x", f32(&[0]), place(64)).is_ok());
    assert_eq!(StoredTensor::new("x", f32(&[0]), place(65)).unwrap_err(), outside(65, 0, 64));
    let by_hand = TensorDesc { dtype: DType::F32, extents: [u64::MAX; 4], strides: [u64::MAX; 4] };
    assert_eq!(StoredTensor::new("x", by_hand, place(0)).unwrap_err(), outside(0, u64::MAX, 64));
}

#[test]
fn what_is_set_is_what_is_read() {
    for buffer in [host(64), remote(64)] {
        let tensor = stored(f32(&[8]), &buffer, 16);
        tensor.set(0, &pattern(32, 1)).unwrap();
        tensor.set(5, &[1, 2, 3]).unwrap();
        let mut bytes = [0; 5];
        tensor.get(4, &mut bytes).unwrap();
        let before = pattern(32, 1);
        assert_eq!(bytes, [before[4], 1, 2, 3, before[8]]);
        tensor.memset(30, 2, 0xEE).unwrap();
        assert_eq!(contents(&buffer)[46..49], [0xEE, 0xEE, 0]);
        assert_eq!(contents(&buffer)[..16], [0; 16]);
    }
}

#[test]
fn access_ends_with_the_tensor_and_does_not_wrap() {
    let buffer = host(64);
    let tensor = stored(f32(&[4]), &buffer, 16);
    for (offset, bytes) in [(16, 1), (17, 0), (0, 17), (u64::MAX, 1), (u64::MAX - 7, 16), (u64::MAX, 0)] {
        let mut data = vec![1; bytes as usize];
        assert_eq!(tensor.set(offset, &data), Err(outside(offset, bytes, 16)));
        assert_eq!(tensor.get(offset, &mut data), Err(outside(offset, bytes, 16)));
        assert_eq!(tensor.memset(offset, bytes, 1), Err(outside(offset, bytes, 16)));
    }
    assert_eq!(tensor.memset(8, u64::MAX, 1), Err(outside(8, u64::MAX, 16)));
    assert_eq!(contents(&buffer), [0; 64]);
    for offset in [0, 16] {
        tensor.set(offset, &[]).unwrap();
        tensor.get(offset, &mut []).unwrap();
        tensor.memset(offset, 0, 1).unwrap();
    }
}

#[test]
fn pieces_go_where_they_belong_and_leave_gaps_alone() {
    for buffer in [host(40), remote(40)] {
        fill_with(&buffer, &[9; 40]);
        let tensor = stored(f32(&[8]), &buffer, 4);
        let pieces = Pieces { offset: 2, bytes: 3, count: 3, stride: 10 };
        tensor.set_2d(pieces, &[1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9], 4).unwrap();
        let all = contents(&buffer);
        assert_eq!(
            (&all[6..9], &all[16..19], &all[26..29]),
            (&[1, 2, 3][..], &[4, 5, 6][..], &[7, 8, 9][..])
        );
        assert!(
            all.iter().enumerate().all(|(i, byte)| *byte == 9 || [6, 16, 26].contains(&(i - i % 10 + 6)))
        );
        let mut back = [0xAA; 13];
        tensor.get_2d(pieces, &mut back, 5).unwrap();
        assert_eq!(back, [1, 2, 3, 0xAA, 0xAA, 4, 5, 6, 0xAA, 0xAA, 7, 8, 9]);
    }
}

#[test]
fn pieces_outside_the_tensor_are_refused_without_wrapping() {
    let buffer = host(64);
    let tensor = stored(f32(&[8]), &buffer, 0);
    let refused = |pieces, bytes| {
        let mut data = [0; 64];
        assert_eq!(tensor.set_2d(pieces, &data, 0), Err(outside(pieces.offset, bytes, 32)));
        assert_eq!(tensor.get_2d(pieces, &mut data, 0), Err(outside(pieces.offset, bytes, 32)));
    };
    refused(Pieces { offset: 0, bytes: 3, count: 4, stride: 10 }, 33);
    refused(Pieces { offset: 1, bytes: 2, count: 4, stride: 10 }, 32);
    refused(Pieces { offset: u64::MAX, bytes: 2, count: 1, stride: 0 }, 2);
    refused(Pieces { offset: 33, bytes: 2, count: 0, stride: 0 }, 0);
    refused(Pieces { offset: 0, bytes: 1, count: 3, stride: 1 << 63 }, u64::MAX);
    refused(Pieces { offset: 0, bytes: 2, count: 2, stride: u64::MAX }, u64::MAX);
    refused(Pieces { offset: 0, bytes: 8, count: u64::MAX, stride: u64::MAX }, u64::MAX);
    assert_eq!(contents(&buffer), [0; 64]);
}

#[test]
fn no_pieces_and_empty_pieces_are_nothing_to_do() {
    let tensor = stored(f32(&[8]), &host(32), 0);
    let none = Pieces { offset: 32, bytes: u64::MAX, count: 0, stride: u64::MAX };
    tensor.set_2d(none, &[], u64::MAX).unwrap();
    tensor.get_2d(none, &mut [], u64::MAX).unwrap();
    let endless = Pieces { offset: 0, bytes: 0, count: u64::MAX, stride: 0 };
    tensor.set_2d(endless, &[], 0).unwrap();
    tensor.get_2d(endless, &mut [], 0).unwrap();
}

#[test]
fn host_memory_too_short_for_the_pieces_is_refused() {
    let buffer = host(32);
    let tensor = stored(f32(&[8]), &buffer, 0);
    let pieces = Pieces { offset: 0, bytes: 3, count: 3, stride: 8 };
    let wrong = |expected, given| DeviceError::WrongLength { tensor: "x".into(), expected, given };
    assert_eq!(tensor.set_2d(pieces, &[1; 10], 4), Err(wrong(11, 10)));
    assert_eq!(tensor.get_2d(pieces, &mut [], 4), Err(wrong(11, 0)));
    assert_eq!(tensor.set_2d(pieces, &[1; 10], u64::MAX), Err(wrong(u64::MAX, 10)));
    assert_eq!(contents(&buffer), [0; 32]);
    assert_eq!(wrong(11, 10).to_string(), "10 bytes of host memory for `x`, 11 are needed");
}

#[test]
fn a_claimed_buffer_is_busy() {
    let buffer = host(32);
    let tensor = stored(f32(&[8]), &buffer, 0);
    let pieces = Pieces { offset: 0, bytes: 1, count: 1, stride: 0 };
    let reader = Claim::take(&*buffer, AccessKind::Read).unwrap();
    tensor.get(0, &mut [0]).unwrap();
    tensor.get_2d(pieces, &mut [0], 0).unwrap();
    for refused in [tensor.set(0, &[1]), tensor.memset(0, 1, 1), tensor.set_2d(pieces, &[1], 0)] {
        assert_eq!(refused.unwrap_err().to_string(), "a buffer of host is busy: a reader");
    }
    drop(reader);
    let writer = Claim::take(&*buffer, AccessKind::Write).unwrap();
    for refused in [tensor.set(0, &[1]), tensor.get(0, &mut [0]), tensor.get_2d(pieces, &mut [0], 0)] {
        assert_eq!(refused.unwrap_err().to_string(), "a buffer of host is busy: a writer");
    }
    drop(writer);
    tensor.set(0, &[1]).unwrap();
}

#[test]
fn refused_access_leaves_the_generation_alone() {
    let buffer = host(32);
    let tensor = stored(strided(DType::F32, [2, 2, 1, 1], [4, 16, 32, 32]), &buffer, 0);
    assert_eq!(buffer.gate().generation(), 0);
    tensor.set(0, &[1]).unwrap();
    tensor.memset(0, 1, 1).unwrap();
    tensor.get(0, &mut [0]).unwrap();
    assert_eq!(buffer.gate().generation(), 2);
    assert!(tensor.set(24, &[1]).is_err());
    assert!(tensor.memset(0, 25, 1).is_err());
    assert_eq!(buffer.gate().generation(), 2);
}

#[test]
fn numbers_go_in_and_out_of_a_tensor_of_their_type() {
    let tensor = stored(TensorDesc::contiguous(DType::I32, &[3]).unwrap(), &host(64), 16);
    tensor.set_values(&[1i32, -2, i32::MAX]).unwrap();
    assert_eq!(tensor.get_values::<i32>().unwrap(), [1, -2, i32::MAX]);
    let wrong = tensor.set_f32(&[0.0; 3]).unwrap_err();
    assert!(
        matches!(wrong, DeviceError::WrongType { expected: DType::I32, given: DType::F32, .. }),
        "{wrong}"
    );
    assert!(matches!(
        tensor.set_values(&[1i32]),
        Err(DeviceError::WrongLength { expected: 12, given: 4, .. })
    ));
    assert!(tensor.get_f32().is_err());
}
