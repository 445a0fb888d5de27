//! Hostile files: each is read or rejected without a panic, in little memory.

#[path = "../fuzz/check.rs"]
mod check;

use std::sync::Arc;

use orlop_gguf::{Array, Error, GgufPart, Writer};
use orlop_graph::DType;
use orlop_testkit::{CountingAllocator, Random};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Reads a file and returns the peak of allocated bytes, without the file itself.
fn read(bytes: Vec<u8>) -> (Result<GgufPart, Error>, usize) {
    CountingAllocator::thread_peak(|| GgufPart::from_bytes(Arc::new(bytes)))
}

fn valid_file() -> Vec<u8> {
    let words: Vec<String> = (0..100).map(|index| format!("word{index}")).collect();
    let mut writer = Writer::new();
    writer.set("general.architecture", "test").unwrap();
    writer.set("general.alignment", 16u32).unwrap();
    writer.set("words", Array::String(words.iter().collect())).unwrap();
    writer.set("scores", Array::F32(vec![0.5; 100])).unwrap();
    let inner = vec![Array::U8(vec![1, 2]), Array::Array(vec![Array::I64(vec![-1])])];
    writer.set("nested", Array::Array(inner)).unwrap();
    writer.set("yes", true).unwrap();
    writer.tensor("first", DType::F32, &[8, 2], &[1; 64]).unwrap();
    writer.tensor("second", DType::Q6_K, &[256], &[2; 210]).unwrap();
    writer.tensor("third", DType::BF16, &[3, 1, 5], &[3; 30]).unwrap();
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    bytes
}

fn spoil(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.index(bytes.len());
    let telling = [0, 1, 2, 9, 12, 31, 1 << 20, u64::from(u32::MAX), 1 << 40, u64::MAX / 2, u64::MAX];
    let value = telling[random.index(telling.len())].wrapping_add(random.next() % 3).wrapping_sub(1);
    match random.index(6) {
        0 => bytes[at] ^= 1 << random.index(8),
        1 => bytes[at] = random.next() as u8,
        2 => drop(bytes.drain(at..(at + 1 + random.index(24)).min(bytes.len()))),
        3 => {
            let count = 1 + random.index(24);
            let new: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
            drop(bytes.splice(at..at, new));
        }
        4 => {
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        _ => {
            let end = (at + 4).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
    }
}

#[test]
fn ten_thousand_spoiled_files_are_read_or_refused_in_little_memory() {
    let valid = valid_file();
    let (mut good, mut refused) = (0, 0);
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    for round in 0..10_000 {
        let mut bytes = valid.clone();
        for _ in 0..1 + round % 3 {
            spoil(&mut bytes, &mut random);
        }
        let (file, most) = read(bytes);
        match file {
            Ok(file) => {
                good += 1;
                let sum: usize = file.tensors().iter().map(|tensor| file.bytes_of(tensor).len()).sum();
                assert!(sum as u64 <= file.bytes());
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
        assert!(most < 256 << 10, "{most} bytes in round {round}");
    }
    assert!(good > 500 && refused > 500, "{good} read, {refused} refused");
}

/// The fuzz target's check, on its corpus and on a fixed count of spoiled copies of it.
#[test]
fn what_the_fuzzer_checks_holds_for_four_thousand_spoiled_files() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/read");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut files: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    files.push(valid_file());
    let mut random = Random::new(1);
    let mut good = 0;
    for file in &files {
        check::read(file).unwrap();
        for round in 0..800 {
            let mut bytes = file.clone();
            for _ in 0..1 + round % 3 {
                spoil(&mut bytes, &mut random);
            }
            good += usize::from(check::read(&bytes).is_ok());
        }
    }
    assert!(files.len() == 5 && good > 200, "{} files, {good} spoiled ones are read", files.len());
}

/// The start of a file of version 3.
fn header(tensors: u64, keys: u64) -> Vec<u8> {
    [&b"GGUF\x03\0\0\0"[..], &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
}

#[test]
fn the_densest_files_take_memory_in_proportion() {
    const COUNT: u64 = 50_000;
    let array = |element: u32, count: u64| [&element.to_le_bytes()[..], &count.to_le_bytes()].concat();
    let key = |name: &str| [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();

    let empty_arrays = array(0, 0).repeat(COUNT as usize);
    let arrays = [header(0, 1), key("k"), vec![9, 0, 0, 0], array(9, COUNT), empty_arrays].concat();
    let empty_strings = vec![0; 8 * COUNT as usize];
    let strings = [header(0, 1), key("k"), vec![9, 0, 0, 0], array(8, COUNT), empty_strings].concat();
    let mut keys = header(0, COUNT);
    let mut tensors = header(COUNT, 0);
    for index in 0..COUNT {
        let name = format!("{index:x}");
        keys.extend([key(&name), vec![0, 0, 0, 0, 7]].concat());
        tensors.extend([key(&name), vec![1, 0, 0, 0], vec![0; 8 + 4 + 8]].concat());
    }
    tensors.resize(tensors.len().next_multiple_of(32), 0);
    for bytes in [arrays, strings, keys, tensors] {
        let size = bytes.len();
        let (file, most) = read(bytes);
        file.unwrap();
        assert!(most < 20 * size, "{most} bytes for a file of {size}");
    }
}

#[test]
fn counts_that_claim_the_same_bytes_at_every_depth_allocate_nothing() {
    let mut bytes = header(0, 1);
    bytes.extend([&1u64.to_le_bytes()[..], b"k", &9u32.to_le_bytes()].concat());
    for _ in 0..15 {
        bytes.extend([&9u32.to_le_bytes()[..], &80_000u64.to_le_bytes()].concat());
    }
    // The innermost array has an unknown type.
    bytes.extend(vec![255; 1 << 20]);
    let (file, most) = read(bytes);
    assert!(matches!(file, Err(Error::UnknownValueType { .. })));
    assert!(most < 16 << 10, "{most}");
}
