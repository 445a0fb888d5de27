use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_backend::{BufferType, DeviceError, ForeignBufferType};

use crate::fixtures::{contents, f32, stored};

#[derive(Default)]
struct Drops(Arc<AtomicUsize>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[repr(align(64))]
struct Aligned([u8; 128]);

#[test]
fn boxed_memory_keeps_its_contents_and_can_be_written() {
    let kind = ForeignBufferType::writable("mine", 1).unwrap();
    let buffer = kind.over_memory((0..64).collect()).unwrap();
    assert_eq!(contents(&buffer), (0..64).collect::<Vec<u8>>());
    let tensor = stored(f32(&[4]), &buffer, 3);
    tensor.set(4, &[9; 4]).unwrap();
    assert_eq!(contents(&buffer)[5..13], [5, 6, 9, 9, 9, 9, 11, 12]);
    assert!(kind.over_memory(Box::new([])).unwrap().bytes() == 0);
}

#[test]
fn a_keeper_is_dropped_once_with_the_last_handle() {
    let drops = Arc::new(AtomicUsize::new(0));
    let keeper = (Drops(Arc::clone(&drops)), vec![7_u8; 32]);
    let mut keeper = Box::new(keeper);
    let base = NonNull::new(keeper.1.as_mut_ptr()).unwrap();
    let kind = ForeignBufferType::writable("raw", 1).unwrap();
    // SAFETY: `over_raw` asks for initialised bytes that live as long as the keeper and that nothing else
    // touches: the keeper owns the vector they are in, and is not used here again.
    let buffer = unsafe { kind.over_raw(base, 32, keeper) }.unwrap();
    let tensor = stored(f32(&[8]), &buffer, 0);
    drop(buffer);
    let mut last = [0; 4];
    tensor.get(28, &mut last).unwrap();
    assert_eq!((last, drops.load(Ordering::Relaxed)), ([7; 4], 0));
    drop(tensor);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn memory_off_the_alignment_is_refused_and_its_keeper_dropped() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut memory = Box::new((Aligned([0; 128]), Drops(Arc::clone(&drops))));
    let base = NonNull::new(&raw mut memory.0.0).unwrap().cast::<u8>();
    // SAFETY: `add` asks to stay within the allocation of 128 bytes.
    let off = unsafe { base.add(32) };
    let kind = ForeignBufferType::writable("raw", 64).unwrap();
    // SAFETY: as in `a_keeper_is_dropped_once_with_the_last_handle`.
    let refused = unsafe { kind.over_raw(off, 64, memory) }.unwrap_err();
    let address = off.addr().get() as u64;
    assert_eq!(refused, DeviceError::MisalignedBase { address, alignment: 64 });
    assert_eq!(drops.load(Ordering::Relaxed), 1);

    let page = ForeignBufferType::writable("pages", 1 << 40).unwrap();
    assert!(matches!(page.over_memory(Box::new([1; 9])), Err(DeviceError::MisalignedBase { .. })));
    assert!(matches!(page.over_bytes(Arc::new([1; 9])), Err(DeviceError::MisalignedBase { .. })));
}

#[test]
fn mapped_memory_is_read_at_any_address_and_never_written() {
    let kind = ForeignBufferType::mapped("file");
    assert_eq!((kind.alignment(), kind.is_host(), kind.max_bytes()), (1, true, 0));
    for shift in 0..9 {
        let file: Arc<Vec<u8>> = Arc::new((0..64).collect());
        let buffer = kind.over_bytes(Arc::new(Part(Arc::clone(&file), shift))).unwrap();
        assert!(!buffer.host().unwrap().writable);
        let tensor = stored(f32(&[4]), &buffer, 1);
        let mut bytes = [0; 4];
        tensor.get(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 1, 2, 3].map(|i| shift as u8 + 1 + i));
        let read_only = Err(DeviceError::ReadOnly { buffer_type: "file".into() });
        assert_eq!(tensor.set(0, &[0; 4]), read_only);
        assert_eq!(tensor.memset(0, 4, 0), read_only);
        assert_eq!(*file, (0..64).collect::<Vec<u8>>());
    }
}

struct Part(Arc<Vec<u8>>, usize);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.0[self.1..]
    }
}

#[test]
fn mapped_bytes_are_kept_until_the_buffer_goes() {
    let file = Arc::new(vec![1_u8; 8]);
    let buffer = ForeignBufferType::mapped("file").over_bytes(Arc::clone(&file) as _).unwrap();
    assert_eq!(Arc::strong_count(&file), 2);
    drop(buffer);
    assert_eq!(Arc::strong_count(&file), 1);
}

#[test]
fn read_only_types_do_not_write_boxed_memory_either() {
    let buffer = ForeignBufferType::mapped("file").over_memory(Box::new([3; 16])).unwrap();
    let tensor = stored(f32(&[4]), &buffer, 0);
    assert_eq!(tensor.set(0, &[0; 4]), Err(DeviceError::ReadOnly { buffer_type: "file".into() }));
    assert_eq!(contents(&buffer), [3; 16]);
}

#[test]
fn a_type_over_foreign_memory_makes_only_empty_buffers() {
    let kind = ForeignBufferType::writable("mine", 4096).unwrap();
    let refused = Arc::clone(&kind).allocate(1).unwrap_err();
    assert_eq!(refused, DeviceError::TooLarge { buffer_type: "mine".into(), bytes: 1, max: 0 });
    let empty = kind.allocate(0).unwrap();
    assert_eq!((empty.bytes(), empty.host().unwrap().base.addr().get() % 4096), (0, 0));
    for alignment in [0, 24] {
        let refused = ForeignBufferType::writable("mine", alignment).unwrap_err();
        assert_eq!(refused, DeviceError::BadAlignment(alignment));
    }
}
