//! `cargo xtask test-arm`: the CPU device's tests on 64-bit ARM, under an emulator where this machine is another one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{cargo, packages};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const TESTS: [&str; 4] = ["test", "--tests", "--package", "orlop-cpu"];
/// Where Debian's libraries for programs of that kind lie.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// Debian's compiler of our age, and what brings the standard library for another kind of machine.
const COMPILER: &str = "rustc-web";
const STANDARD_LIBRARY: &str = "libstd-rust-web-dev:arm64";

pub(crate) fn run() -> Result<()> {
    if std::env::consts::ARCH == "aarch64" {
        return cargo::run(&mut cargo::cargo(&TESTS));
    }
    ensure!(cfg!(target_os = "linux"), "the emulator is set up for Linux only");
    let needed: [packages::Needed<'_>; 3] = [
        ("gcc-aarch64-linux-gnu", &|| packages::runs("aarch64-linux-gnu-gcc", "--version")),
        ("libc6-dev-arm64-cross", &|| Path::new(LIBRARIES).join("lib/libc.so.6").exists()),
        ("qemu-user", &|| packages::runs("qemu-aarch64", "--version")),
    ];
    packages::install(&needed, "`test-arm`")?;
    // Built by another compiler, maybe, so in a folder of its own.
    let folder = cargo::target().join("arm");
    let mut command = cargo::cargo(&TESTS);
    command.args(["--target", TARGET]).env("CARGO_TARGET_DIR", &folder);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    let emulator = format!("qemu-aarch64 -cpu max -L {LIBRARIES}");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", emulator);
    if !has_standard_library("rustc", None) && !rustup_adds_it() {
        let sysroot = debian(&folder)?;
        command.env("RUSTC", "/usr/bin/rustc");
        command.env("RUSTFLAGS", format!("--sysroot {}", sysroot.display()));
    }
    cargo::run(&mut command)
}

/// Whether a compiler has the standard library for the target, in its own folder or in another one.
fn has_standard_library(compiler: &str, sysroot: Option<&Path>) -> bool {
    let mut command = Command::new(compiler);
    command.args(["--print", "target-libdir", "--target", TARGET]);
    if let Some(sysroot) = sysroot {
        command.arg("--sysroot").arg(sysroot);
    }
    let Ok(output) = command.output() else { return false };
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let is_core = |name: &str| name.starts_with("libcore-") && name.ends_with(".rlib");
    let mut files = folder.read_dir().into_iter().flatten().flatten();
    files.any(|file| file.file_name().to_str().is_some_and(is_core))
}

fn rustup_adds_it() -> bool {
    let added = Command::new("rustup").args(["target", "add", TARGET]).status();
    added.is_ok_and(|status| status.success()) && has_standard_library("rustc", None)
}

/// Debian's compiler, with a standard library that is unpacked beside what is built; gives its folder.
fn debian(folder: &Path) -> Result<PathBuf> {
    packages::install(&[(COMPILER, &|| packages::runs("/usr/bin/rustc", "--version"))], "`test-arm`")?;
    let (unpacked, sysroot) = (folder.join("std"), folder.join("std/usr"));
    if !has_standard_library("/usr/bin/rustc", Some(&sysroot)) {
        eprintln!("xtask: {STANDARD_LIBRARY} is downloaded and unpacked into {}", unpacked.display());
        std::fs::create_dir_all(&unpacked).with_context(|| format!("making {}", unpacked.display()))?;
        let steps = "dpkg --add-architecture arm64 && apt-get update && rm -f ./*.deb && \
                     apt-get download \"$0\" && dpkg -x ./*.deb .";
        let status = Command::new("sh").args(["-c", steps, STANDARD_LIBRARY]).current_dir(&unpacked).status();
        ensure!(
            status.is_ok_and(|status| status.success())
                && has_standard_library("/usr/bin/rustc", Some(&sysroot)),
            "there is no standard library for {TARGET}: `rustup target add {TARGET}` brings it"
        );
    }
    Ok(sysroot)
}
