//! Adapters: [low-rank changes](https://arxiv.org/abs/2106.09685) of a model's matrices (LoRA), in GGUF files as
//! `convert_lora_to_gguf.py` of llama.cpp writes them. Where the model multiplies with a matrix `W`, an adapter adds
//! `scale * B (A x)`. Its matrices are weights of the graph beside the model's, which stay as they are.

use std::path::Path;
use std::sync::Arc;

use orlop_gguf::{GgufFile, Metadata, TensorInfo};

use crate::{Error, Model};

const KIND: [(&str, &str); 2] = [("general.type", "adapter"), ("adapter.type", "lora")];
const ALPHA: &str = "adapter.lora.alpha";
const INVOCATION: &str = "adapter.alora.invocation_tokens";
/// The endings of the two matrices' names.
pub(crate) const HALVES: [&str; 2] = [".lora_a", ".lora_b"];
pub(crate) const EMBEDDINGS: &str = "token_embd.weight";

/// What is wrong with an adapter.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoraError {
    /// Another kind of file.
    #[error("`{key}` is `{found}`, and `{expected}` in files of adapters")]
    OtherKind {
        /// The key that says so.
        key: &'static str,
        /// Its value; empty if it is missing.
        found: String,
        /// That of an adapter.
        expected: &'static str,
    },
    /// It is for models of another architecture.
    #[error("it is for the architecture `{found}`, and the model is `{model}`")]
    OtherArchitecture {
        /// Of the adapter.
        found: String,
        /// Of the model.
        model: &'static str,
    },
    /// It counts only behind certain tokens.
    #[error("it has `{INVOCATION}`: adapters that tokens turn on are not supported")]
    TurnedOnByTokens,
    /// A number that cannot be.
    #[error("`{key}` is {value}: it must be a finite number")]
    NotFinite {
        /// The key, or what the number is.
        key: &'static str,
        /// The number.
        value: f32,
    },
    /// A tensor that is not half of a change.
    #[error("its tensor `{0}` ends in neither `.lora_a` nor `.lora_b`")]
    NoHalf(String),
    /// There is nothing in it.
    #[error("it has no tensors")]
    Empty,
    /// One matrix without the other.
    #[error("it has no tensor `{0}`, only the other half")]
    MissingHalf(String),
    /// The model has no such tensor, or does not multiply with it.
    #[error("it changes `{0}`, with which the model does not multiply")]
    NoSuchTensor(String),
    /// The output matrix is the table of embeddings.
    #[error("it changes `{EMBEDDINGS}`, which is the model's output matrix, too: this is not supported")]
    TiedEmbeddings,
    /// Its matrices do not fit the model's.
    #[error("it changes `{name}` of {base:?} by {a:?} and {b:?}, which do not fit")]
    Shapes {
        /// The model's tensor.
        name: String,
        /// Its extents.
        base: Vec<u64>,
        /// Those of the first matrix.
        a: Vec<u64>,
        /// Those of the second one.
        b: Vec<u64>,
    },
    /// There is no adapter of this number.
    #[error("there is no adapter {index}: the model has {count}")]
    NoSuchAdapter {
        /// The number.
        index: usize,
        /// How many there are.
        count: usize,
    },
}

impl From<LoraError> for Error {
    fn from(error: LoraError) -> Error {
        Error::Adapter(Box::new(error))
    }
}

/// A file with low-rank changes of a model's matrices ([LoRA](https://arxiv.org/abs/2106.09685)). [`Model::with_adapters`]
/// adds it to a model.
#[derive(Clone, Debug)]
pub struct LoraAdapter {
    file: Arc<GgufFile>,
    /// Divided by the rank, it multiplies the change; 0 for no such factor.
    alpha: f32,
    scale: f32,
}

impl LoraAdapter {
    /// Opens a GGUF file. It must not change while it is in use.
    ///
    /// # Errors
    /// What is wrong with the file; [`Error::Adapter`] for one that is no adapter.
    pub fn open(path: impl AsRef<Path>) -> Result<LoraAdapter, Error> {
        LoraAdapter::from_file(GgufFile::open(path)?)
    }

