use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use orlop_gguf::{Array, Error, GgufPart, Writer};
use orlop_graph::DType;

/// A file built field by field.
#[derive(Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    pub(crate) fn header(version: u32, tensors: u64, entries: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(version).u64(tensors).u64(entries)
    }

    pub(crate) fn u32(self, value: u32) -> Raw {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Raw {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Raw {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn string(self, string: &str) -> Raw {
        self.u64(string.len() as u64).bytes(string.as_bytes())
    }

    /// The description of an F32 tensor of one dimension.
    pub(crate) fn tensor(self, name: &str, elements: u64, offset: u64) -> Raw {
        self.string(name).u32(1).u64(elements).u32(0).u64(offset)
    }

    pub(crate) fn pad(mut self, alignment: usize) -> Raw {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
        self
    }

    pub(crate) fn read(self) -> Result<GgufPart, Error> {
        read(self.0)
    }

    /// The error message for the file.
    pub(crate) fn refusal(self) -> Error {
        self.read().unwrap_err()
    }
}

pub(crate) fn read(bytes: Vec<u8>) -> Result<GgufPart, Error> {
    GgufPart::from_bytes(Arc::new(bytes))
}

pub(crate) fn written(writer: Writer<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let count = writer.write(&mut bytes).unwrap();
    assert_eq!(count, bytes.len() as u64);
    bytes
}

/// A small file with every kind of entry.
pub(crate) fn small_file() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.set("general.architecture", "test").unwrap();
    writer.set("numbers", Array::U16(vec![1, 2, 3])).unwrap();
    writer.set("words", Array::String(["a", "", "bc"].into_iter().collect())).unwrap();
    writer.set("nested", Array::Array(vec![Array::Bool(vec![true]), Array::Array(vec![])])).unwrap();
    writer.set("wide", -5i64).unwrap();
    writer.tensor("first", DType::F32, &[3], &[7; 12]).unwrap();
    writer.tensor("second", DType::Q4_0, &[32, 2], &[9; 36]).unwrap();
    writer.tensor("nothing", DType::F16, &[4, 0], &[]).unwrap();
    written(writer)
}

/// A temporary folder of one test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("orlop-gguf-{}-{count}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
