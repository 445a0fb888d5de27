use std::sync::Arc;

use orlop_backend::{BufferType, Claim, DeviceError, Slot, StoredTensor};
use orlop_graph::{AccessKind, DType, TensorDesc};
use orlop_testkit::Random;

use super::{PackedBufferType, PackedLayout};
use crate::isa::Isa;
use crate::pool::ThreadPool;

pub(crate) fn repacked() -> impl Iterator<Item = DType> {
    DType::all().filter(|dtype| {
        TensorDesc::contiguous(*dtype, &[256, 1]).is_ok_and(|desc| PackedLayout::of(&desc).is_some())
    })
}

fn any_bytes(count: u64) -> Vec<u8> {
    let mut random = Random::new(count);
    (0..count).map(|_| random.byte()).collect()
}

/// Any blocks that encoding can give.
fn any_blocks(desc: &TensorDesc) -> Vec<u8> {
    let mut bytes = any_bytes(desc.bytes());
    // Some bytes stand for the same ternary digits as others.
    if desc.dtype == DType::TQ1_0 {
        for block in bytes.as_chunks_mut().0 {
            orlop_quant::tq1_0::put_codes(&orlop_quant::tq1_0::codes(block), block);
        }
    }
    bytes
}

/// What codes that are expanded take more than in the file: indices into codebooks and ternary digits.
fn expansion(dtype: DType) -> f64 {
    match dtype {
        DType::IQ1_S => 2.13,
        DType::IQ1_M => 2.04,
        DType::IQ2_XXS | DType::IQ2_XS => 1.61,
        DType::IQ2_S | DType::IQ3_XXS => 1.41,
        DType::IQ3_S => 1.26,
        DType::TQ1_0 => 1.23,
        _ => 1.04,
    }
}

fn buffer_type(threads: usize) -> Arc<PackedBufferType> {
    PackedBufferType::new("repacked", Isa::detect(), ThreadPool::new(threads).unwrap())
}

fn stored(desc: TensorDesc) -> StoredTensor {
    let buffer_type = buffer_type(1);
    let bytes = buffer_type.alloc_bytes(&desc);
    let buffer = (Arc::clone(&buffer_type) as Arc<dyn BufferType>).allocate(bytes + 64).unwrap();
    StoredTensor::new("w", desc, Slot { buffer, offset: 64 }).unwrap()
}

#[test]
fn what_is_stored_comes_back_bit_for_bit() {
    assert!(repacked().eq(DType::all().filter(|dtype| orlop_quant::weight_types().any(|own| own == *dtype))));
    for dtype in repacked() {
        for extents in
            [[512, 1, 1], [256, 16, 1], [256, 35, 1], [512, 5, 3], [256, 32, 2], [0, 3, 1], [256, 0, 1]]
        {
            let desc = TensorDesc::contiguous(dtype, &extents).unwrap();
            let (tensor, bytes) = (stored(desc), any_blocks(&desc));
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
        let (tensor, bytes) = (stored(desc), any_blocks(&desc));
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
        let packed = buffer_type(1).alloc_bytes(&desc);
        assert!(
            packed as f64 <= desc.bytes() as f64 * expansion(dtype),
            "{dtype}: {packed} for {}",
            desc.bytes()
        );
        let odd = TensorDesc::contiguous(dtype, &[2048, 63]).unwrap();
        assert_eq!(buffer_type(1).alloc_bytes(&odd), packed);
    }
}

#[test]
fn types_that_are_not_repacked_are_refused() {
    let desc = TensorDesc::contiguous(DType::F16, &[64, 4]).unwrap();
    let refused = stored(desc).set(0, &[0; 512]).unwrap_err();
    assert!(matches!(refused, DeviceError::PrivateLayout { .. }), "{refused:?}");
}

#[test]
fn rows_are_packed_alike_by_all_instructions() {
    for dtype in repacked() {
        let desc = TensorDesc::contiguous(dtype, &[1024, 16]).unwrap();
        let (layout, bytes) = (PackedLayout::of(&desc).unwrap(), any_bytes(desc.bytes()));
        let packed = |isa| {
            let mut group = vec![0; layout.group_bytes()];
            layout.pack_rows(isa, &bytes, 0, &mut group);
            group
        };
        let expected = packed(Isa::Scalar);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            assert!(packed(isa) == expected, "{dtype} {isa}");
        }
    }
}

/// Also from a thread of the pool, which is at work then.
#[test]
fn many_threads_pack_what_one_packs() {
    for dtype in [DType::Q4_0, DType::Q6_K] {
        let desc = TensorDesc::contiguous(dtype, &[2048, 1027, 2]).unwrap();
        let bytes = any_bytes(desc.bytes());
        let packed = |threads, inside: bool| {
            let pool = ThreadPool::new(threads).unwrap();
            let memory = PackedBufferType::new("repacked", Isa::detect(), Arc::clone(&pool));
            let buffer =
                (Arc::clone(&memory) as Arc<dyn BufferType>).allocate(memory.alloc_bytes(&desc)).unwrap();
            let tensor = StoredTensor::new("w", desc, Slot { buffer, offset: 0 }).unwrap();
            if inside {
                pool.run(threads, &|thread| {
                    if thread == threads - 1 {
                        tensor.set(0, &bytes).unwrap();
                    }
                });
            } else {
                tensor.set(0, &bytes).unwrap();
            }
            let buffer = &tensor.slot().buffer;
            let claim = Claim::take(&**buffer, AccessKind::Read).unwrap();
            let mut tiles = vec![0; buffer.bytes() as usize];
            buffer.read(&claim, 0, &mut tiles).unwrap();
            tiles
        };
        let one = packed(1, false);
        assert!(one.iter().any(|byte| *byte != 0));
        assert!(packed(4, false) == one && packed(3, true) == one, "{dtype}");
    }
}
