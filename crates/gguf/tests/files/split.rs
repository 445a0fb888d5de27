use std::path::{Path, PathBuf};

use orlop_gguf::{Error, GgufFile, GgufPart, Writer};
use orlop_graph::DType;

use crate::support::Folder;

/// What a test corrupts in a part.
struct Part {
    file: u32,
    number: u16,
    count: u16,
    tensors: i32,
    tensor: &'static str,
}

fn part(number: u16, tensor: &'static str) -> Part {
    Part { file: u32::from(number), number, count: 3, tensors: 3, tensor }
}

fn parts() -> [Part; 3] {
    [part(0, "a"), part(1, "b"), part(2, "c")]
}

impl Part {
    fn path(&self, folder: &Folder) -> PathBuf {
        folder.path(&format!("m-{:05}-of-00003.gguf", self.file + 1))
    }

    fn create(&self, folder: &Folder) {
        let data = [self.file as u8; 4];
        let mut writer = Writer::new();
        writer.set("split.no", self.number).unwrap();
        writer.set("split.count", self.count).unwrap();
        writer.set("split.tensors.count", self.tensors).unwrap();
        writer.tensor(self.tensor, DType::F32, &[1], &data).unwrap();
        writer.create(self.path(folder)).unwrap();
    }
}

fn refusal(parts: [Part; 3]) -> Error {
    let folder = Folder::new();
    for part in &parts {
        part.create(&folder);
    }
    GgufFile::open(parts[0].path(&folder)).unwrap_err()
}

#[test]
fn any_part_opens_them_all() {
    let folder = Folder::new();
    for part in parts() {
        part.create(&folder);
    }
    for given in parts() {
        let model = GgufFile::open(given.path(&folder)).unwrap();
        assert_eq!((model.parts().len(), model.paths().len(), model.tensors().len()), (3, 3, 3));
        assert_eq!(model.metadata().u32("split.no").unwrap(), 0);
        for (part, name) in ["a", "b", "c"].into_iter().enumerate() {
            let tensor = model.tensor(name).unwrap();
            assert_eq!((tensor.part, model.bytes_of(tensor)), (part, &[part as u8; 4][..]));
        }
        assert!(model.tensor("d").is_none());
        assert_eq!(model.bytes(), 3 * model.parts()[0].bytes());
    }
}

#[test]
fn a_missing_part_is_named() {
    let folder = Folder::new();
    parts()[0].create(&folder);
    parts()[2].create(&folder);
    let error = GgufFile::open(parts()[2].path(&folder)).unwrap_err();
    assert!(matches!(&error, Error::MissingPart { number: 1, count: 3, .. }), "{error}");
    assert!(error.to_string().contains("m-00002-of-00003.gguf is missing, part 2 of 3"), "{error}");
}

#[test]
fn parts_that_contradict_each_other_are_named() {
    let [a, _, c] = parts();
    let number = refusal([a, Part { number: 2, ..part(1, "b") }, c]);
    assert!(
        matches!(&number, Error::SplitMismatch { key: "split.no", expected: 1, found: 2, .. }),
        "{number}"
    );
    let [a, _, c] = parts();
    let count = refusal([a, Part { count: 4, ..part(1, "b") }, c]);
    assert!(matches!(&count, Error::SplitMismatch { key: "split.count", found: 4, .. }), "{count}");
    let [a, _, c] = parts();
    let tensors = refusal([a, Part { tensors: 4, ..part(1, "b") }, c]);
    assert!(matches!(&tensors, Error::SplitMismatch { key: "split.tensors.count", .. }), "{tensors}");
    let [_, b, c] = parts();
    let total = refusal([Part { tensors: 4, ..part(0, "a") }, b, c]);
    assert!(matches!(&total, Error::SplitTensors { parts: 3, expected: 4, found: 3 }), "{total}");
    let [a, _, c] = parts();
    let twins = refusal([a, part(1, "c"), c]);
    assert!(matches!(&twins, Error::DuplicateTensor(name) if name == "c"), "{twins}");
}

#[test]
fn a_part_under_another_name_is_refused() {
    let folder = Folder::new();
    parts()[0].create(&folder);
    let renamed = folder.path("renamed.gguf");
    std::fs::rename(parts()[0].path(&folder), &renamed).unwrap();
    let error = GgufFile::open(&renamed).unwrap_err();
    assert!(error.to_string().ends_with("its name must end in -00001-of-00003.gguf"), "{error}");
    assert!(GgufPart::open(&renamed).is_ok());
}

#[test]
fn a_damaged_part_is_named() {
    let folder = Folder::new();
    for part in parts() {
        part.create(&folder);
    }
    std::fs::write(parts()[1].path(&folder), b"not this").unwrap();
    let error = GgufFile::open(parts()[0].path(&folder)).unwrap_err();
    assert!(matches!(&error, Error::Part { path, .. } if *path == parts()[1].path(&folder)), "{error}");
    assert!(matches!(GgufFile::open(parts()[1].path(&folder)), Err(Error::NotGguf(_))));
}

#[test]
fn a_file_that_is_whole_is_a_model_of_one_part() {
    let folder = Folder::new();
    let path = folder.path("whole-00001-of-00009.gguf");
    let mut writer = Writer::new();
    writer.tensor("a", DType::F32, &[1], &[1; 4]).unwrap();
    writer.create(&path).unwrap();
    let model = GgufFile::open(&path).unwrap();
    assert_eq!((model.parts().len(), model.paths()), (1, &[path][..]));
    let same = GgufFile::from_file(model.parts()[0].clone());
    assert_eq!(same.tensors(), model.tensors());
    assert_eq!(same.bytes_of(same.tensor("a").unwrap()), [1; 4]);
}

#[test]
fn what_cannot_be_opened_is_named() {
    let folder = Folder::new();
    for path in [&folder.path("no.gguf"), folder.as_path(), Path::new("")] {
        let error = GgufPart::open(path).unwrap_err();
        assert!(matches!(&error, Error::Open { path: named, .. } if named == path), "{error}");
    }
    std::fs::write(folder.path("empty.gguf"), b"").unwrap();
    let error = GgufPart::open(folder.path("empty.gguf")).unwrap_err();
    assert!(matches!(error, Error::Ends { .. }), "{error}");
}
