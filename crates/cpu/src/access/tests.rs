use std::sync::Arc;

use orlop_backend::{BufferType, HostBufferType};

use super::*;

/// A buffer with these contents, read from byte 1 on, where no number is aligned.
fn crooked(bytes: &[u8]) -> Slot {
    let host: Arc<dyn BufferType> = HostBufferType::new("cpu");
    let buffer = Arc::clone(&host).allocate(bytes.len() as u64 + 1).unwrap();
    let claim = orlop_backend::Claim::take(&*buffer, Write).unwrap();
    buffer.write(&claim, 1, bytes).unwrap();
    Slot { buffer, offset: 1 }
}

#[test]
fn every_half_is_read_as_the_number_it_is_from_any_address_and_stride() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let slot = crooked(&bytes);
    let expected = |bits: usize| f16::from_bits(bits as u16).to_f32().to_bits();
    for (columns, stride) in [(65_536, 2), (21_846, 6)] {
        let desc = TensorDesc::strided(DType::F16, [columns, 1, 1, 1], [stride, 1 << 17, 1 << 17, 1 << 17]);
        // SAFETY: `Src::new` asks for a live buffer without writers: `slot` keeps it, and only this test has it.
        let src = unsafe { Src::new(&slot, desc.unwrap(), "halves", 0) }.unwrap();
        for (column, length) in [(0, columns), (5, 1), (7, 63), (100, 64), (101, 65), (columns - 3, 3)] {
            let mut out = vec![0.0; length as usize];
            src.read_elements(column, [0; 3], &mut out);
            for (number, out) in (column..).zip(out) {
                assert_eq!(out.to_bits(), expected((number * stride / 2) as usize), "number {number}");
            }
        }
    }
}

#[test]
fn places_without_bytes_are_no_accesses() {
    let slot = crooked(&[]);
    let desc = TensorDesc::contiguous(DType::F32, &[0, 3]).unwrap();
    // SAFETY: `Src::new` asks for a live buffer without writers: only this test has it.
    unsafe { Src::new(&slot, desc, "nothing", 0) }.unwrap().read_row([2, 0, 0], &mut []);
    // SAFETY: `Dst::new` asks for a live buffer that no other thread touches: only this test has it.
    unsafe { Dst::new(&slot, desc, "nothing", 0) }.unwrap().write_row([2, 0, 0], &[]);
    let none = Scratch::none();
    // SAFETY: `of_thread` asks for a thread's number once at a time: there is one thread, and no memory at all.
    assert!(unsafe { none.of_thread(0) }.is_empty());
    let empty = crooked(&[0; 3]);
    let empty = Slot { offset: 4, ..empty };
    // SAFETY: `SharedRows::new` asks for a live buffer that no other thread touches: only this test has it.
    let shared = |rows, length| unsafe { SharedRows::new(&empty, rows, length) };
    shared(2, 0).unwrap().fill(1, |row| assert!(row.is_empty()));
    assert!(shared(2, 0).unwrap().row(1).is_empty());
    assert!(matches!(shared(u64::MAX, 2), Err(DeviceError::OutOfBounds { .. })));
    assert!(matches!(Scratch::new(&empty, u64::MAX - 63, 2), Err(DeviceError::OutOfBounds { .. })));
}
