//! The architectures that are known, as values.
//!
//! An architecture is a constant with its [`Facts`] in one of the files below, and an entry in [`Architecture::ALL`]. What
//! reads metadata, builds graphs or makes random models asks the facts. Names and tensors are those of GGUF files as
//! [llama.cpp](https://github.com/ggml-org/llama.cpp/blob/master/src/llama-arch.cpp) writes them. Tests run every
//! architecture against logits of llama.cpp (`tests/models/arches.rs`).

use std::fmt;

use crate::Error;

mod dense;
mod encoders;
mod experts;
mod facts;
mod states;

pub(crate) use facts::{
    AttentionGate, Classifier, ExpertHidden, ExpertRules, Facts, HeadNorms, LayerNorms, Mixers, Norm,
    Positions, Residual, Scales, Turned, WindowRules,
};

/// How a model's layers are wired.
#[derive(Clone, Copy)]
pub struct Architecture(&'static Facts);

impl Architecture {
    /// All that are known.
    pub const ALL: &'static [Architecture] = &[
        Architecture(&dense::LLAMA),
        Architecture(&dense::SMOLLM3),
        Architecture(&dense::MISTRAL3),
        Architecture(&dense::INTERNLM2),
        Architecture(&dense::ERNIE4_5),
        Architecture(&dense::DECI),
        Architecture(&dense::XVERSE),
        Architecture(&dense::ARCEE),
        Architecture(&dense::GRANITE),
        Architecture(&dense::MINICPM),
        Architecture(&dense::QWEN2),
        Architecture(&dense::EXAONE),
        Architecture(&dense::ORION),
        Architecture(&dense::QWEN2VL),
        Architecture(&dense::SEED_OSS),
        Architecture(&dense::QWEN3),
        Architecture(&dense::QWEN3VL),
        Architecture(&dense::HUNYUAN_DENSE),
        Architecture(&dense::PHI3),
        Architecture(&dense::GLM4),
        Architecture(&dense::OLMO2),
        Architecture(&dense::EXAONE4),
        Architecture(&dense::COMMAND_R),
        Architecture(&dense::COHERE2),
        Architecture(&dense::MUSE_GLIMMER),
        Architecture(&dense::STABLELM),
        Architecture(&dense::GPT2),
        Architecture(&dense::STARCODER),
        Architecture(&dense::STARCODER2),
        Architecture(&dense::NEMOTRON),
        Architecture(&dense::GPTNEOX),
        Architecture(&dense::PHI2),
        Architecture(&dense::GEMMA),
        Architecture(&dense::GEMMA2),
        Architecture(&dense::GEMMA3),
        Architecture(&dense::GEMMA4),
        Architecture(&experts::QWEN3MOE),
        Architecture(&experts::QWEN3VLMOE),
        Architecture(&experts::QWEN2MOE),
        Architecture(&experts::OLMOE),
        Architecture(&experts::GRANITEMOE),
        Architecture(&experts::HUNYUAN_MOE),
        Architecture(&experts::ERNIE4_5_MOE),
        Architecture(&experts::GLM4MOE),
        Architecture(&experts::MINIMAX_M2),
        Architecture(&experts::GPT_OSS),
        Architecture(&experts::LLAMA4),
        Architecture(&experts::DOTS1),
        Architecture(&experts::DEEPSEEK),
        Architecture(&experts::DEEPSEEK2),
        Architecture(&experts::MISTRAL4),
        Architecture(&states::MAMBA),
        Architecture(&states::MAMBA2),
        Architecture(&states::JAMBA),
        Architecture(&states::GRANITEHYBRID),
        Architecture(&states::FALCON_H1),
        Architecture(&states::NEMOTRON_H),
        Architecture(&states::NEMOTRON_H_MOE),
        Architecture(&states::LFM2),
        Architecture(&states::LFM2MOE),
        Architecture(&states::QWEN35),
        Architecture(&states::QWEN35MOE),
        Architecture(&states::QWEN3NEXT),
        Architecture(&states::RWKV7),
        Architecture(&encoders::BERT),
        Architecture(&encoders::NOMIC_BERT),
        Architecture(&encoders::JINA_BERT_V2),
        Architecture(&encoders::MODERN_BERT),
        Architecture(&encoders::GEMMA_EMBEDDING),
    ];

    /// The architecture of most models.
    pub const LLAMA: Architecture = Architecture(&dense::LLAMA);

    pub(crate) fn facts(self) -> &'static Facts {
        self.0
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Well-known models of it.
    pub fn models(self) -> &'static str {
        self.0.models
    }

    /// The architecture with a name.
    ///
    /// # Errors
    /// [`Error::UnknownArchitecture`], which names the nearest known one.
    pub fn find(name: &str) -> Result<Architecture, Error> {
        let known = || Architecture::ALL.iter().copied();
        known().find(|known| known.name() == name).ok_or_else(|| {
            let nearest =
                known().map(Architecture::name).min_by_key(|known| strsim::levenshtein(name, known));
            Error::UnknownArchitecture { name: name.to_owned(), nearest: nearest.unwrap_or_default() }
        })
    }
}

impl PartialEq for Architecture {
    fn eq(&self, other: &Architecture) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Architecture {}

impl fmt::Debug for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
