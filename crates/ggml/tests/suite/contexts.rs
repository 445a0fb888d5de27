//! Allocation of the tensors of a context, all at once and one by one.

use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use orlop_ggml::{
    Buffer, STATUS_ALLOC_FAILED, STATUS_SUCCESS, ggml_backend_alloc_ctx_tensors,
    ggml_backend_alloc_ctx_tensors_from_buft, ggml_backend_alloc_ctx_tensors_from_buft_size,
    ggml_tallocr_alloc, ggml_tallocr_new,
};

use crate::host::{self, Kind, at};
use crate::rig::{Rig, place};

pub(crate) fn allocate(rig: &Rig, kind: &Kind) -> *mut Buffer {
    // SAFETY: both live.
    unsafe { ggml_backend_alloc_ctx_tensors_from_buft(rig.context, kind.as_ptr()) }
}

fn measure(rig: &Rig, kind: &Kind) -> usize {
    // SAFETY: both live.
    unsafe { ggml_backend_alloc_ctx_tensors_from_buft_size(rig.context, kind.as_ptr()) }
}

#[test]
fn buffers_are_filled_in_order_up_to_the_largest_size() {
    let (rig, kind) = (Rig::new(), Kind::new(256, 32));
    let (p, q) = (rig.leaf(128), rig.leaf(64));
    let view = rig.view(p, 16, 16);
    let (r, s) = (rig.leaf(128), rig.leaf(32));
    assert_eq!(measure(&rig, &kind), 352);
    assert_eq!(kind.total(), 0);
    let buffer = allocate(&rig, &kind);
    assert_eq!(host::parts(buffer), [192, 160]);
    assert_eq!(place(q).1 - place(p).1, 128);
    assert_eq!(place(view).1 - place(p).1, 16);
    assert_eq!(place(s).1 - place(r).1, 128);
    assert_ne!(place(p).0, place(r).0);
    assert!(allocate(&rig, &kind).is_null(), "all of them have memory now");
    host::release(buffer);
    assert_eq!(kind.total(), 0);
}

#[test]
fn one_buffer_needs_no_wrapping_and_may_come_from_a_backend() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 8));
    rig.leaf(20);
    // SAFETY: both live; a backend of this host's is its kind of memory.
    let buffer = unsafe { ggml_backend_alloc_ctx_tensors(rig.context, kind.as_ptr().cast()) };
    assert_eq!((kind.live(), host::parts(buffer)), (vec![24], vec![]));
    host::release(buffer);
}

#[test]
fn a_refusal_half_way_leaves_tensors_and_memory_as_they_were() {
    let (rig, kind) = (Rig::new(), Kind::new(64, 8));
    let tensors = [64, 64, 64].map(|bytes| rig.leaf(bytes));
    kind.willing.store(2, Ordering::SeqCst);
    assert!(allocate(&rig, &kind).is_null());
    assert_eq!(kind.total(), 0);
    assert!(tensors.iter().all(|tensor| at(*tensor).data.is_null() && at(*tensor).buffer.is_null()));
    kind.willing.store(-1, Ordering::SeqCst);
    kind.binds.store(2, Ordering::SeqCst);
    assert!(allocate(&rig, &kind).is_null(), "the third tensor is not bound");
    assert!(kind.total() == 0 && tensors.iter().all(|tensor| at(*tensor).data.is_null()));
    kind.binds.store(-1, Ordering::SeqCst);
    let buffer = allocate(&rig, &kind);
    assert_eq!(host::parts(buffer), [64, 64, 64]);
    host::release(buffer);
}

#[test]
fn tensors_without_bytes_views_of_nothing_and_null_give_null() {
    let (rig, kind) = (Rig::new(), Kind::new(64, 8));
    let empty = rig.leaf(0);
    rig.view(empty, 0, 0);
    assert!(measure(&rig, &kind) == 0 && allocate(&rig, &kind).is_null());
    // SAFETY: null is allowed.
    assert!(unsafe { ggml_backend_alloc_ctx_tensors_from_buft(null_mut(), kind.as_ptr()) }.is_null());
    // SAFETY: null is allowed.
    assert!(unsafe { ggml_backend_alloc_ctx_tensors_from_buft(rig.context, null_mut()) }.is_null());
    // SAFETY: null is allowed.
    assert!(unsafe { ggml_backend_alloc_ctx_tensors(rig.context, null_mut()) }.is_null());
    // SAFETY: null is allowed.
    assert_eq!(unsafe { ggml_backend_alloc_ctx_tensors_from_buft_size(null_mut(), null_mut()) }, 0);
}

#[test]
fn a_full_buffer_gives_a_status_and_takes_smaller_tensors_still() {
    let (rig, kind) = (Rig::new(), Kind::new(usize::MAX, 16));
    rig.leaf(64);
    let buffer = allocate(&rig, &kind);
    let (first, large, small) = (rig.leaf(40), rig.leaf(20), rig.leaf(16));
    // SAFETY: the buffer lives.
    let mut allocator = unsafe { ggml_tallocr_new(buffer) };
    let mut give = |tensor| {
        // SAFETY: both live.
        unsafe { ggml_tallocr_alloc(&raw mut allocator, tensor) }
    };
    assert_eq!(
        [give(first), give(large), give(small)],
        [STATUS_SUCCESS, STATUS_ALLOC_FAILED, STATUS_SUCCESS]
    );
    assert!(at(large).data.is_null());
    assert_eq!(place(small).1 - place(first).1, 48);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { ggml_tallocr_alloc(null_mut(), small) }, STATUS_ALLOC_FAILED);
    // SAFETY: null is allowed.
    assert!(unsafe { ggml_tallocr_new(null_mut()) }.buffer.is_null());
    host::release(buffer);
}
