use orlop_gguf::{Array, Metadata, MetadataValue, Text, Writer};
use orlop_graph::{DType, TensorDesc};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{read, small_file, written};

fn text() -> impl Strategy<Value = Text> {
    vec(any::<u8>(), 0..12).prop_map(|bytes| Text::from(&bytes[..]))
}

fn flat_array() -> impl Strategy<Value = Array> {
    prop_oneof![
        vec(any::<u8>(), 0..5).prop_map(Array::U8),
        vec(any::<i8>(), 0..5).prop_map(Array::I8),
        vec(any::<u16>(), 0..5).prop_map(Array::U16),
        vec(any::<i16>(), 0..5).prop_map(Array::I16),
        vec(any::<u32>(), 0..5).prop_map(Array::U32),
        vec(any::<i32>(), 0..5).prop_map(Array::I32),
        vec(any::<f32>(), 0..5).prop_map(Array::F32),
        vec(any::<bool>(), 0..5).prop_map(Array::Bool),
        vec(text(), 0..5).prop_map(|texts| Array::String(texts.iter().map(Text::as_bytes).collect())),
        vec(any::<u64>(), 0..5).prop_map(Array::U64),
        vec(any::<i64>(), 0..5).prop_map(Array::I64),
        vec(any::<f64>(), 0..5).prop_map(Array::F64),
    ]
}

fn array() -> impl Strategy<Value = Array> {
    flat_array().prop_recursive(4, 24, 4, |inner| vec(inner, 0..4).prop_map(Array::Array))
}

fn value() -> impl Strategy<Value = MetadataValue> {
    prop_oneof![
        any::<u8>().prop_map(MetadataValue::from),
        any::<i8>().prop_map(MetadataValue::from),
        any::<u16>().prop_map(MetadataValue::from),
        any::<i16>().prop_map(MetadataValue::from),
        any::<u32>().prop_map(MetadataValue::from),
        any::<i32>().prop_map(MetadataValue::from),
        any::<f32>().prop_map(MetadataValue::from),
        any::<bool>().prop_map(MetadataValue::from),
        text().prop_map(MetadataValue::from),
        array().prop_map(MetadataValue::from),
        any::<u64>().prop_map(MetadataValue::from),
        any::<i64>().prop_map(MetadataValue::from),
        any::<f64>().prop_map(MetadataValue::from),
    ]
}

fn metadata() -> impl Strategy<Value = Metadata> {
    let entries = vec(("[a-zä.]{1,8}", value()), 0..8);
    let alignment = prop_oneof![Just(None), (0u32..10).prop_map(|power| Some(1u32 << power))];
    (entries, alignment).prop_map(|(entries, alignment)| {
        let mut metadata = Metadata::new();
        for (key, value) in entries {
            metadata.set(&key, value).unwrap();
        }
        if let Some(alignment) = alignment {
            metadata.set("general.alignment", alignment).unwrap();
        }
        metadata
    })
}

/// Type, extents and data.
fn tensor() -> impl Strategy<Value = (DType, Vec<u64>, Vec<u8>)> {
    let dtypes: Vec<DType> = DType::all().collect();
    (prop::sample::select(dtypes), vec(0u64..4, 0..=4), any::<u8>()).prop_map(|(dtype, mut extents, seed)| {
        match extents.first_mut() {
            Some(row) => *row *= dtype.block_elements(),
            None if dtype.is_quantized() => extents.push(dtype.block_elements()),
            None => {}
        }
        let bytes = TensorDesc::contiguous(dtype, &extents).unwrap().bytes();
        let data = (0..bytes).map(|index| (index as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        (dtype, extents, data)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_and_written_again(metadata in metadata(), tensors in vec(tensor(), 0..5)) {
        let mut writer = Writer::with_metadata(metadata.clone());
        for (index, (dtype, extents, data)) in tensors.iter().enumerate() {
            writer.tensor(&format!("t{index}"), *dtype, extents, data).unwrap();
        }
        let bytes = written(writer);
        let file = read(bytes.clone()).unwrap();

        // NaN is unequal to itself, so compare the printed form.
        prop_assert_eq!(format!("{:?}", file.metadata().iter().collect::<Vec<_>>()),
            format!("{:?}", metadata.iter().collect::<Vec<_>>()));
        prop_assert_eq!(file.tensors().len(), tensors.len());
        for (index, (dtype, extents, data)) in tensors.iter().enumerate() {
            let tensor = file.tensor(&format!("t{index}")).unwrap();
            prop_assert_eq!((tensor.desc.dtype, tensor.extents()), (*dtype, &extents[..]));
            prop_assert_eq!(file.bytes_of(tensor), &data[..]);
            prop_assert!(tensor.offset.is_multiple_of(u64::from(file.alignment())));
        }
        prop_assert_eq!(written(Writer::copy_of(&file).unwrap()), bytes);
    }
}

#[test]
fn the_small_file_survives_a_copy() {
    let bytes = small_file();
    let file = read(bytes.clone()).unwrap();
    assert_eq!(file.metadata().i64("wide").unwrap(), -5);
    assert_eq!(file.tensors().len(), 3);
    assert_eq!(written(Writer::copy_of(&file).unwrap()), bytes);
}
