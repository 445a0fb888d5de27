//! The cache folder that all tools of Hugging Face share: a repository's files by their checksums, and links to them by commit.
//!
//! ```text
//! .locks/models--org--repo/CHECKSUM.lock
//! models--org--repo/blobs/CHECKSUM[.incomplete]
//! models--org--repo/refs/main                      the last known commit
//! models--org--repo/snapshots/COMMIT/file.gguf     -> ../../blobs/CHECKSUM
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::download::Download;
use super::listing::HubFile;
use super::{HubError, HubStage};

/// A repository's folder in the cache.
#[derive(Debug)]
pub(super) struct RepositoryCache {
    folder: PathBuf,
    locks: PathBuf,
}

impl RepositoryCache {
    pub(super) fn new(hub: &Path, repository: &str) -> RepositoryCache {
        let name = format!("models--{}", repository.replace('/', "--"));
        RepositoryCache { folder: hub.join(&name), locks: hub.join(".locks").join(name) }
    }

    fn blob(&self, file: &HubFile) -> PathBuf {
        self.folder.join("blobs").join(&file.blob)
    }

    /// Where a file of a commit is, if it is there.
    pub(super) fn snapshot(&self, commit: &str, name: &str) -> PathBuf {
        name.split('/').fold(self.folder.join("snapshots").join(commit), |path, part| path.join(part))
    }

    /// The last known commit.
    pub(super) fn commit(&self) -> Option<String> {
        let commit = fs::read_to_string(self.folder.join("refs").join("main")).ok()?;
        let commit = commit.trim();
        let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_commit.then(|| commit.to_owned())
    }

    /// Notes the last known commit.
    pub(super) fn remember(&self, commit: &str) -> Result<(), HubError> {
        if self.commit().as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.folder.join("refs").join("main");
        make_folder_of(&path)?;
        in_place(&path, &|part| fs::write(part, commit))
    }

    /// The files of a commit that are there.
    pub(super) fn names(&self, commit: &str) -> Vec<String> {
        let folder = self.folder.join("snapshots").join(commit);
        let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        // Files are at the top, or in a folder for each quantization.
        let each = entries(folder).flat_map(|entry| match entry.path().is_dir() {
            false => vec![name(&entry)],
            true => entries(entry.path()).map(|inner| format!("{}/{}", name(&entry), name(&inner))).collect(),
        });
        each.filter(|name| self.snapshot(commit, name).is_file()).collect()
    }

    /// Makes sure that a file is there.
    pub(super) fn hold(
        &self,
        download: &Download<'_>,
        report: &mut dyn FnMut(HubStage, u64),
    ) -> Result<(), HubError> {
        let Download { file, commit, .. } = *download;
        let (blob, link) = (self.blob(file), self.snapshot(commit, &file.name));
        let is_there = |path: &Path| {
            fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == file.bytes)
        };
        if is_there(&link) {
            return Ok(());
        }
        make_folder_of(&blob)?;
        make_folder_of(&link)?;
        let _lock = self.lock(file, report)?;
        if !is_there(&blob) {
            let part = blob.with_added_extension("incomplete");
            download.complete(&part, &mut |done| report(HubStage::Downloading, done))?;
            fs::rename(&part, &blob).map_err(HubError::cache(&blob))?;
        }
        // Above the folder of the commit is the one of all commits, and above that the repository's.
        let up = "../".repeat(2 + file.name.matches('/').count());
        let target = PathBuf::from(format!("{up}blobs/{}", file.blob));
        in_place(&link, &|part| {
            symlink(&target, part)
                .or_else(|_| fs::hard_link(&blob, part))
                .or_else(|_| fs::copy(&blob, part).map(|_| ()))
        })
    }

    /// Excludes other processes from downloading a file until dropped.
    fn lock(&self, file: &HubFile, report: &mut dyn FnMut(HubStage, u64)) -> Result<File, HubError> {
        let path = self.locks.join(format!("{}.lock", file.blob));
        make_folder_of(&path)?;
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(HubError::cache(&path))?;
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(source)) => return Err(HubError::Cache { path, source }),
            Err(TryLockError::WouldBlock) => report(HubStage::Waiting, 0),
        }
        lock.lock().map_err(HubError::cache(path))?;
        Ok(lock)
    }
}

fn make_folder_of(path: &Path) -> Result<(), HubError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(HubError::cache(folder))
}

/// Makes a file under another name, and renames it: others see it complete or not at all.
fn in_place(path: &Path, make: &dyn Fn(&Path) -> io::Result<()>) -> Result<(), HubError> {
    let part = path.with_added_extension(format!("{}.part", std::process::id()));
    // One of a process that was killed.
    let _ = fs::remove_file(&part);
    let made = make(&part).and_then(|()| fs::rename(&part, path));
    made.map_err(HubError::cache(path))
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}
