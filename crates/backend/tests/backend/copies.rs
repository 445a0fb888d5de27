use std::sync::Arc;

use orlop_backend::{
    Buffer, Claim, Claims, CopyRoute, DeviceError, ForeignBufferType, MemoryLayout, Slot, StoredTensor, copy,
    copy_claimed, copy_route,
};
use orlop_graph::AccessKind::{Read, Write};
use orlop_graph::{DType, TensorDesc};

use crate::fixtures::{RemoteType, contents, f32, fill_with, host, pattern, remote, stored, strided};

fn named(name: &str, desc: TensorDesc, buffer: &Arc<dyn Buffer>, offset: u64) -> StoredTensor {
    StoredTensor::new(name, desc, Slot { buffer: Arc::clone(buffer), offset }).expect("it fits")
}

#[test]
fn tensors_of_other_types_or_extents_are_refused_by_name() {
    let buffer = host(256);
    let from = named("from", f32(&[4, 2]), &buffer, 0);
    let extents = named("to", f32(&[2, 4]), &buffer, 64);
    let refused = copy(&from, &extents).unwrap_err();
    assert_eq!(refused.to_string(), "cannot copy `from` (f32[4 2 1 1]) to `to` (f32[2 4 1 1])");
    let dtype = TensorDesc::contiguous(DType::I32, &[4, 2]).unwrap();
    for offset in [0, 64] {
        let refused = copy(&from, &named("to", dtype, &buffer, offset)).unwrap_err();
        assert!(matches!(refused, DeviceError::LayoutMismatch { .. }), "{refused}");
    }
}

#[test]
fn one_place_is_nothing_to_do_whatever_else_would_fail() {
    let mapped = ForeignBufferType::mapped("file").over_bytes(Arc::new([1; 64])).unwrap();
    let private = RemoteType::new(MemoryLayout::Private);
    let private = orlop_backend::BufferType::allocate(private, 64).unwrap();
    for buffer in [host(64), mapped, private] {
        let [from, to] = [stored(f32(&[4]), &buffer, 32), stored(f32(&[4]), &buffer, 32)];
        let generation = buffer.gate().generation();
        let writer = Claim::take(&*buffer, Write).unwrap();
        assert_eq!(copy(&from, &from), Ok(CopyRoute::Identical));
        assert_eq!(copy(&from, &to), Ok(CopyRoute::Identical));
        let elsewhere = host(1);
        let claim = Claim::take(&*elsewhere, Read).unwrap();
        assert_eq!(copy_claimed(&from, &to, [&claim, &claim]), Ok(CopyRoute::Identical));
        assert_eq!(buffer.gate().generation(), generation);
        drop(writer);
    }
}

#[test]
fn tensors_without_elements_are_nothing_to_do() {
    let [one, two] = [host(64), remote(64)];
    for extents in [[0, 1, 1, 1], [4, 0, 1, 1], [4, 3, 0, 2]] {
        let from = strided(DType::F32, extents, [4, 16, 48, 48]);
        let to = strided(DType::F32, extents, [8, 100, 7, 3]);
        assert_eq!(copy(&stored(from, &one, 0), &stored(to, &two, 64)), Ok(CopyRoute::Identical));
        assert_eq!(copy(&stored(from, &one, 0), &stored(to, &one, 0)), Ok(CopyRoute::Identical));
    }
    assert_eq!(contents(&two), [0; 64]);
}

#[test]
fn the_host_fetches_and_brings_and_others_go_through_it() {
    for (from, to, route) in [
        (host(64), host(64), CopyRoute::Pulled),
        (remote(64), host(64), CopyRoute::Pulled),
        (host(64), remote(64), CopyRoute::Pushed),
        (remote(64), remote(64), CopyRoute::Bounced),
    ] {
        fill_with(&from, &pattern(64, 3));
        let (source, target) = (stored(f32(&[8]), &from, 32), stored(f32(&[8]), &to, 0));
        let claims = Claims::take([(&from, Read), (&to, Write)]).unwrap();
        // SAFETY: the two are used here alone.
        let read = unsafe { claims.lend(&*from, Read) }.unwrap();
        // SAFETY: as above.
        let write = unsafe { claims.lend(&*to, Write) }.unwrap();
        assert_eq!(copy_route(&source, &target, [&read, &write]), Ok(route), "it is known before");
        drop((claims, read, write));
        assert_eq!(contents(&to), [0; 64], "nothing was copied");
        assert_eq!(copy(&source, &target), Ok(route));
        assert_eq!(contents(&to)[..32], pattern(64, 3)[32..]);
        assert_eq!(contents(&to)[32..], [0; 32]);
        assert_eq!((from.gate().generation(), to.gate().generation()), (1, 2));
    }
}

