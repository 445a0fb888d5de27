use std::sync::Arc;

use orlop_backend::{
    Buffer, BufferType, Claim, DeviceError, MemoryLayout, Pieces, PrivateRows, Slot, StoredTensor, copy,
};
use orlop_graph::{AccessKind, DType, TensorDesc};

use crate::fixtures::{RemoteType, contents, f32, host, pattern, remote, stored, strided};

fn private(bytes: u64) -> Arc<dyn Buffer> {
    RemoteType::new(MemoryLayout::Private).allocate(bytes).expect("a small buffer")
}

fn refused(rule: &'static str) -> Result<(), DeviceError> {
    let (tensor, buffer_type) = ("x".to_owned(), "remote".to_owned());
    Err(DeviceError::PrivateLayout { tensor, buffer_type, rule })
}

#[test]
fn a_tensor_takes_what_its_layout_needs() {
    let desc = f32(&[4, 3]);
    let buffer = private(64);
    assert_eq!(buffer.buffer_type().alloc_bytes(&desc), 60);
    assert!(StoredTensor::new("x", desc, Slot { buffer, offset: 0 }).is_ok());
    let buffer = private(59);
    let outside = StoredTensor::new("x", desc, Slot { buffer, offset: 0 }).unwrap_err();
    assert_eq!(outside.to_string(), "60 bytes at offset 0 of `x`, which has 59");
}

#[test]
fn whole_rows_come_out_as_they_went_in() {
    let buffer = private(256);
    let tensor = stored(f32(&[4, 3, 2]), &buffer, 32);
    tensor.set(0, &pattern(96, 1)).unwrap();
    let mut all = vec![0; 96];
    tensor.get(0, &mut all).unwrap();
    assert_eq!(all, pattern(96, 1));
    tensor.set(32, &[7; 32]).unwrap();
    let mut rows = vec![0; 48];
    tensor.get(16, &mut rows).unwrap();
    assert_eq!(rows, [&pattern(96, 1)[16..32], &[7; 32]].concat());
    let mut first = pattern(96, 1)[..16].to_vec();
    first.reverse();
    assert_eq!(contents(&buffer)[32..48], first);
    tensor.set(96, &[]).unwrap();
    let outside = tensor.set(96, &[0; 16]).unwrap_err();
    assert_eq!(outside.to_string(), "16 bytes at offset 96 of `x`, which has 96");
}

#[test]
fn quantised_rows_are_rows_of_blocks() {
    let desc = TensorDesc::contiguous(DType::Q4_0, &[64, 3]).unwrap();
    let tensor = stored(desc, &private(256), 0);
    tensor.set(36, &pattern(36, 9)).unwrap();
    let mut row = vec![0; 36];
    tensor.get(36, &mut row).unwrap();
    assert_eq!(row, pattern(36, 9));
    assert_eq!(tensor.set(18, &[0; 18]), refused("only whole rows can be set and read"));
}

#[test]
fn parts_of_rows_are_refused() {
    let buffer = private(256);
    let tensor = stored(f32(&[4, 3]), &buffer, 0);
    for (offset, bytes) in [(0, 15), (4, 16), (8, 8), (16, 17)] {
        let mut data = vec![0; bytes];
        assert_eq!(tensor.set(offset, &data), refused("only whole rows can be set and read"));
        assert_eq!(tensor.get(offset, &mut data), refused("only whole rows can be set and read"));
    }
    assert_eq!(tensor.memset(0, 16, 0), refused("it can only be set by rows"));
    let pieces = Pieces { offset: 0, bytes: 16, count: 2, stride: 16 };
    assert_eq!(tensor.set_2d(pieces, &[0; 32], 16), refused("it cannot be reached in pieces"));
    assert_eq!(tensor.get_2d(pieces, &mut [0; 32], 16), refused("it cannot be reached in pieces"));
    assert_eq!(buffer.gate().generation(), 0);
}

#[test]
fn views_are_refused() {
    let view = strided(DType::F32, [4, 3, 1, 1], [4, 32, 96, 96]);
    let slot = |offset| Slot { buffer: private(256), offset };
    let error = StoredTensor::new("x", view, slot(0)).unwrap_err();
    assert_eq!(Err(error), refused("views are not possible"));
    let error = StoredTensor::new("x", f32(&[4]), slot(16)).unwrap_err();
    assert_eq!(error, DeviceError::MisalignedOffset { tensor: "x".into(), offset: 16, alignment: 32 });
    assert!(StoredTensor::new("x", f32(&[4]), Slot { buffer: remote(256), offset: 16 }).is_ok());
}

#[test]
fn copies_in_and_out_are_refused() {
    let inside = stored(f32(&[4, 3]), &private(256), 0);
    for buffer in [host(64), remote(64), private(64)] {
        let outside = stored(f32(&[4, 3]), &buffer, 0);
        assert_eq!(copy(&inside, &outside).map(|_| ()), refused("it can only be set and read"));
        assert_eq!(copy(&outside, &inside).map(|_| ()), refused("it can only be set and read"));
        assert_eq!(buffer.gate().generation(), 0);
    }
}

#[test]
fn plain_buffers_store_no_rows() {
    let buffer = host(64);
    let at = PrivateRows { tensor: "x", desc: &f32(&[4]), offset: 0, rows: 0..1 };
    let claim = Claim::take(&*buffer, AccessKind::Write).unwrap();
    let rule = "`x` has the private layout of host: this buffer type does not store rows";
    assert_eq!(buffer.write_rows(&claim, &at, &[0; 16]).unwrap_err().to_string(), rule);
    assert_eq!(buffer.read_rows(&claim, &at, &mut [0; 16]).unwrap_err().to_string(), rule);
}
