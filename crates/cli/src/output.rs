//! Output files.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use orlop::gguf::TemporaryFile;

use crate::failure::Failure;

/// A file that is written under a temporary name and renamed when complete.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    // Dropped before the name, as some systems do not remove open files.
    file: Option<BufWriter<File>>,
    /// `None` for special files (pipes, terminals), which are written directly.
    temporary: Option<TemporaryFile>,
}

impl Output {
    /// Creates the file.
    pub(crate) fn create(path: &Path) -> Result<Output, Failure> {
        let refused = |error: std::io::Error| {
            let name = path.display();
            Failure::BadInput(format!("{name}: cannot write the file ({error}); use another path"))
        };
        // `/dev/stdout` may be redirected to a regular file that another process has open.
        let special = path.starts_with("/dev") || path.starts_with("/proc");
        if special || fs::metadata(path).is_ok_and(|known| !known.is_file()) {
            let file = OpenOptions::new().append(true).open(path).map_err(refused)?;
            return Ok(Output { path: path.to_owned(), temporary: None, file: Some(BufWriter::new(file)) });
        }
        // Replace the target of a symbolic link, not the link.
        let path = match fs::symlink_metadata(path) {
            Ok(_) => fs::canonicalize(path).map_err(refused)?,
            Err(_) => path.to_owned(),
        };
        let (temporary, file) = TemporaryFile::beside(&path).map_err(refused)?;
        Ok(Output { path, temporary: Some(temporary), file: Some(BufWriter::new(file)) })
    }

    /// Appends text.
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(text.as_bytes()).map_err(|error| self.failed(error))
    }

    /// Flushes and renames the file.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        file.flush().map_err(|error| self.failed(error))?;
        drop(file);
        let temporary = self.temporary.take();
        temporary.map_or(Ok(()), |file| file.rename(&self.path)).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: std::io::Error) -> Failure {
        let name = self.path.display();
        Failure::Other(anyhow::anyhow!(
            "{name}: cannot write the file ({error}); check free space and permissions"
        ))
    }
}