#[test]
fn copies_larger_than_the_bounce_arrive_whole() {
    let elements = (5 << 18) / 2 + 3;
    let bytes = elements * 4;
    let [from, to] = [remote(bytes + 8), remote(bytes + 8)];
    fill_with(&from, &pattern(bytes + 8, 0));
    let desc = f32(&[elements]);
    assert_eq!(copy(&stored(desc, &from, 4), &stored(desc, &to, 8)), Ok(CopyRoute::Bounced));
    let (source, target) = (contents(&from), contents(&to));
    assert_eq!(target[..8], [0; 8]);
    assert!(target[8..] == source[4..bytes as usize + 4]);
}

#[test]
fn gaps_of_a_strided_destination_keep_what_they_held() {
    let [from, to] = [host(24), host(64)];
    fill_with(&from, &pattern(24, 1));
    fill_with(&to, &[9; 64]);
    let gaps = strided(DType::F32, [2, 3, 1, 1], [4, 20, 60, 60]);
    copy(&stored(f32(&[2, 3]), &from, 0), &stored(gaps, &to, 4)).unwrap();
    let (source, mut expected) = (pattern(24, 1), vec![9; 64]);
    for row in 0..3 {
        expected[4 + row * 20..][..8].copy_from_slice(&source[row * 8..][..8]);
    }
    assert_eq!(contents(&to), expected);
}

#[test]
fn different_strides_and_permuted_views_meet_element_by_element() {
    let [from, to] = [host(256), host(256)];
    fill_with(&from, &pattern(256, 5));
    let transposed = strided(DType::F32, [3, 2, 1, 1], [8, 4, 24, 24]);
    let wide = strided(DType::F32, [3, 2, 1, 1], [12, 40, 80, 80]);
    copy(&stored(transposed, &from, 0), &stored(wide, &to, 0)).unwrap();
    let (source, target) = (contents(&from), contents(&to));
    for (i, j) in (0..3).flat_map(|i| [(i, 0), (i, 1)]) {
        assert_eq!(target[i * 12 + j * 40..][..4], source[i * 8 + j * 4..][..4]);
    }
    assert_eq!(target[4..12], [0; 8]);
}

#[test]
fn quantised_rows_are_copied_block_by_block() {
    let [from, to] = [host(4 * 68), host(400)];
    fill_with(&from, &pattern(4 * 68, 2));
    let rows = TensorDesc::contiguous(DType::Q8_0, &[64, 4]).unwrap();
    for strides in [[34, 100, 400, 400], [40, 80, 400, 400]] {
        fill_with(&to, &[0; 400]);
        let gaps = strided(DType::Q8_0, [64, 4, 1, 1], strides);
        copy(&stored(rows, &from, 0), &stored(gaps, &to, 0)).unwrap();
        let (source, mut expected) = (pattern(4 * 68, 2), vec![0; 400]);
        for (row, block) in (0..4).flat_map(|row| [(row, 0), (row, 1)]) {
            let at = row * strides[1] as usize + block * strides[0] as usize;
            expected[at..at + 34].copy_from_slice(&source[row * 68 + block * 34..][..34]);
        }
        assert_eq!(contents(&to), expected);
    }
}

