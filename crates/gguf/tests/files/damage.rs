use orlop_gguf::{Error, MAX_NESTING};

use crate::support::{Raw, read, small_file};

#[test]
fn other_files_are_refused_by_their_first_bytes() {
    let error = Raw(b"PK\x03\x04 and more".to_vec()).refusal();
    assert!(matches!(error, Error::NotGguf([b'P', b'K', 3, 4])), "{error}");
    assert!(matches!(Raw(vec![]).refusal(), Error::Ends { at: 0, needed: 4, left: 0, .. }));
}

#[test]
fn other_versions_are_refused_by_name() {
    for version in [0, 1, 4, u32::MAX] {
        let error = Raw::header(version, 0, 0).refusal();
        assert!(matches!(error, Error::Version(found) if found == version), "{error}");
        assert!(error.to_string().contains(&format!("version {version};")), "{error}");
    }
    for version in [1u32, 2, 3] {
        let error = Raw::header(version.swap_bytes(), 0, 0).refusal();
        assert!(matches!(error, Error::BigEndian { version: found } if found == version), "{error}");
    }
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = small_file();
    // The last tensor with data ends 28 bytes before the end, which is padding.
    for length in 0..whole.len() - 28 {
        let error = read(whole[..length].to_vec()).unwrap_err();
        let cut = matches!(error, Error::Ends { .. } | Error::Count { .. } | Error::MissingData { .. });
        assert!(cut, "{length}: {error}");
    }
}

#[test]
fn cut_data_names_the_tensor_and_what_is_missing() {
    let raw = Raw::header(3, 1, 0).tensor("w", 8, 0).pad(32).bytes(&[0; 20]);
    let error = raw.refusal();
    assert!(matches!(&error, Error::MissingData { bytes: 32, missing: 12, .. }), "{error}");
    assert!(error.to_string().contains("`w`"), "{error}");
}

#[test]
fn absurd_counts_are_refused_before_anything_is_allocated() {
    for count in [u64::MAX, u64::MAX / 12, 1 << 40] {
        let of_tensors = Raw::header(3, count, 0).refusal();
        let of_keys = Raw::header(3, 0, count).refusal();
        let of_characters = Raw::header(3, 0, 1).u64(count).bytes(&[b'k'; 40]).refusal();
        let of_text = Raw::header(3, 0, 1).string("k").u32(8).u64(count).refusal();
        let of_name = Raw::header(3, 1, 0).u64(count).bytes(&[b'k'; 40]).refusal();
        assert!(matches!(of_tensors, Error::Count { .. }), "{of_tensors}");
        assert!(matches!(of_keys, Error::Count { .. }), "{of_keys}");
        for error in [of_characters, of_text, of_name] {
            assert!(matches!(error, Error::Ends { needed, .. } if needed == count), "{error}");
        }
        for element in 0..13 {
            let error = Raw::header(3, 0, 1).string("k").u32(9).u32(element).u64(count).refusal();
            assert!(matches!(error, Error::Count { count: claimed, .. } if claimed == count), "{error}");
        }
        let extent = Raw::header(3, 1, 0).tensor("w", count, 0).pad(32).refusal();
        assert!(matches!(extent, Error::Tensor { .. } | Error::MissingData { .. }), "{extent}");
    }
}

#[test]
fn types_that_do_not_exist_are_refused_by_number() {
    let scalar = Raw::header(3, 0, 1).string("k").u32(13).u64(0).refusal();
    let array = Raw::header(3, 0, 1).string("k").u32(9).u32(77).u64(0).refusal();
    assert_eq!(scalar.to_string(), "the value of `k` has the unknown type 13");
    assert_eq!(array.to_string(), "the value of `k` has the unknown type 77");
    for id in [4, 5, 31, 36, 43, u32::MAX] {
        let error = Raw::header(3, 1, 0).string("w").u32(1).u64(32).u32(id).u64(0).pad(32).refusal();
        assert_eq!(error.to_string(), format!("tensor `w` has the unknown element type {id}"));
    }
}

#[test]
fn arrays_in_arrays_have_a_depth_and_no_more() {
    let nested = |depth| {
        let mut raw = Raw::header(3, 0, 1).string("k").u32(9);
        for _ in 1..depth {
            raw = raw.u32(9).u64(1);
        }
        raw.u32(0).u64(0)
    };
    assert!(nested(MAX_NESTING).read().is_ok());
    assert!(matches!(nested(MAX_NESTING + 1).refusal(), Error::Nesting { .. }));
    assert!(matches!(nested(100_000).refusal(), Error::Nesting { .. }));
}

