//! Names of the parts of split files: `name-00001-of-00003.gguf`.

use std::path::{Path, PathBuf};

/// The common prefix of all parts' names, if this is the name of part `number` (from 0) of `count`.
pub(crate) fn stem(path: &Path, number: u32, count: u32) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(&suffix(number, count))
}

/// The path of another part in the same folder.
pub(crate) fn sibling(path: &Path, stem: &str, number: u32, count: u32) -> PathBuf {
    path.with_file_name(format!("{stem}{}", suffix(number, count)))
}

fn suffix(number: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", u64::from(number) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_count_from_one_in_five_digits() {
        let first = Path::new("folder/name-00001-of-00012.gguf");
        assert_eq!(stem(first, 0, 12), Some("name"));
        assert_eq!(sibling(first, "name", 11, 12), Path::new("folder/name-00012-of-00012.gguf"));
        assert_eq!(stem(first, 1, 12), None);
        assert_eq!(stem(Path::new("name-1-of-12.gguf"), 0, 12), None);
    }
}
