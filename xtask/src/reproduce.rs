//! `cargo xtask reproduce`: a release build in two folders gives the same program, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo;

const PACKAGE: &str = "orlop-cli";
const PROGRAM: &str = "orlop";

/// What is built twice.
#[derive(Args, Debug)]
pub(crate) struct Reproduce {
    /// The package.
    #[arg(long, value_name = "NAME", default_value = PACKAGE)]
    package: String,
    /// Its program.
    #[arg(long, value_name = "NAME", default_value = PROGRAM)]
    program: String,
}

impl Default for Reproduce {
    fn default() -> Reproduce {
        Reproduce { package: PACKAGE.to_owned(), program: PROGRAM.to_owned() }
    }
}

/// Builds a program from two copies of the sources, each in a build folder of its own, and compares the results.
pub(crate) fn run(arguments: &Reproduce) -> Result<()> {
    let files = tracked()?;
    let folder = cargo::target().join("reproduce");
    // Names of other lengths, so that paths in a program would move what is behind them.
    let [one, two] = ["one", "another"].map(|name| build(arguments, &files, &folder.join(name)));
    let (one, two) = (one?, two?);
    let read = |path: &PathBuf| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let (left, right) = (read(&one)?, read(&two)?);
    let at = first_difference(&left, &right);
    ensure!(at.is_none(), "{} and {} differ at byte {}", one.display(), two.display(), at.unwrap_or(0));
    println!("{}: {} bytes, the same twice", arguments.program, left.len());
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))
}

/// The files of the sources.
fn tracked() -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    let listed =
        git.current_dir(cargo::workspace()).args(["ls-files", "-z"]).output().context("starting git")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).context("reading names of files")?;
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect())
}

/// Builds the program below a folder, and returns its path.
fn build(arguments: &Reproduce, files: &[PathBuf], folder: &Path) -> Result<PathBuf> {
    let (sources, target) = (folder.join("sources"), folder.join("target"));
    for file in files {
        let (from, to) = (cargo::workspace().join(file), sources.join(file));
        fs::create_dir_all(to.parent().unwrap_or(&sources))
            .with_context(|| format!("making {}", to.display()))?;
        fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let remapped = [(Some(sources.clone()), "/orlop"), (Some(target.clone()), "/target"), (home, "/cargo")];
    let flags: Vec<String> = remapped
        .into_iter()
        .filter_map(|(path, name)| Some(format!("--remap-path-prefix={}={name}", path?.display())))
        .collect();
    let mut command = cargo::cargo(&["build", "--release", "--locked", "--package", &arguments.package]);
    command.current_dir(&sources).env("CARGO_TARGET_DIR", &target);
    // Separated by this character, paths may have spaces.
    cargo::run(command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")))?;
    Ok(target.join("release").join(format!("{}{}", arguments.program, std::env::consts::EXE_SUFFIX)))
}

/// The first byte in which two files differ.
fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    let differs = left.iter().zip(right).position(|(left, right)| left != right);
    differs.or((left.len() != right.len()).then_some(left.len().min(right.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_differ_at_a_byte_or_where_one_ends() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"axc"), Some(1));
        assert_eq!(first_difference(b"ab", b"abc"), Some(2));
    }
}