#[test]
fn keys_and_names_are_there_once_and_in_utf8() {
    let key = |raw: Raw, key: &str| raw.string(key).u32(0).bytes(&[1]);
    let twice = key(key(Raw::header(3, 0, 2), "k"), "k").refusal();
    assert!(matches!(twice, Error::DuplicateKey(key) if key == "k"));
    assert!(matches!(key(Raw::header(3, 0, 1), "").refusal(), Error::EmptyKey { index: 0 }));
    let broken = Raw::header(3, 0, 1).u64(1).bytes(&[255]).u32(0).bytes(&[1]).refusal();
    assert!(matches!(broken, Error::KeyText { index: 0, .. }));
    let twins = Raw::header(3, 3, 0).tensor("a", 0, 0).tensor("b", 0, 0).tensor("a", 0, 0).pad(32).refusal();
    assert!(matches!(twins, Error::DuplicateTensor(name) if name == "a"));
    let broken = Raw::header(3, 1, 0).u64(1).bytes(&[255]).u32(0).u32(0).u64(0).pad(32).refusal();
    assert!(matches!(broken, Error::TensorName { index: 0, .. }));
}

#[test]
fn alignments_are_powers_of_two_in_32_bits() {
    let aligned = |value: u32| Raw::header(3, 0, 1).string("general.alignment").u32(4).u32(value);
    for alignment in [0, 3, 48, u32::MAX] {
        assert!(matches!(aligned(alignment).refusal(), Error::Alignment(found) if found == alignment));
    }
    assert_eq!(aligned(1 << 31).read().unwrap().alignment(), 1 << 31);
    let wide = Raw::header(3, 0, 1).string("general.alignment").u32(10).u64(32).refusal();
    assert_eq!(wide.to_string(), "the value of `general.alignment` has type u64, expected u32");
}

#[test]
fn impossible_tensors_are_refused_by_name() {
    let dimensions = Raw::header(3, 1, 0).string("w").u32(5).bytes(&[1; 60]).refusal();
    assert_eq!(dimensions.to_string(), "tensor `w` has 5 dimensions, more than 4");
    let partial = Raw::header(3, 1, 0).string("w").u32(1).u64(40).u32(2).u64(0).pad(32).refusal();
    assert!(matches!(partial, Error::Tensor { tensor, .. } if tensor == "w"));
    let extents = Raw::header(3, 1, 0).string("w").u32(2).u64(1 << 33).u64(1 << 33).u32(0).u64(0).refusal();
    assert!(matches!(extents, Error::Tensor { .. }));
}

#[test]
fn places_are_aligned_disjoint_and_within_the_file() {
    let two = |first: u64, second: u64| {
        let raw = Raw::header(3, 2, 0).tensor("a", 16, first).tensor("b", 16, second);
        raw.pad(32).bytes(&[0; 160])
    };
    assert!(two(0, 64).read().is_ok() && two(96, 32).read().is_ok());
    let misaligned = two(0, 65).refusal();
    assert!(matches!(misaligned, Error::Misaligned { offset: 65, alignment: 32, .. }), "{misaligned}");
    let overlapping = two(64, 32).refusal().to_string();
    assert_eq!(overlapping, "tensors `b` and `a` share 32 bytes of data");
    assert!(matches!(two(0, 0).refusal(), Error::Overlap { bytes: 64, .. }));
    assert!(matches!(two(0, 128).refusal(), Error::MissingData { missing: 32, .. }));
    assert!(matches!(two(0, 1 << 62).refusal(), Error::MissingData { .. }));
    assert!(matches!(two(0, u64::MAX - 31).refusal(), Error::TooFar { tensor } if tensor == "b"));
}

#[test]
fn a_large_tensor_over_small_ones_is_found() {
    let raw = Raw::header(3, 3, 0).tensor("small", 1, 64).tensor("large", 40, 0).tensor("last", 1, 192);
    let error = raw.pad(32).bytes(&[0; 196]).refusal();
    assert_eq!(error.to_string(), "tensors `large` and `small` share 4 bytes of data");
}
