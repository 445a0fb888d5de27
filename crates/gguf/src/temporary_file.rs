//! Files that appear complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The name of a file that is being written; the file is removed unless it is renamed.
///
/// ```
/// use std::io::Write;
/// use orlop_gguf::TemporaryFile;
///
/// let path = std::env::temp_dir().join(format!("numbers-{}.txt", std::process::id()));
/// let (temporary, mut file) = TemporaryFile::beside(&path)?;
/// file.write_all(b"1 2 3")?;
/// assert!(!path.exists());
/// temporary.rename(&path)?;
/// assert_eq!(std::fs::read(&path)?, b"1 2 3");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TemporaryFile(Option<PathBuf>);

impl TemporaryFile {
    /// Creates a file in the folder of `path`, under a name that no file has.
    ///
    /// # Errors
    /// If no file can be created there.
    pub fn beside(path: &Path) -> io::Result<(TemporaryFile, File)> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut number = 0u64;
        loop {
            // Another thread, or a process that had the same id, may use the name.
            let temporary = path.with_file_name(format!(".{name}.{}.{number}.tmp", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => return Ok((TemporaryFile(Some(temporary)), file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives the file the name `path`, and replaces the file there.
    ///
    /// # Errors
    /// If it cannot be renamed; the file is then removed.
    pub fn rename(mut self, path: &Path) -> io::Result<()> {
        if let Some(temporary) = &self.0 {
            fs::rename(temporary, path)?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.0 {
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn two_writers_of_one_file_do_not_meet() {
        let folder = std::env::temp_dir().join(format!("orlop-temporary-file-{}", std::process::id()));
        fs::create_dir(&folder).expect("a fresh folder");
        let path = folder.join("file");
        let open = || TemporaryFile::beside(&path).expect("a file");
        let ((first, mut one), (second, mut two), (dropped, _)) = (open(), open(), open());
        one.write_all(b"one").expect("room");
        two.write_all(b"two").expect("room");
        for (temporary, text) in [(first, b"one"), (second, b"two")] {
            temporary.rename(&path).expect("a name");
            assert_eq!(fs::read(&path).expect("a file"), text);
        }
        drop(dropped);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        fs::remove_dir_all(&folder).expect("a folder of our own");
    }
}
