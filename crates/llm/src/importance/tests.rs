//! Importance data: files of both formats, and files that are damaged.

use orlop_gguf::Writer;

use super::*;

/// A file that goes away.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("orlop-importance-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn plain(entries: &[(&str, i32, &[f32])]) -> Vec<u8> {
    let mut bytes = (entries.len() as i32).to_le_bytes().to_vec();
    for (name, calls, sums) in entries {
        bytes.extend((name.len() as i32).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(calls.to_le_bytes());
        bytes.extend((sums.len() as i32).to_le_bytes());
        bytes.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
    }
    bytes
}

#[test]
fn both_formats_say_the_same() {
    let (old, new) = (Scratch::new("old.dat"), Scratch::new("new.gguf"));
    fs::write(&old.0, plain(&[("a.weight", 2, &[2.0, 4.0]), ("b.weight", 4, &[8.0, 0.0, 4.0, 12.0])]))
        .unwrap();
    let tensors = [
        ("a.weight.in_sum2", [2, 1], bytes(&[5.0, 10.0])),
        ("a.weight.counts", [1, 1], bytes(&[5.0])),
        ("b.weight.in_sum2", [2, 2], bytes(&[2.0, 0.0, 3.0, 9.0])),
        ("b.weight.counts", [1, 2], bytes(&[1.0, 3.0])),
    ];
    let mut writer = Writer::default();
    for (name, extents, values) in &tensors {
        writer.tensor(name, DType::F32, extents, values).unwrap();
    }
    writer.create(&new.0).unwrap();
    let read = Importance::open(&old.0).unwrap();
    assert_eq!(read, Importance::open(&new.0).unwrap());
    assert_eq!(read.matrices(), 2);
    assert_eq!(read.of("a.weight", &[2, 7]).unwrap(), Some(&[1.0, 2.0][..]));
    assert_eq!(read.of("b.weight", &[2, 7, 2]).unwrap(), Some(&[2.0, 0.0, 1.0, 3.0][..]));
    assert_eq!(read.of("c.weight", &[2, 7]).unwrap(), None);
    let error = read.of("b.weight", &[2, 7]).unwrap_err().to_string();
    assert!(error.contains("b.weight") && error.contains("4 numbers for 2 columns"), "{error}");
}

#[test]
fn an_expert_that_was_never_chosen_has_equal_importance() {
    let file = Scratch::new("experts.gguf");
    let (sums, counts) = (bytes(&[4.0, 2.0, 0.0, 0.0]), bytes(&[2.0, 0.0]));
    let mut writer = Writer::default();
    writer.tensor("e.weight.in_sum2", DType::F32, &[2, 2], &sums).unwrap();
    writer.tensor("e.weight.counts", DType::F32, &[1, 2], &counts).unwrap();
    writer.create(&file.0).unwrap();
    let read = Importance::open(&file.0).unwrap();
    assert_eq!(read.of("e.weight", &[2, 3, 2]).unwrap(), Some(&[2.0, 1.0, 1.0, 1.0][..]));
}

#[test]
fn damaged_files_are_refused() {
    let whole = plain(&[("a.weight", 2, &[2.0, 4.0])]);
    for length in 0..whole.len() {
        assert!(
            matches!(Importance::from_plain(&whole[..length]), Err(Error::Importance { .. })),
            "{length}"
        );
    }
    for bad in [plain(&[]), plain(&[("a", 1, &[-1.0])]), plain(&[("a", 1, &[f32::NAN])]), vec![255; 64]] {
        assert!(matches!(Importance::from_plain(&bad), Err(Error::Importance { .. })));
    }
}
