use std::io;

use orlop_gguf::{Array, Error, GgufPart, MAX_NESTING, Writer};
use orlop_graph::DType;

use crate::support::{Folder, read, written};

#[test]
fn data_may_come_piece_by_piece() {
    let mut writer = Writer::new();
    writer
        .tensor_with("w", DType::F32, &[5], |out| (1..=5u8).try_for_each(|byte| out.write_all(&[byte; 4])))
        .unwrap();
    writer.tensor("v", DType::I8, &[1], &[9]).unwrap();
    let file = read(written(writer)).unwrap();
    assert_eq!(file.bytes_of(file.tensor("w").unwrap())[16..], [5; 4]);
    assert_eq!(file.bytes_of(file.tensor("v").unwrap()), [9]);
}

#[test]
fn data_of_the_wrong_length_is_refused() {
    let mut writer = Writer::new();
    let error = writer.tensor("w", DType::F32, &[2], &[0; 7]).unwrap_err();
    assert_eq!(error.to_string(), "tensor `w` takes 8 bytes of data, 7 were given");
    for count in [7, 9] {
        let mut writer = Writer::new();
        let make = move |out: &mut dyn io::Write| {
            // The closure may ignore the error.
            let _ = out.write_all(&vec![1; count]);
            Ok(())
        };
        writer.tensor_with("w", DType::F32, &[2], make).unwrap();
        let error = writer.write(&mut Vec::new()).unwrap_err();
        let found =
            matches!(error, Error::DataLength { expected: 8, written, .. } if written == count as u64);
        assert!(found, "{error}");
    }
}

#[test]
fn data_that_cannot_be_made_leaves_no_file() {
    let folder = Folder::new();
    let mut writer = Writer::new();
    writer.tensor_with("w", DType::F32, &[2], |_| Err(io::Error::other("no more"))).unwrap();
    let error = writer.create(folder.path("w.gguf")).unwrap_err();
    assert!(matches!(&error, Error::Data { tensor, .. } if tensor == "w"), "{error}");
    assert_eq!(std::fs::read_dir(folder.as_path()).unwrap().count(), 0);
}

#[test]
fn a_mapped_file_may_be_replaced_by_its_own_copy() {
    let folder = Folder::new();
    let path = folder.path("w.gguf");
    let mut writer = Writer::new();
    writer.set("general.alignment", 64u32).unwrap();
    writer.tensor("w", DType::F32, &[2], &[3; 8]).unwrap();
    let bytes = writer.create(&path).unwrap();
    let file = GgufPart::open(&path).unwrap();
    assert_eq!(Writer::copy_of(&file).unwrap().create(&path).unwrap(), bytes);
    assert_eq!(file.bytes_of(file.tensor("w").unwrap()), [3; 8]);
    assert_eq!((*file.data()).as_ref(), std::fs::read(&path).unwrap());
    assert_eq!(std::fs::read_dir(folder.as_path()).unwrap().count(), 1);
}

#[test]
fn what_could_not_be_read_is_not_written() {
    let mut writer = Writer::new();
    writer.tensor("w", DType::I8, &[1], &[1]).unwrap();
    assert!(matches!(writer.tensor("w", DType::I8, &[1], &[1]), Err(Error::DuplicateTensor(_))));
    assert!(matches!(writer.tensor("v", DType::Q4_0, &[1], &[]), Err(Error::Tensor { .. })));
    assert!(matches!(writer.tensor("v", DType::I8, &[1; 5], &[1]), Err(Error::Tensor { .. })));
    writer.set("general.alignment", 24u32).unwrap();
    assert!(matches!(writer.write(&mut Vec::new()), Err(Error::Alignment(24))));

    let mut deep = Array::U8(vec![]);
    for _ in 0..MAX_NESTING {
        deep = Array::Array(vec![deep]);
    }
    let mut writer = Writer::new();
    writer.set("deep", deep).unwrap();
    assert!(matches!(writer.write(&mut Vec::new()), Err(Error::Nesting { key }) if key == "deep"));
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link() {
    let folder = Folder::new();
    let (target, link) = (folder.path("target.gguf"), folder.path("link.gguf"));
    std::fs::write(&target, b"").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let bytes = Writer::new().create(&link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(std::fs::metadata(&target).unwrap().len(), bytes);
}
