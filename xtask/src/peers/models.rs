//! The models to run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::build::folder;
use super::process::{Programs, ask, say};

/// A model and its test sizes.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) prompt: usize,
    pub(super) generate: usize,
}

/// Models of at least this many bytes are measured on fewer tokens.
const LARGE: u64 = 400 << 20;

/// The origin of a model of the default set.
enum Source {
    /// The default model of `orlop`.
    Default,
    /// The default model, quantized to another type.
    Quantized(&'static str),
    /// Random weights.
    Random(&'static str, &'static str),
}

const USUAL: [(&str, Source); 7] = [
    ("SmolLM2-135M Q4_1", Source::Default),
    ("SmolLM2-135M Q4_0", Source::Quantized("Q4_0")),
    ("SmolLM2-135M Q8_0", Source::Quantized("Q8_0")),
    ("SmolLM2-135M F16", Source::Quantized("F16")),
    ("random 1.1B Q4_0", Source::Random("tinyllama-1.1b", "Q4_0")),
    ("random 1.1B Q4_K_M", Source::Random("tinyllama-1.1b", "Q4_K_M")),
    ("random 1.1B Q6_K", Source::Random("tinyllama-1.1b", "Q6_K")),
];

/// The default model's file.
const DEFAULT: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

pub(super) fn names() -> Vec<&'static str> {
    USUAL.iter().map(|(name, _)| *name).collect()
}

/// The selected models of the default set, created once.
pub(super) fn usual(programs: &Programs, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Case>> {
    let models = folder().join("models");
    fs::create_dir_all(&models).with_context(|| format!("making {}", models.display()))?;
    let path = |source: &Source| match source {
        Source::Default => default_model(&programs.ours, &models),
        Source::Quantized(to) => {
            let path = models.join(format!("SmolLM2-135M.{to}.gguf"));
            make_once(&path, || {
                let mut command = Command::new(&programs.ours);
                command.arg("quantize").arg(default_model(&programs.ours, &models)?).arg(&path).arg(to);
                Ok(command)
            })
        }
        Source::Random(preset, to) => {
            let path = models.join(format!("{preset}.{to}.gguf"));
            make_once(&path, || {
                let mut command = Command::new(&programs.ours);
                command.arg("synth").arg(&path).args(["--preset", preset, "--type", to]);
                Ok(command)
            })
        }
    };
    USUAL
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, source)| Case::new((*name).to_owned(), path(source)?))
        .collect()
}

fn make_once(path: &Path, command: impl FnOnce() -> Result<Command>) -> Result<PathBuf> {
    if !path.exists() {
        say(&format!("making {}", path.display()));
        ask(&mut command()?)?;
    }
    Ok(path.to_owned())
}

/// The default model in the cache, or downloaded to the models' folder.
pub(crate) fn default_model(orlop: &Path, models: &Path) -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let kept = [
        Some(models.to_owned()),
        variable("ORLOP_CACHE"),
        variable("XDG_CACHE_HOME").map(|cache| cache.join("orlop")),
        variable("HOME").map(|home| home.join(".cache/orlop")),
        variable("HOME").map(|home| home.join("Library/Caches/orlop")),
        variable("LOCALAPPDATA").map(|cache| cache.join("orlop")),
    ];
    if let Some(path) =
        kept.into_iter().flatten().map(|folder| folder.join(DEFAULT)).find(|path| path.exists())
    {
        return Ok(path);
    }
    say("fetching the default model");
    ask(Command::new(orlop).args(["tokenize", "a word"]).env("ORLOP_CACHE", models))?;
    let path = models.join(DEFAULT);
    ensure!(path.exists(), "the default model was fetched, but not to {}", path.display());
    Ok(path)
}

impl Case {
    fn new(name: String, path: PathBuf) -> Result<Case> {
        let bytes = fs::metadata(&path).with_context(|| format!("looking for {}", path.display()))?.len();
        let (prompt, generate) = if bytes < LARGE { (512, 128) } else { (128, 32) };
        Ok(Case { name, path, prompt, generate })
    }

    /// A model given by path.
    pub(super) fn given(path: &Path) -> Result<Case> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Case::new(name, path.to_owned())
    }
}
