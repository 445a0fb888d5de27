use orlop_gguf::{Array, MetadataValue, ValueType};
use orlop_graph::DType;

use crate::support::Raw;

#[test]
fn a_tiny_file_reads_as_it_was_written_by_hand() {
    #[rustfmt::skip]
    let bytes: &[u8] = &[
        b'G', b'G', b'U', b'F', 3, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0,                                     // tensors
        2, 0, 0, 0, 0, 0, 0, 0,                                     // keys
        1, 0, 0, 0, 0, 0, 0, 0, b'n', 8, 0, 0, 0,                   // n: string
        2, 0, 0, 0, 0, 0, 0, 0, b'h', b'i',
        1, 0, 0, 0, 0, 0, 0, 0, b'l', 9, 0, 0, 0,                   // l: array of i8
        1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 255,
        1, 0, 0, 0, 0, 0, 0, 0, b'w', 2, 0, 0, 0,                   // w: two dimensions
        2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
        24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                        // i8, at the start of the data
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,                      // up to byte 128
        10, 11, 12, 13, 14, 15,
    ];
    let file = Raw(bytes.to_vec()).read().unwrap();
    assert_eq!((file.version(), file.alignment(), file.bytes()), (3, 32, bytes.len() as u64));
    assert_eq!(file.metadata().string("n").unwrap(), "hi");
    assert_eq!(file.metadata().array("l").unwrap(), &Array::I8(vec![1, -1]));
    let tensor = file.tensor("w").unwrap();
    assert_eq!(tensor.desc.dtype, DType::I8);
    assert_eq!((tensor.extents(), tensor.desc.extents), (&[2, 3][..], [2, 3, 1, 1]));
    assert_eq!((tensor.offset, tensor.bytes, tensor.part), (128, 6, 0));
    assert_eq!(file.bytes_of(tensor), [10, 11, 12, 13, 14, 15]);
    assert!(file.tensor("v").is_none());
    assert_eq!((*file.data()).as_ref(), bytes);
}

#[test]
fn every_type_of_value_is_read() {
    let payloads: [(&[u8], MetadataValue); 12] = [
        (&[200], MetadataValue::U8(200)),
        (&[200], MetadataValue::I8(-56)),
        (&[1, 2], MetadataValue::U16(513)),
        (&[255, 255], MetadataValue::I16(-1)),
        (&[1, 0, 0, 128], MetadataValue::U32(0x8000_0001)),
        (&[254, 255, 255, 255], MetadataValue::I32(-2)),
        (&[0, 0, 128, 63], MetadataValue::F32(1.0)),
        (&[1], MetadataValue::Bool(true)),
        (&[1, 0, 0, 0, 0, 0, 0, 0, b'x'], MetadataValue::from("x")),
        (&[1, 0, 0, 0, 0, 0, 0, 128], MetadataValue::U64((1 << 63) + 1)),
        (&[255; 8], MetadataValue::I64(-1)),
        (&[0, 0, 0, 0, 0, 0, 240, 63], MetadataValue::F64(1.0)),
    ];
    let types = ValueType::all().filter(|value_type| *value_type != ValueType::Array);
    for (value_type, (payload, value)) in types.zip(payloads) {
        let raw = Raw::header(3, 0, 1).string("k").u32(value_type.id()).bytes(payload);
        let file = raw.read().unwrap();
        assert_eq!(file.metadata().get("k"), Some(&value));
        assert_eq!(value.value_type(), value_type);
        let raw = Raw::header(3, 0, 1).string("k").u32(9).u32(value_type.id()).u64(2).bytes(payload);
        let file = raw.bytes(payload).read().unwrap();
        let array = file.metadata().array("k").unwrap();
        assert_eq!((array.element_type(), array.len()), (value_type, 2));
    }
}

#[test]
fn version_two_is_read() {
    let file = Raw::header(2, 0, 0).read().unwrap();
    assert_eq!((file.version(), file.tensors().len(), file.metadata().len()), (2, 0, 0));
}

#[test]
fn an_alignment_of_the_files_own_is_honoured() {
    let raw = Raw::header(3, 2, 1).string("general.alignment").u32(4).u32(8);
    let raw = raw.tensor("a", 1, 0).tensor("b", 1, 8).pad(8).bytes(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    let file = raw.read().unwrap();
    assert_eq!(file.alignment(), 8);
    assert_eq!(file.bytes_of(file.tensor("b").unwrap()), [2, 0, 0, 0]);
}

#[test]
fn tensors_may_lie_in_any_order_and_with_gaps() {
    let raw = Raw::header(3, 2, 0).tensor("late", 1, 96).tensor("early", 1, 0).pad(32);
    let file = raw.bytes(&[1; 100]).read().unwrap();
    let names: Vec<&str> = file.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["late", "early"]);
    assert_eq!(file.tensor("late").unwrap().offset, file.tensor("early").unwrap().offset + 96);
}

#[test]
fn empty_tensors_may_share_a_place() {
    let raw = Raw::header(3, 3, 0).tensor("none", 0, 0).tensor("nil", 0, 0).tensor("one", 1, 0);
    let file = raw.pad(32).bytes(&[1, 2, 3, 4]).read().unwrap();
    assert!(file.bytes_of(file.tensor("nil").unwrap()).is_empty());
    assert_eq!(file.bytes_of(file.tensor("one").unwrap()), [1, 2, 3, 4]);
}

#[test]
fn a_tensor_without_extents_is_one_element() {
    let raw = Raw::header(3, 1, 0).string("s").u32(0).u32(0).u64(0).pad(32).bytes(&[0, 0, 128, 63]);
    let file = raw.read().unwrap();
    assert!(file.tensors()[0].desc.is_scalar() && file.tensors()[0].extents().is_empty());
}
