//! Damaged files.

use orlop_testkit::Random;

/// A file with one to three changes.
pub(crate) fn spoiled(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..1 + random.below(3) {
        // Often in the header, which is small.
        let most = if random.below(2) == 0 { 1000 } else { bytes.len() as u64 };
        let at = random.below(most.min(bytes.len() as u64)) as usize;
        match random.below(4) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes.insert(at, random.below(256) as u8),
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
    bytes
}

/// The seeds of a fuzz target, of which there are `count`.
#[allow(dead_code)] // not all tests that share this file have such seeds
pub(crate) fn corpus(target: &str, count: usize) -> Vec<Vec<u8>> {
    let folder = format!("{}/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert_eq!(paths.len(), count, "{paths:?}");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}
