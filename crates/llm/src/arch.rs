//! The architectures that are known.
//!
//! An architecture is a file below with its [`ArchitectureFacts`], and an entry in the list here; what reads metadata,
//! builds graphs or makes random models asks the facts. Names and tensors are those of GGUF files as
//! [llama.cpp](https://github.com/ggml-org/llama.cpp/blob/master/src/llama-arch.cpp) writes them. Tests run every
//! architecture against logits of llama.cpp (`tests/models/arches.rs`).

use std::fmt;

use crate::Error;

mod facts;
mod gemma3;
mod gpt2;
mod llama;
mod mamba2;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3moe;
mod transformer;

pub(crate) use facts::{ArchitectureFacts, EmbeddingScale, ExpertHidden, HeadNorms, LayerNorms, Mixer, Norm};

/// The enum, the list of all, and the facts of each.
macro_rules! architectures {
    ($($(#[$doc:meta])* $name:ident => $file:ident,)*) => {
        /// How a model's layers are wired.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Architecture {
            $($(#[$doc])* $name,)*
        }

        impl Architecture {
            /// All that are known.
            pub const ALL: [Architecture; [$(Architecture::$name),*].len()] = [$(Architecture::$name),*];

            pub(crate) fn facts(self) -> &'static ArchitectureFacts {
                match self {
                    $(Architecture::$name => &$file::FACTS,)*
                }
            }
        }
    };
}

architectures! {
    /// Llama 2 and 3, SmolLM, Mistral, TinyLlama; with experts, Mixtral.
    Llama => llama,
    /// Qwen 2 and 2.5.
    Qwen2 => qwen2,
    /// Qwen 3.
    Qwen3 => qwen3,
    /// Qwen 3 with experts.
    Qwen3Moe => qwen3moe,
    /// Phi 3 and 4.
    Phi3 => phi3,
    /// GPT-2.
    Gpt2 => gpt2,
    /// Gemma 3, text only.
    Gemma3 => gemma3,
    /// Mamba 2.
    Mamba2 => mamba2,
}

impl Architecture {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        self.facts().name
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
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
