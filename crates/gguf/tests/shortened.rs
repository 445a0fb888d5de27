//! Files that become shorter while they are mapped.
#![cfg(unix)]

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use orlop_gguf::{Error, GgufFile, Writer, handle_bus_errors};
use orlop_graph::DType;

const BYTES: usize = 1 << 20;

/// A file with a tensor of ones.
fn ones(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("orlop-shortened-{}-{name}.gguf", std::process::id()));
    let data = vec![1; BYTES];
    let mut writer = Writer::new();
    writer.tensor("ones", DType::I8, &[BYTES as u64], &data).unwrap();
    writer.create(&path).unwrap();
    path
}

fn shorten(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// The tensor's bytes, added up by several threads.
fn sum(file: &GgufFile) -> usize {
    let bytes = file.bytes_of(file.tensor("ones").unwrap());
    std::thread::scope(|scope| {
        let add = |part: &[u8]| part.iter().map(|byte| usize::from(*byte)).sum::<usize>();
        let threads: Vec<_> = bytes.chunks(BYTES / 4).map(|part| scope.spawn(move || add(part))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

#[test]
fn what_cannot_be_read_any_more_is_zeros_and_an_error() {
    handle_bus_errors().unwrap();
    handle_bus_errors().unwrap();
    let paths = ["short", "whole"].map(ones);
    let [short, whole] = [0, 1].map(|index| GgufFile::open(&paths[index]).unwrap());
    shorten(&paths[0], 300_000);
    short.check_readable().unwrap();
    let (found, left) = (sum(&short), 300_000 - short.tensor("ones").unwrap().offset as usize);
    assert!(found <= left && found > left - 8192, "{found} of {left} bytes are left");
    match short.check_readable() {
        Err(Error::Unreadable { path }) => assert_eq!(path, paths[0]),
        other => panic!("{other:?}"),
    }
    assert_eq!(sum(&whole), BYTES);
    whole.check_readable().unwrap();
    // A mapping that takes the place of the damaged one is whole.
    drop(short);
    ones("short");
    let again = GgufFile::open(&paths[0]).unwrap();
    assert_eq!(sum(&again), BYTES);
    again.check_readable().unwrap();
    paths.iter().for_each(|path| fs::remove_file(path).unwrap());
}

#[test]
fn a_bus_error_elsewhere_still_ends_the_process() {
    const CHILD: &str = "ORLOP_TEST_BUS_ERROR";
    if std::env::var_os(CHILD).is_some() {
        handle_bus_errors().unwrap();
        let path = ones("elsewhere");
        let model = GgufFile::open(&path).unwrap();
        // SAFETY: `map` asks that the file is not changed: what that leads to is what this test is about, in a process of its own.
        let map = unsafe { memmap2::Mmap::map(&File::open(&path).unwrap()) }.unwrap();
        shorten(&path, 4096);
        fs::remove_file(&path).unwrap();
        // The model's own mapping of the same file is replaced.
        assert!(sum(&model) < 4096);
        panic!("{} was read", map[BYTES / 2]);
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "a_bus_error_elsewhere_still_ends_the_process"]).env(CHILD, "1");
    let ended = child.output().unwrap();
    assert_eq!(ended.status.signal(), Some(libc::SIGBUS), "{ended:?}");
}
