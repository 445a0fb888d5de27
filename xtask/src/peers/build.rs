//! Builds both programs, and checks that llama.cpp uses all CPU features.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::process::{Programs, ask, say};
use crate::{cargo, packages};

const MANIFEST: &str = include_str!("../../peers/manifest.toml");
const SOURCES: [(&str, &str); 1] = [("main.rs", include_str!("../../peers/main.rs"))];

/// The folder for llama.cpp and for models.
pub(crate) fn folder() -> PathBuf {
    cargo::target().join("peers")
}

pub(crate) fn orlop() -> Result<PathBuf> {
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-cli"]))?;
    Ok(cargo::orlop())
}

/// Builds llama.cpp for this machine in a separate project.
pub(super) fn llama_cpp(jobs: Option<usize>) -> Result<PathBuf> {
    let release = Project { folder: folder(), manifest: MANIFEST, sources: &SOURCES }.build(jobs)?;
    Ok(release.join(format!("peers{}", std::env::consts::EXE_SUFFIX)))
}

/// A project outside of the workspace that uses llama.cpp.
pub(crate) struct Project<'a> {
    /// Its folder.
    pub(crate) folder: PathBuf,
    pub(crate) manifest: &'a str,
    /// File names and contents.
    pub(crate) sources: &'a [(&'a str, &'a str)],
}

impl Project<'_> {
    /// Writes and builds it; returns the build folder.
    pub(crate) fn build(&self, jobs: Option<usize>) -> Result<PathBuf> {
        let source = self.folder.join("src");
        fs::create_dir_all(&source).with_context(|| format!("making {}", source.display()))?;
        write_if_changed(self.folder.join("Cargo.toml"), self.manifest)?;
        for (name, text) in self.sources {
            write_if_changed(source.join(name), text)?;
        }
        let needed: [packages::Needed<'_>; 3] = [
            ("cmake", &|| packages::runs("cmake", "--version")),
            ("clang", &|| packages::runs("clang", "--version")),
            ("libclang-dev", &|| std::env::var_os("LIBCLANG_PATH").is_some() || libclang()),
        ];
        packages::install(&needed, "building llama.cpp")?;
        say("llama.cpp is built if it is not there yet, which takes minutes");
        let target = self.folder.join("target");
        let mut build = cargo::cargo(&["build", "--release"]);
        build.current_dir(&self.folder).env("CARGO_TARGET_DIR", &target);
        // Without `native` it is built for machines that have no AVX-512.
        build.env("RUSTFLAGS", "-C target-cpu=native").env_remove("CARGO_ENCODED_RUSTFLAGS");
        if let Some(jobs) = jobs {
            build.arg(format!("-j{jobs}")).env("CMAKE_BUILD_PARALLEL_LEVEL", jobs.to_string());
        }
        cargo::run(&mut build)?;
        Ok(target.join("release"))
    }
}

/// Writes a file unless it is up to date, which avoids a rebuild.
fn write_if_changed(path: PathBuf, text: &str) -> Result<()> {
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// Whether libclang's development package is installed in the usual folders.
fn libclang() -> bool {
    let folders = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    let llvm = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path().join("lib"));
    let is_library = |name: &str| name.starts_with("libclang.so") || name.starts_with("libclang-");
    folders.iter().map(PathBuf::from).chain(llvm).any(|folder| {
        let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.any(|entry| {
            entry.file_name().to_str().is_some_and(|name| is_library(name) && !name.contains("cpp"))
        })
    }) || cfg!(target_os = "macos")
}

/// The CPU features that llama.cpp reports; they must include all that matter of this CPU.
pub(super) fn check_features(programs: &Programs) -> Result<String> {
    let answer = ask(Command::new(&programs.theirs).arg("info"))?.json()?;
    let system =
        answer["system"].as_str().context("llama.cpp says nothing about the system")?.trim().to_owned();
    let lists = |name: &str| system.split(['|', ':']).any(|feature| feature.trim() == format!("{name} = 1"));
    let unused: Vec<&str> =
        features().into_iter().filter(|(name, there)| *there && !lists(name)).map(|(name, _)| name).collect();
    if !unused.is_empty() {
        let unused = unused.join(", ");
        bail!(
            "this build of llama.cpp leaves {unused} of this CPU unused, a comparison would not be fair: {system}"
        );
    }
    say(&format!("llama.cpp: {system}"));
    Ok(system)
}

/// llama.cpp's names of CPU features, and whether this CPU has them.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<(&'static str, bool)> {
    vec![
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("FMA", is_x86_feature_detected!("fma")),
        ("F16C", is_x86_feature_detected!("f16c")),
        ("BMI2", is_x86_feature_detected!("bmi2")),
        ("AVX_VNNI", is_x86_feature_detected!("avxvnni")),
        ("AVX512", is_x86_feature_detected!("avx512f")),
        ("AVX512_VBMI", is_x86_feature_detected!("avx512vbmi")),
        ("AVX512_VNNI", is_x86_feature_detected!("avx512vnni")),
        ("AVX512_BF16", is_x86_feature_detected!("avx512bf16")),
    ]
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<(&'static str, bool)> {
    vec![
        ("NEON", std::arch::is_aarch64_feature_detected!("neon")),
        ("DOTPROD", std::arch::is_aarch64_feature_detected!("dotprod")),
        ("MATMUL_INT8", std::arch::is_aarch64_feature_detected!("i8mm")),
        ("SVE", std::arch::is_aarch64_feature_detected!("sve")),
    ]
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<(&'static str, bool)> {
    Vec::new()
}
