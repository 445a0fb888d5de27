//! The excerpts of ggml's API in the guide, compiled with ggml and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;

/// Programs around the excerpts, in the order of the page. The first needs ggml of 2023.
const PROGRAMS: [&str; 4] = [
    include_str!("../ggml/excerpts/0.c"),
    include_str!("../ggml/excerpts/1.c"),
    include_str!("../ggml/excerpts/2.c"),
    include_str!("../ggml/excerpts/3.c"),
];
const FETCHED: &str = include_str!("../ggml/excerpts/fetched.toml");

/// Compiles and runs all of them, against the libraries of a project that uses llama.cpp.
pub(crate) fn run(project: &Path, libraries: &Path) -> Result<()> {
    let folder = project.join("excerpts");
    fs::create_dir_all(folder.join("src"))?;
    let page = fs::read_to_string(cargo::workspace().join("docs/src/guide/from-ggml.md"))?;
    let excerpts: Vec<&str> =
        page.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    ensure!(excerpts.len() == PROGRAMS.len(), "the page has {} excerpts of ggml's API", excerpts.len());
    let headers = source(project, "llama-cpp-sys-2")?.join("llama.cpp/ggml/include");
    for (number, (excerpt, program)) in excerpts.iter().zip(PROGRAMS).enumerate() {
        let file = folder.join(format!("{number}.c"));
        fs::write(folder.join(format!("{number}.inc")), excerpt)?;
        fs::write(&file, program)?;
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-D_GNU_SOURCE"]).arg(&file).arg("-o").arg(folder.join(number.to_string()));
        if number == 0 {
            let early = early(&folder)?;
            compile.arg("-I").arg(&early).args(["ggml.c", "ggml-alloc.c"].map(|name| early.join(name)));
            compile.args(["-lm", "-lpthread"]);
        } else {
            compile.arg("-I").arg(&headers).arg("-L").arg(libraries);
            compile.args(["-lggml", "-lggml-cpu", "-lggml-base"]);
        }
        cargo::run(&mut compile)?;
        let mut program = Command::new(folder.join(number.to_string()));
        let output = program.env("LD_LIBRARY_PATH", libraries).stderr(Stdio::inherit()).output()?;
        print!("excerpt {number} of the guide, with ggml   {}", String::from_utf8_lossy(&output.stdout));
        ensure!(output.status.success(), "excerpt {number} of the guide gives something else with ggml");
    }
    Ok(())
}

/// The folder with ggml's sources of 2023, which is fetched once.
fn early(folder: &Path) -> Result<PathBuf> {
    fs::write(folder.join("Cargo.toml"), FETCHED)?;
    fs::write(folder.join("src/lib.rs"), "")?;
    Ok(source(folder, "whisper-rs-sys")?.join("whisper.cpp"))
}

/// The folder of the sources of a package that a project depends on.
fn source(project: &Path, package: &str) -> Result<PathBuf> {
    let mut metadata = cargo::cargo(&["metadata", "--format-version", "1"]);
    let output = metadata.current_dir(project).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "cargo metadata failed in {}", project.display());
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("metadata without packages")?;
    let found = packages.iter().find(|found| found["name"] == package);
    let manifest = found.and_then(|found| found["manifest_path"].as_str());
    let manifest = manifest.with_context(|| format!("{} does not use {package}", project.display()))?;
    Ok(Path::new(manifest).parent().unwrap_or(Path::new("/")).to_owned())
}
