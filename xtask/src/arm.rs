//! `cargo xtask test --on arm`: the CPU device's tests on 64-bit ARM, under QEMU on other machines.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::{cargo, packages};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const TESTS: [&str; 4] = ["test", "--tests", "--package", "orlop-cpu"];
/// Debian's folder of libraries for the target.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

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
    packages::install(&needed, "`test --on arm`")?;
    let library = has_standard_library() || packages::succeeds("rustup", &["target", "add", TARGET]);
    ensure!(library, "the compiler has no standard library for {TARGET}, and rustup cannot add it");
    let mut command = cargo::cargo(&TESTS);
    command.args(["--target", TARGET]);
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    let emulator = format!("qemu-aarch64 -cpu max -L {LIBRARIES}");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", emulator);
    cargo::run(&mut command)
}

/// Whether the compiler has the standard library for the target.
fn has_standard_library() -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists())
}
