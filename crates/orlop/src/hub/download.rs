//! One file of a hub, downloaded and verified.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::HubError;
use super::listing::HubFile;
use super::request::{Client, encoded};

/// A file that is wanted, and who has it.
#[derive(Debug)]
pub(super) struct Download<'a> {
    pub(super) client: &'a Client,
    pub(super) repository: &'a str,
    pub(super) commit: &'a str,
    pub(super) file: &'a HubFile,
}

/// Requests in a row that bring nothing.
const ATTEMPTS: u32 = 3;
/// Time before the second of them; it doubles each time.
const PAUSE: Duration = Duration::from_millis(250);

const BUFFER: usize = 1 << 16;

/// A file with its first bytes.
struct Part<'a> {
    path: &'a Path,
    file: File,
    bytes: u64,
    hash: Sha256,
}

impl Part<'_> {
    /// What is there already.
    fn open(path: &Path) -> Result<Part<'_>, HubError> {
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path);
        let mut part =
            Part { path, file: file.map_err(HubError::cache(path))?, bytes: 0, hash: Sha256::new() };
        let mut buffer = vec![0; BUFFER];
        loop {
            match part.file.read(&mut buffer).map_err(HubError::cache(path))? {
                0 => return Ok(part),
                count => part.hash.update(&buffer[..count]),
            }
            part.bytes = part.file.stream_position().map_err(HubError::cache(path))?;
        }
    }

    fn clear(&mut self) -> Result<(), HubError> {
        let cleared = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        cleared.map_err(HubError::cache(self.path))?;
        (self.bytes, self.hash) = (0, Sha256::new());
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        self.file.write_all(bytes).map_err(HubError::cache(self.path))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

impl Download<'_> {
    /// Completes a file. A file that is not what the hub promised is emptied.
    pub(super) fn complete(&self, path: &Path, report: &mut dyn FnMut(u64)) -> Result<(), HubError> {
        let mut part = Part::open(path)?;
        if part.bytes > self.file.bytes {
            part.clear()?;
        }
        let mut continued = part.bytes > 0;
        loop {
            self.fill(&mut part, report)?;
            match self.fault(&part) {
                None => return part.file.sync_all().map_err(HubError::cache(path)),
                Some(fault) => {
                    part.clear()?;
                    // The beginning may have been another file's.
                    if !std::mem::replace(&mut continued, false) {
                        return Err(fault);
                    }
                }
            }
        }
    }

    /// Makes requests until the size is right.
    fn fill(&self, part: &mut Part<'_>, report: &mut dyn FnMut(u64)) -> Result<(), HubError> {
        let mut failed = 0;
        while part.bytes < self.file.bytes {
            let before = part.bytes;
            let Err(error) = self.read_more(part, report) else { continue };
            failed = if part.bytes > before { 0 } else { failed + 1 };
            if !error.is_about_network() || failed == ATTEMPTS {
                return Err(error);
            }
            thread::sleep(PAUSE * (1 << failed));
        }
        Ok(())
    }

    /// Makes one request, and keeps what it brings.
    fn read_more(&self, part: &mut Part<'_>, report: &mut dyn FnMut(u64)) -> Result<(), HubError> {
        let HubFile { name, bytes, .. } = self.file;
        let path = format!("{}/resolve/{}/{}", self.repository, self.commit, encoded(name));
        let mut response = self.client.get(&path, part.bytes)?;
        let url = response.url().to_owned();
        let starts =
            |range: &str| range.strip_prefix("bytes ")?.split_once('-')?.0.trim().parse::<u64>().ok();
        match response.status {
            206 if response.header("content-range").and_then(starts) == Some(part.bytes) => {}
            206 => return Err(response.wrong("it sends another range than the one that was asked for")),
            // The server sends no parts of files, or its file has changed.
            200 => part.clear()?,
            416 if part.bytes > 0 => return part.clear(),
            404 => {
                let (repository, wanted) = (self.repository.to_owned(), name.clone());
                return Err(HubError::NoFile { repository, wanted, known: vec!["other files".to_owned()] });
            }
            status @ (401 | 403) => {
                let (hub, repository) = (self.client.endpoint().to_string(), self.repository.to_owned());
                return Err(HubError::NotAllowed { hub, repository, status });
            }
            status => return Err(HubError::Status { url, status }),
        }
        let mut buffer = vec![0; BUFFER];
        while part.bytes < *bytes {
            let room = (bytes - part.bytes).min(buffer.len() as u64) as usize;
            match response.read(&mut buffer[..room]) {
                Ok(0) => {
                    let cut = |url| HubError::Network { url, what: "the connection was cut".to_owned() };
                    return Err(response.finish().err().unwrap_or_else(|| cut(url)));
                }
                Ok(count) => part.push(&buffer[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(HubError::Curl(error)),
            }
            report(part.bytes);
        }
        Ok(())
    }

    /// What is wrong with a file of the right size.
    fn fault(&self, part: &Part<'_>) -> Option<HubError> {
        let expected = self.file.sha256.as_ref()?;
        let found: String = part.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let what = format!("its SHA-256 is {found}, expected {expected}");
        (found != *expected).then(|| HubError::Damaged { file: self.file.name.clone(), what })
    }
}