#[test]
fn shifts_within_one_buffer_are_right_in_both_directions() {
    let rows = strided(DType::F32, [3, 4, 1, 1], [4, 16, 64, 64]);
    for make in [host, remote] {
        for (desc, [from, to]) in [f32(&[12]), rows].into_iter().flat_map(|desc| {
            [[0, 4], [4, 0], [0, 16], [16, 0], [20, 3], [3, 20]].map(|places| (desc, places))
        }) {
            let buffer = make(96);
            fill_with(&buffer, &pattern(96, 7));
            let mut expected = pattern(96, 7);
            for at in desc.runs() {
                let (source, run) = (pattern(96, 7), desc.runs().run_bytes() as usize);
                let element = &source[(from + at) as usize..][..run];
                expected[(to + at) as usize..][..run].copy_from_slice(element);
            }
            let route = copy(&stored(desc, &buffer, from), &stored(desc, &buffer, to));
            assert_eq!((route, contents(&buffer)), (Ok(CopyRoute::Bounced), expected), "{from} to {to}");
        }
    }
}

#[test]
fn places_apart_in_one_host_buffer_need_no_detour() {
    let buffer = host(64);
    fill_with(&buffer, &pattern(64, 1));
    let [from, to] = [stored(f32(&[8]), &buffer, 0), stored(f32(&[8]), &buffer, 32)];
    assert_eq!(copy(&from, &to), Ok(CopyRoute::Pulled));
    assert_eq!(contents(&buffer)[32..], pattern(64, 1)[..32]);
    assert_eq!(buffer.gate().generation(), 2);
}

#[test]
fn a_copy_claims_both_sides_for_as_long_as_it_takes() {
    let [one, two] = [host(32), host(32)];
    let [from, to] = [stored(f32(&[8]), &one, 0), stored(f32(&[8]), &two, 0)];
    for (held, kind, free) in [(&one, Read, true), (&one, Write, false), (&two, Read, false)] {
        let claim = Claim::take(&**held, kind).unwrap();
        assert_eq!(copy(&from, &to).is_ok(), free);
        drop(claim);
    }
    assert_eq!(two.gate().generation(), 1);
    for buffer in [&one, &two] {
        assert!(Claim::take(&**buffer, Write).is_ok());
    }
}

#[test]
fn a_copy_under_the_callers_claims_needs_the_right_ones() {
    let [one, two] = [host(32), host(32)];
    let [from, to] = [stored(f32(&[8]), &one, 0), stored(f32(&[8]), &two, 0)];
    let claims = Claims::take([(&one, Read), (&two, Write)]).unwrap();
    // SAFETY: `lend` asks that lent claims do not meet: they are for different buffers.
    let read = unsafe { claims.lend(&*one, Read) }.unwrap();
    // SAFETY: as above.
    let write = unsafe { claims.lend(&*two, Write) }.unwrap();
    assert_eq!(copy_claimed(&from, &to, [&read, &write]), Ok(CopyRoute::Pulled));
    let refused = Err(DeviceError::NotClaimed { buffer_type: "host".to_owned() });
    assert_eq!(copy_claimed(&from, &to, [&write, &read]), refused);
    assert_eq!(copy_claimed(&to, &from, [&write, &read]), refused);
}

#[test]
fn read_only_memory_is_a_source_and_no_destination() {
    let mapped = ForeignBufferType::mapped("file").over_bytes(Arc::new(pattern(40, 4))).unwrap();
    let buffer = host(32);
    let [from, to] = [stored(f32(&[8]), &mapped, 5), stored(f32(&[8]), &buffer, 0)];
    assert_eq!(copy(&from, &to), Ok(CopyRoute::Pulled));
    assert_eq!(contents(&buffer), pattern(40, 4)[5..37]);
    assert_eq!(copy(&to, &from), Err(DeviceError::ReadOnly { buffer_type: "file".to_owned() }));
}

#[test]
fn a_repeated_source_is_spread_over_the_destination() {
    let [from, to] = [host(12), host(48)];
    fill_with(&from, &pattern(12, 8));
    let repeated = strided(DType::F32, [3, 4, 1, 1], [4, 0, 0, 0]);
    copy(&stored(repeated, &from, 0), &stored(f32(&[3, 4]), &to, 0)).unwrap();
    assert_eq!(contents(&to), pattern(12, 8).repeat(4));
}
