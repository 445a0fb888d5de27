use std::fmt;

use orlop_graph::{Glu, RopeMode, TensorId};

use crate::Error;
use crate::config::Norm;
use crate::draft::{FeedForward, GraphDraft};

mod gpt2;
mod llama;
mod mamba2;

use llama::{Heads, Norms, Style};

/// How a model's layers are wired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 2 and 3, SmolLM, Mistral, TinyLlama; with experts, Mixtral.
    Llama,
    /// Qwen 2 and 2.5.
    Qwen2,
    /// Qwen 3.
    Qwen3,
    /// Qwen 3 with experts.
    Qwen3Moe,
    /// Phi 3 and 4.
    Phi3,
    /// GPT-2.
    Gpt2,
    /// Gemma 3, text only.
    Gemma3,
    /// Mamba 2.
    Mamba2,
}

use Architecture::{Gemma3, Gpt2, Llama, Mamba2, Phi3, Qwen2, Qwen3, Qwen3Moe};

impl Architecture {
    /// All that are known.
    pub const ALL: [Architecture; 8] = [Llama, Qwen2, Qwen3, Qwen3Moe, Phi3, Gpt2, Gemma3, Mamba2];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Llama => "llama",
            Qwen2 => "qwen2",
            Qwen3 => "qwen3",
            Qwen3Moe => "qwen3moe",
            Phi3 => "phi3",
            Gpt2 => "gpt2",
            Gemma3 => "gemma3",
            Mamba2 => "mamba2",
        }
    }

    /// The architecture with a name.
    ///
    /// # Errors
    /// [`Error::UnknownArchitecture`], which lists those known.
    pub fn find(name: &str) -> Result<Architecture, Error> {
        let known = || Architecture::ALL.into_iter();
        known().find(|known| known.name() == name).ok_or_else(|| Error::UnknownArchitecture {
            name: name.to_owned(),
            known: known().map(Architecture::name).collect(),
        })
    }

    pub(crate) fn norm(self) -> Norm {
        match self {
            Gpt2 => Norm::Mean,
            Llama | Qwen2 | Qwen3 | Qwen3Moe | Phi3 | Gemma3 | Mamba2 => Norm::Rms,
        }
    }

    pub(crate) fn rope(self) -> RopeMode {
        match self {
            Llama => RopeMode::Normal,
            Qwen2 | Qwen3 | Qwen3Moe | Phi3 | Gpt2 | Gemma3 | Mamba2 => RopeMode::Neox,
        }
    }

    /// Whether `ffn_*.scale` tensors count. Files may have them without their makers' engine ever using them.
    pub(crate) fn scales_feed_forward(self) -> bool {
        matches!(self, Llama | Qwen3 | Qwen3Moe)
    }

    /// Draws a whole model, from tokens to logits.
    pub(crate) fn build(self, draft: &mut GraphDraft<'_>) -> Result<TensorId, Error> {
        let plain = Style {
            heads: Heads::AsTheyAre,
            norms: Norms::Before,
            feed_forward: FeedForward::Gated(Glu::Silu),
        };
        let style = match self {
            Gpt2 => return gpt2::build(draft),
            Mamba2 => return mamba2::build(draft),
            Llama | Qwen2 => plain,
            Qwen3 | Qwen3Moe => Style { heads: Heads::Normed, ..plain },
            Phi3 => Style { feed_forward: FeedForward::Fused(Glu::Silu), ..plain },
            Gemma3 => Style {
                heads: Heads::Normed,
                norms: Norms::BeforeAndAfter,
                feed_forward: FeedForward::Gated(Glu::Gelu),
            },
        };
        llama::build(draft, style)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