    /// The adapter in an open file.
    ///
    /// # Errors
    /// As [`LoraAdapter::open`].
    pub fn from_file(file: GgufFile) -> Result<LoraAdapter, Error> {
        let metadata = file.metadata();
        for (key, expected) in KIND {
            let found = metadata.optional(key, Metadata::string)?.unwrap_or_default();
            if found != expected {
                return Err(LoraError::OtherKind { key, found: found.to_owned(), expected }.into());
            }
        }
        if metadata.get(INVOCATION).is_some() {
            return Err(LoraError::TurnedOnByTokens.into());
        }
        let alpha = metadata.optional(ALPHA, Metadata::f32)?.unwrap_or(0.0);
        if !alpha.is_finite() {
            return Err(LoraError::NotFinite { key: ALPHA, value: alpha }.into());
        }
        if file.tensors().is_empty() {
            return Err(LoraError::Empty.into());
        }
        for tensor in file.tensors() {
            let [a, b] = HALVES.map(|half| tensor.name.strip_suffix(half));
            let (name, other) = match (a, b) {
                (Some(name), _) => (name, HALVES[1]),
                (None, Some(name)) => (name, HALVES[0]),
                (None, None) => return Err(LoraError::NoHalf(tensor.name.clone()).into()),
            };
            let other = format!("{name}{other}");
            if file.tensor(&other).is_none() {
                return Err(LoraError::MissingHalf(other).into());
            }
        }
        Ok(LoraAdapter { file: Arc::new(file), alpha, scale: 1.0 })
    }

    /// The same with another factor of its changes. The default is 1; 0 turns it off.
    ///
    /// # Errors
    /// [`Error::Adapter`] for a factor that is no finite number.
    pub fn scaled(self, scale: f32) -> Result<LoraAdapter, Error> {
        Ok(LoraAdapter { scale: finite_scale(scale)?, ..self })
    }

    /// Checks that every change fits a tensor of a model.
    fn check(&self, model: &Model) -> Result<(), Error> {
        let (found, known) =
            (self.file.metadata().string("general.architecture")?, model.config().architecture.name());
        if found != known {
            return Err(LoraError::OtherArchitecture { found: found.to_owned(), model: known }.into());
        }
        for a in self.file.tensors() {
            let Some(name) = a.name.strip_suffix(HALVES[0]) else { continue };
            let base = model.file().tensor(name).ok_or_else(|| LoraError::NoSuchTensor(name.to_owned()))?;
            if name == EMBEDDINGS && model.file().tensor("output.weight").is_none() {
                return Err(LoraError::TiedEmbeddings.into());
            }
            let half = format!("{name}{}", HALVES[1]);
            let b = self.file.tensor(&half).ok_or(LoraError::MissingHalf(half))?;
            if !fits(name, base, a, b) {
                let [base, a, b] = [base, a, b].map(|tensor| tensor.extents().to_vec());
                return Err(LoraError::Shapes { name: name.to_owned(), base, a, b }.into());
            }
        }
        Ok(())
    }
}

pub(crate) fn finite_scale(scale: f32) -> Result<f32, LoraError> {
    match scale.is_finite() {
        true => Ok(scale),
        false => Err(LoraError::NotFinite { key: "the scale", value: scale }),
    }
}

/// Whether `B A` has the extents of a tensor. Of the table of embeddings, rows of A are the tokens'.
fn fits(name: &str, base: &TensorInfo, a: &TensorInfo, b: &TensorInfo) -> bool {
    let [from, into, outer @ ..] = base.desc.extents;
    let [a, b] = [a, b].map(|tensor| tensor.desc.extents);
    let rank = b[0];
    let expected = match name {
        EMBEDDINGS => [[rank, into], [rank, from]],
        _ => [[from, rank], [rank, into]],
    };
    rank > 0 && a[..2] == expected[0] && b[..2] == expected[1] && a[2..] == outer && b[2..] == outer
}

/// What a model knows of an adapter beside its tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AdapterFactors {
    alpha: f32,
    /// What a run multiplies changes with, unless it is told otherwise.
    pub(crate) scale: f32,
}

impl AdapterFactors {
    /// The constant factor of a change of some rank.
    pub(crate) fn of_rank(self, rank: u64) -> f32 {
        if self.alpha == 0.0 { 1.0 } else { self.alpha / rank as f32 }
    }
}

/// Where the tensors of a model's adapter are found: a prefix of their names.
pub(crate) fn prefix(index: usize) -> String {
    format!("adapter.{index}.")
}

/// Adds adapters to a model: its file, and what is known of all of them.
pub(crate) fn joined(
    model: &Model,
    adapters: &[LoraAdapter],
) -> Result<(GgufFile, Vec<AdapterFactors>), Error> {
    let mut file = model.file().clone();
    let mut factors = model.adapters().to_vec();
    for adapter in adapters {
        adapter.check(model)?;
        file = file.joined(&adapter.file, &prefix(factors.len()))?;
        factors.push(AdapterFactors { alpha: adapter.alpha, scale: adapter.scale });
    }
    Ok((file, factors))
}

/// A tensor of the model that an adapter changes, but no graph multiplies with.
pub(crate) fn unused(model: &Model, is_drawn: impl Fn(&str) -> bool) -> Option<&str> {
    (0..model.adapters().len()).map(prefix).find_map(|prefix| {
        let names = model.file().tensors().iter().map(|tensor| tensor.name.as_str());
        names
            .filter(|name| !is_drawn(name))
            .find_map(|name| name.strip_prefix(&prefix)?.strip_suffix(HALVES[0]))
    })
}
