use std::time::Duration;

use orlop_gguf::{GgufPart, Writer, read_speed};
use orlop_graph::DType;

use crate::support::Folder;

fn file(folder: &Folder, bytes: usize) -> std::path::PathBuf {
    let path = folder.path("model.gguf");
    let data = vec![1; bytes];
    let mut writer = Writer::new();
    writer.tensor("w", DType::I8, &[bytes as u64], &data).unwrap();
    writer.create(&path).unwrap();
    path
}

#[test]
fn the_speed_of_a_file_is_measured_by_reading_it() {
    let folder = Folder::new();
    for bytes in [100, 9 << 20] {
        let path = file(&folder, bytes);
        for time in [Duration::ZERO, Duration::from_millis(20)] {
            let speed = read_speed(&path, time).unwrap();
            assert!(speed.is_finite() && speed > 0.0, "{speed}");
        }
    }
    let empty = folder.path("empty");
    std::fs::write(&empty, []).unwrap();
    assert!(read_speed(&empty, Duration::ZERO).is_err());
    assert!(read_speed(&folder.path("missing"), Duration::ZERO).is_err());
}

/// Whether the system was told that a mapped file is read in order.
#[cfg(target_os = "linux")]
#[test]
fn a_tensor_that_is_read_in_order_is_read_ahead() {
    let folder = Folder::new();
    let path = file(&folder, 1 << 16);
    let part = GgufPart::open(&path).unwrap();
    let is_sequential = || {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let own = maps.split("VmFlags:").collect::<Vec<_>>();
        let shown = path.display().to_string();
        own.windows(2).any(|pair| {
            let flags = pair[1].lines().next().unwrap_or("");
            pair[0].contains(&shown) && flags.split_whitespace().any(|flag| flag == "sr")
        })
    };
    assert!(!is_sequential());
    part.read_in_order(part.tensor("w").unwrap());
    assert!(is_sequential());
}
