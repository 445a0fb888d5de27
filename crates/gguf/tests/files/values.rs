//! Typed access to metadata, for every type of value.

use orlop_gguf::{Array, Error, Metadata, MetadataValue, Strings, Text, Writer};
use orlop_graph::DType;

/// A value of each type of integers, and its negative where there is one.
fn integers() -> Vec<(MetadataValue, i128)> {
    vec![
        (7u8.into(), 7),
        ((-7i8).into(), -7),
        (700u16.into(), 700),
        ((-700i16).into(), -700),
        (70_000u32.into(), 70_000),
        ((-70_000i32).into(), -70_000),
        (7_000_000_000u64.into(), 7_000_000_000),
        ((-7_000_000_000i64).into(), -7_000_000_000),
    ]
}

/// A number as a type of integers has it, if it fits.
fn expected<T: TryFrom<i128>>(number: i128) -> Option<T> {
    T::try_from(number).ok()
}

/// What was read; `None` for a number that does not fit.
fn read<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(Error::IntegerRange { key, .. }) => {
            assert_eq!(key, "k");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn integers_of_every_type_are_read_as_every_type_that_they_fit() {
    for (value, number) in integers() {
        assert_eq!(value.integer(), Some(number));
        let mut metadata = Metadata::new();
        metadata.set("k", value).unwrap();
        assert_eq!(read(metadata.u16("k")), expected(number));
        assert_eq!(read(metadata.u32("k")), expected(number));
        assert_eq!(read(metadata.i32("k")), expected(number));
        assert_eq!(read(metadata.u64("k")), expected(number));
        assert_eq!(read(metadata.i64("k")), expected(number));
        assert!(matches!(metadata.f32("k"), Err(Error::WrongType { .. })));
        assert!(matches!(metadata.f64("k"), Err(Error::WrongType { .. })));
        assert!(matches!(metadata.bool("k"), Err(Error::WrongType { .. })));
    }
    for value in [MetadataValue::from(1.5f32), true.into(), "7".into(), Array::U8(vec![7]).into()] {
        assert_eq!(value.integer(), None, "{value:?}");
    }
}

#[test]
fn arrays_of_integers_of_every_type_are_read() {
    let arrays: [Array; 8] = [
        Array::U8(vec![1, 2]),
        Array::I8(vec![1, 2]),
        Array::U16(vec![1, 2]),
        Array::I16(vec![1, 2]),
        Array::U32(vec![1, 2]),
        Array::I32(vec![1, 2]),
        Array::U64(vec![1, 2]),
        Array::I64(vec![1, 2]),
    ];
    for array in arrays {
        assert_eq!(array.integers().map(Iterator::collect), Some(vec![1, 2]), "{array:?}");
        let mut metadata = Metadata::new();
        metadata.set("k", array).unwrap();
        assert_eq!(metadata.u32s("k").unwrap(), [1, 2]);
        assert_eq!(metadata.i32s("k").unwrap(), [1, 2]);
        assert!(matches!(metadata.f32s("k"), Err(Error::WrongType { .. })));
        assert!(matches!(metadata.bools("k"), Err(Error::WrongType { .. })));
    }
    assert!(Array::F32(vec![1.0]).integers().is_none() && Array::Bool(vec![true]).integers().is_none());
}

#[test]
fn other_types_are_read_as_what_they_are() {
    let mut metadata = Metadata::new();
    metadata.set("half", 0.5f32).unwrap();
    metadata.set("tenth", 0.1f64).unwrap();
    metadata.set("no", false).unwrap();
    metadata.set("text", "ä").unwrap();
    metadata.set("halves", Array::F32(vec![0.5, -0.5])).unwrap();
    metadata.set("flags", Array::Bool(vec![true, false])).unwrap();
    metadata.set("words", Array::from(["a", "ä"].into_iter().collect::<Strings>())).unwrap();
    assert_eq!((metadata.f32("half").unwrap(), metadata.f64("half").unwrap()), (0.5, 0.5));
    assert_eq!((metadata.f32("tenth").unwrap(), metadata.f64("tenth").unwrap()), (0.1, 0.1));
    assert!(!metadata.bool("no").unwrap());
    assert_eq!(metadata.text("text").unwrap().as_bytes(), "ä".as_bytes());
    assert_eq!(metadata.text("text").unwrap(), &Text::from("ä"));
    assert_eq!(metadata.f32s("halves").unwrap(), [0.5, -0.5]);
    assert_eq!(metadata.bools("flags").unwrap(), [true, false]);
    assert_eq!(metadata.strs("words").unwrap(), ["a", "ä"]);
    for key in ["half", "tenth", "no", "text", "halves", "flags", "words"] {
        assert!(metadata.contains(key) && metadata.required(key).is_ok(), "{key}");
    }
    assert!(!metadata.contains("none") && !metadata.is_empty() && Metadata::new().is_empty());
    assert_eq!(metadata.optional("half", Metadata::f32).unwrap(), Some(0.5));
    assert_eq!(metadata.optional("none", Metadata::f32).unwrap(), None);
}

#[test]
fn a_key_that_is_set_again_keeps_its_place_and_one_that_is_removed_leaves_none() {
    let mut metadata = Metadata::new();
    for (key, value) in [("a", 1u32), ("b", 2), ("c", 3), ("a", 4)] {
        metadata.set(key, value).unwrap();
    }
    let all = |metadata: &Metadata| -> Vec<(String, i128)> {
        metadata.iter().map(|(key, value)| (key.to_owned(), value.integer().unwrap())).collect()
    };
    let named = |list: &[(&str, i128)]| -> Vec<(String, i128)> {
        list.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
    };
    assert_eq!(all(&metadata), named(&[("a", 4), ("b", 2), ("c", 3)]));
    assert_eq!(metadata.remove("b"), Some(MetadataValue::U32(2)));
    assert_eq!((metadata.remove("b"), metadata.len()), (None, 2));
    assert_eq!(metadata.u32("c").unwrap(), 3);
    metadata.set("c", 5u32).unwrap();
    assert_eq!(all(&metadata), named(&[("a", 4), ("c", 5)]));
    assert!(matches!(metadata.set("", 1u32), Err(Error::EmptyKey { index: 2 })));
}

#[test]
fn a_writer_shows_its_keys_and_tensors() {
    let mut writer = Writer::new();
    writer.set("general.name", "a scale").unwrap();
    writer.tensor("scale", DType::F32, &[1], &[0; 4]).unwrap();
    let shown = format!("{writer:?}");
    assert!(shown.contains("general.name") && shown.contains("\"scale\""), "{shown}");
}
