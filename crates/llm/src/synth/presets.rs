//! Random models with the dimensions of known ones.

use super::Synth;
use crate::{Architecture, Experts, StateSpace};

impl Synth {
    /// Names that [`Synth::preset`] knows.
    pub const PRESETS: [&'static str; 13] = [
        "smollm2-135m",
        "tinyllama-1.1b",
        "llama-7b",
        "llama-70b",
        "llama-405b",
        "moe-small",
        "qwen3-30b-a3b",
        "qwen2.5-0.5b",
        "qwen3-0.6b",
        "gemma3-270m",
        "phi3-small",
        "gpt2-124m",
        "mamba2-130m",
    ];

    /// A random model with the dimensions of a known one.
    pub fn preset(name: &str) -> Option<Synth> {
        let base = Synth { name: format!("{name} with random weights"), ..Synth::default() };
        Some(match name {
            "smollm2-135m" => Synth {
                layers: 30,
                width: 576,
                heads: 9,
                kv_heads: 3,
                key: 64,
                value: 64,
                hidden: 1536,
                vocabulary: 49_152,
                context: 8192,
                tied: true,
                rope_base: 100_000.0,
                ..base
            },
            "tinyllama-1.1b" => Synth {
                layers: 22,
                width: 2048,
                heads: 32,
                kv_heads: 4,
                key: 64,
                value: 64,
                hidden: 5632,
                vocabulary: 32_000,
                context: 2048,
                ..base
            },
            "llama-7b" => Synth {
                layers: 32,
                width: 4096,
                heads: 32,
                kv_heads: 32,
                key: 128,
                value: 128,
                hidden: 11_008,
                vocabulary: 32_000,
                context: 4096,
                ..base
            },
            "llama-70b" => Synth {
                layers: 80,
                width: 8192,
                heads: 64,
                kv_heads: 8,
                key: 128,
                value: 128,
                hidden: 28_672,
                vocabulary: 128_256,
                context: 131_072,
                rope_base: 500_000.0,
                ..base
            },
            "llama-405b" => Synth {
                layers: 126,
                width: 16_384,
                heads: 128,
                kv_heads: 8,
                key: 128,
                value: 128,
                hidden: 53_248,
                vocabulary: 128_256,
                context: 131_072,
                rope_base: 500_000.0,
                ..base
            },
            // Mixtral's shape at a size that fits any machine: 0.8 G weights, of which a token uses a third.
            "moe-small" => Synth {
                layers: 16,
                width: 1024,
                heads: 16,
                kv_heads: 4,
                key: 64,
                value: 64,
                hidden: 1792,
                vocabulary: 32_000,
                context: 4096,
                experts: Some(Experts { count: 8, used: 2, hidden: 1792, ..Experts::default() }),
                rope_base: 1_000_000.0,
                ..base
            },
            "qwen3-30b-a3b" => Synth {
                architecture: Architecture::find("qwen3moe").ok()?,
                layers: 48,
                width: 2048,
                heads: 32,
                kv_heads: 4,
                key: 128,
                value: 128,
                hidden: 6144,
                vocabulary: 151_936,
                context: 40_960,
                experts: Some(Experts { count: 128, used: 8, hidden: 768, ..Experts::default() }),
                head_norms: true,
                epsilon: 1e-6,
                rope_base: 1_000_000.0,
                ..base
            },
            "qwen2.5-0.5b" => Synth {
                architecture: Architecture::find("qwen2").ok()?,
                layers: 24,
                width: 896,
                heads: 14,
                kv_heads: 2,
                key: 64,
                value: 64,
                hidden: 4864,
                vocabulary: 151_936,
                context: 32_768,
                tied: true,
                biases: true,
                epsilon: 1e-6,
                rope_base: 1_000_000.0,
                ..base
            },
            "qwen3-0.6b" => Synth {
                architecture: Architecture::find("qwen3").ok()?,
                layers: 28,
                width: 1024,
                heads: 16,
                kv_heads: 8,
                key: 128,
                value: 128,
                hidden: 3072,
                vocabulary: 151_936,
                context: 40_960,
                tied: true,
                head_norms: true,
                epsilon: 1e-6,
                rope_base: 1_000_000.0,
                ..base
            },
            "gemma3-270m" => Synth {
                architecture: Architecture::find("gemma3").ok()?,
                layers: 18,
                width: 640,
                heads: 4,
                kv_heads: 1,
                key: 256,
                value: 256,
                hidden: 2048,
                vocabulary: 262_144,
                context: 32_768,
                tied: true,
                head_norms: true,
                epsilon: 1e-6,
                rope_base: 1_000_000.0,
                metadata: vec![("gemma3.attention.sliding_window".to_owned(), 512u32.into())],
                ..base
            },
            // Phi 3's shape at a tenth of its size.
            "phi3-small" => Synth {
                architecture: Architecture::find("phi3").ok()?,
                layers: 12,
                width: 1024,
                heads: 16,
                kv_heads: 16,
                key: 64,
                value: 64,
                hidden: 2816,
                vocabulary: 32_064,
                context: 4096,
                ..base
            },
            "gpt2-124m" => Synth {
                architecture: Architecture::find("gpt2").ok()?,
                layers: 12,
                width: 768,
                heads: 12,
                kv_heads: 12,
                key: 64,
                value: 64,
                hidden: 3072,
                vocabulary: 50_257,
                context: 1024,
                tied: true,
                biases: true,
                ..base
            },
            "mamba2-130m" => Synth {
                architecture: Architecture::find("mamba2").ok()?,
                layers: 24,
                width: 768,
                vocabulary: 50_288,
                context: 1 << 20,
                tied: true,
                state_space: Some(StateSpace { kernel: 4, inner: 1536, state: 128, heads: 24, groups: 1 }),
                ..base
            },
            _ => return None,
        })
    }
}
