//! What the caches of the machine's processors hold.

use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of all caches of the last level, below a root folder (`/`), where the system tells.
pub(crate) fn last_level_bytes(root: &Path) -> Option<u64> {
    let mut caches = BTreeMap::new();
    for processor in folders(&root.join("sys/devices/system/cpu"), "cpu") {
        for cache in folders(&processor.join("cache"), "index") {
            let read = |name| std::fs::read_to_string(cache.join(name)).ok();
            let (Some(level), Some(size), Some(users)) =
                (read("level"), read("size"), read("shared_cpu_list"))
            else {
                continue;
            };
            if let (Ok(level), Some(bytes)) = (level.trim().parse::<u32>(), bytes(size.trim())) {
                // Each processor that uses a cache lists it.
                caches.insert((level, users), bytes);
            }
        }
    }
    let (last, _) = caches.keys().max()?;
    let sizes = caches.iter().filter(|((level, _), _)| level == last).map(|(_, bytes)| *bytes);
    Some(sizes.fold(0, u64::saturating_add))
}

/// Folders whose names are a prefix and a number.
fn folders(parent: &Path, prefix: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let numbered = entries.filter(|entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    });
    numbered.map(|entry| entry.path()).collect()
}

/// A size as Linux writes it: `32768K`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes caches of processors: level, size, users.
    fn machine(name: &str, caches: &[(u32, u32, &str, &str)]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("orlop-caches-{}-{name}", std::process::id()));
        for (index, (processor, level, size, users)) in caches.iter().enumerate() {
            let folder = root.join(format!("sys/devices/system/cpu/cpu{processor}/cache/index{index}"));
            std::fs::create_dir_all(&folder).unwrap();
            for (file, text) in [("level", level.to_string()), ("size", size.to_string())] {
                std::fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
            std::fs::write(folder.join("shared_cpu_list"), format!("{users}\n")).unwrap();
        }
        root
    }

    #[test]
    fn caches_of_the_last_level_count_once_each() {
        let root = machine(
            "two",
            &[
                (0, 2, "1024K", "0"),
                (0, 3, "32768K", "0-1"),
                (1, 3, "32768K", "0-1"),
                (2, 3, "16M", "2-3"),
                (3, 3, "16M", "2-3"),
            ],
        );
        assert_eq!(last_level_bytes(&root), Some(48 << 20));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_machine_that_tells_nothing_has_no_answer() {
        assert_eq!(last_level_bytes(Path::new("/nowhere at all")), None);
        let root = machine("odd", &[(0, 3, "large", "0"), (0, 2, "", "0")]);
        assert_eq!(last_level_bytes(&root), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
