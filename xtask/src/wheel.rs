//! `cargo xtask wheel`: the Python package as a wheel that also carries the command `orlop`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo;

/// The oldest systems that a wheel is for: those with this version of glibc
/// ([PEP 600](https://peps.python.org/pep-0600/)).
const BASELINE: (u32, u32) = (2, 34);

/// Builds a wheel in `wheels` in cargo's target folder.
pub(crate) fn run() -> Result<()> {
    let tools = cargo::target().join("tools/python");
    let python = tools.join("bin/python");
    if !python.exists() {
        cargo::run(Command::new("python3").args(["-m", "venv"]).arg(&tools))?;
    }
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "maturin>=1.9,<2", "wheel"];
    cargo::run(Command::new(&python).args(install))?;

    let out = cargo::target().join("wheels");
    let work = out.join("work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let mut maturin = Command::new(tools.join("bin/maturin"));
    maturin.current_dir(cargo::workspace()).args(["build", "--release", "--out"]).arg(&work);
    if cfg!(target_os = "linux") {
        let (major, minor) = BASELINE;
        maturin.args(["--compatibility", &format!("manylinux_{major}_{minor}")]);
    }
    cargo::run(&mut maturin)?;
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-cli", "--features", "cuda"]))?;
    let command = fs::read(cargo::orlop()).context("reading the command")?;
    if cfg!(target_os = "linux") {
        let needed = newest_glibc(&command);
        ensure!(needed <= BASELINE, "the command needs glibc {needed:?}, above the baseline {BASELINE:?}");
    }

    let wheel = only(&work, "whl")?;
    cargo::run(Command::new(&python).args(["-m", "wheel", "unpack", "--dest"]).arg(&work).arg(&wheel))?;
    let unpacked = work.join(format!("orlop-{}", env!("CARGO_PKG_VERSION")));
    let scripts = unpacked.join(format!("orlop-{}.data/scripts", env!("CARGO_PKG_VERSION")));
    fs::create_dir_all(&scripts)?;
    fs::copy(cargo::orlop(), scripts.join("orlop"))?;
    cargo::run(Command::new(&python).args(["-m", "wheel", "pack", "--dest-dir"]).arg(&out).arg(&unpacked))?;
    let _ = fs::remove_dir_all(&work);
    Ok(())
}

/// The only file of a folder with this extension.
fn only(folder: &Path, extension: &str) -> Result<PathBuf> {
    let files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let mut files = files.filter(|path| path.extension().is_some_and(|found| found == extension));
    files.next().with_context(|| format!("there is no .{extension} in {}", folder.display()))
}

/// The newest version of glibc that a program names.
fn newest_glibc(program: &[u8]) -> (u32, u32) {
    const MARK: &[u8] = b"GLIBC_2.";
    let versions = program.windows(MARK.len()).enumerate().filter(|(_, bytes)| *bytes == MARK);
    let minor = versions.filter_map(|(place, _)| {
        let digits = program[place + MARK.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        String::from_utf8(digits.copied().collect()).ok()?.parse().ok()
    });
    (2, minor.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_glibc_is_found() {
        assert_eq!(newest_glibc(b"..GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE"), (2, 34));
        assert_eq!(newest_glibc(b""), (2, 0));
    }
}
