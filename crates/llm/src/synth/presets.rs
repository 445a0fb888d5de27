use super::Synth;
use crate::Experts;

impl Synth {
    /// Names that [`Synth::preset`] knows.
    pub const PRESETS: [&'static str; 4] = ["smollm2-135m", "tinyllama-1.1b", "llama-7b", "moe-small"];

    /// A model of the dimensions of one that people use.
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
                experts: Some(Experts { count: 8, used: 2, hidden: 1792, scale: 1.0 }),
                rope_base: 1_000_000.0,
                ..base
            },
            _ => return None,
        })
    }
}
