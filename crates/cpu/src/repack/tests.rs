use std::sync::Arc;

use orlop_backend::{BufferType, DeviceError, Slot, StoredTensor};
use orlop_graph::{DType, TensorDesc};

use super::{PackedBufferType, PackedLayout};

pub(crate) fn repacked() -> impl Iterator<Item = DType> {
    DType::all().filter(|dtype| {
        TensorDesc::contiguous(*dtype, &[256, 1]).is_ok_and(|desc| PackedLayout::of(&desc).is_some())
    })
}

fn any_bytes(count: u64) -> Vec<u8> {
    let mut seed = count;
    let mut byte = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..count).map(|_| byte()).collect()
}

fn stored(desc: TensorDesc) -> StoredTensor {
    let buffer_type = PackedBufferType::new("repacked");
    let bytes = buffer_type.alloc_bytes(&desc);
    let buffer = (Arc::clone(&buffer_type) as Arc<dyn BufferType>).allocate(bytes + 64).unwrap();
    StoredTensor::new("w", desc, Slot { buffer, offset: 64 }).unwrap()
}

#[test]
fn what_is_stored_comes_back_bit_for_bit() {
    assert_eq!(repacked().count(), 13);
    for dtype in repacked() {
        for extents in
            [[512, 1, 1], [256, 16, 1], [256, 35, 1], [512, 5, 3], [256, 32, 2], [0, 3, 1], [256, 0, 1]]
        {
            let desc = TensorDesc::contiguous(dtype, &extents).unwrap();
            let (tensor, bytes) = (stored(desc), any_bytes(desc.bytes()));
            tensor.set(0, &bytes).unwrap();
            let mut back = vec![0; bytes.len()];
            tensor.get(0, &mut back).unwrap();
            assert!(back == bytes, "{desc}");
        }
    }
}

#[test]
fn rows_can_be_set_and_read_in_any_order_and_leave_others_alone() {
    for dtype in repacked() {
        let desc = TensorDesc::contiguous(dtype, &[256, 21, 3]).unwrap();
        let (tensor, bytes) = (stored(desc), any_bytes(desc.bytes()));
        let row = desc.row_bytes() as usize;
        for rows in [40..63, 7..22, 0..7, 22..23, 23..40] {
            tensor.set((rows.start * row) as u64, &bytes[rows.start * row..rows.end * row]).unwrap();
        }
        for rows in [0..63, 20..43, 62..63, 5..6] {
            let mut back = vec![0; rows.len() * row];
            tensor.get((rows.start * row) as u64, &mut back).unwrap();
            assert!(back == bytes[rows.start * row..rows.end * row], "{dtype} {rows:?}");
        }
    }
}

#[test]
fn bits_stay_close_to_those_of_the_file() {
    for dtype in repacked() {
        let desc = TensorDesc::contiguous(dtype, &[2048, 64]).unwrap();
        let packed = PackedBufferType::new("repacked").alloc_bytes(&desc);
        assert!(packed as f64 <= desc.bytes() as f64 * 1.04, "{dtype}: {packed} for {}", desc.bytes());
        let odd = TensorDesc::contiguous(dtype, &[2048, 63]).unwrap();
        assert_eq!(PackedBufferType::new("repacked").alloc_bytes(&odd), packed);
    }
}

#[test]
fn types_that_are_not_repacked_are_refused() {
    let desc = TensorDesc::contiguous(DType::F16, &[64, 4]).unwrap();
    let refused = stored(desc).set(0, &[0; 512]).unwrap_err();
    assert!(matches!(refused, DeviceError::PrivateLayout { .. }), "{refused:?}");
}
