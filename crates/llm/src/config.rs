//! The sizes and constants of a model, read from the metadata of its file and nothing else.

use orlop_gguf::Metadata;
use orlop_graph::Rope;

use crate::arch::{EmbeddingScale, Mixer, Norm};
use crate::{Architecture, Error};

mod keys;

use keys::Keys;

/// The sizes and constants of a model, from its metadata alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How its layers are wired.
    pub architecture: Architecture,
    /// Rows of the embedding table.
    pub vocabulary: u64,
    /// Tokens of the context that it was trained for.
    pub context: u64,
    /// Elements of an embedding.
    pub width: u64,
    /// Elements of a head of queries and keys.
    pub key: u64,
    /// Elements of a head of values.
    pub value: u64,
    /// The sizes of each layer.
    pub layers: Vec<LayerConfig>,
    /// Added under the root of a norm.
    pub epsilon: f32,
    /// Factor of the embeddings.
    pub embedding_scale: f32,
    /// The limit of `limit * tanh(x / limit)` of logits.
    pub logit_cap: Option<f32>,
    /// Factor of queries times keys.
    pub attention_scale: f32,
    /// A mixture of experts in the feed-forward part.
    pub experts: Option<Experts>,
    /// Sizes of state-space mixers, in models without attention.
    pub state_space: Option<StateSpace>,
}

/// Sizes of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerConfig {
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values ([GQA](https://arxiv.org/abs/2305.13245)).
    pub kv_heads: u64,
    /// Elements between the feed-forward products.
    pub hidden: u64,
    /// How positions turn queries and keys ([RoPE](https://arxiv.org/abs/2104.09864)).
    pub rope: Rope,
    /// How many tokens each one sees, itself included, where the attention has a sliding window.
    pub window: Option<u32>,
}

/// Sizes of a state-space mixer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSpace {
    /// Tokens that the convolution sees.
    pub kernel: u64,
    /// Elements of all heads.
    pub inner: u64,
    /// Elements of the state for each element of a head.
    pub state: u64,
    /// Heads.
    pub heads: u64,
    /// Groups of heads that share the B and C of the scan.
    pub groups: u64,
}

impl StateSpace {
    /// Elements that the convolution mixes.
    pub(crate) fn mixed(&self) -> u64 {
        self.groups.saturating_mul(self.state).saturating_mul(2).saturating_add(self.inner)
    }
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// How many there are.
    pub count: u64,
    /// How many a token uses.
    pub used: u64,
    /// Elements between an expert's products.
    pub hidden: u64,
    /// Factor of the experts' weights; 1 for none.
    pub scale: f32,
}

impl Config {
    /// Reads a model's metadata. Keys of `general.architecture`'s own prefix count; 0 and -1 mean "not set" where a
    /// value has a default.
    ///
    /// # Errors
    /// [`Error::UnknownArchitecture`], [`Error::BadKey`], and keys that are missing or of another type.
    pub fn read(metadata: &Metadata) -> Result<Config, Error> {
        let architecture = Architecture::find(metadata.string("general.architecture")?)?;
        let facts = architecture.facts();
        let keys = Keys { metadata, prefix: facts.name };
        let layers = keys.count("block_count")?;
        if layers > MAX_LAYERS {
            return Err(keys.bad("block_count", layers, "it must be at most 4096"));
        }
        let width = keys.count("embedding_length")?;
        let context = keys.count("context_length")?;
        let vocabulary = match keys.optional("vocab_size")? {
            Some(vocabulary) => vocabulary,
            None => metadata.array("tokenizer.ggml.tokens")?.len() as u64,
        };
        let epsilon = match facts.norm {
            Norm::Rms => keys.float("attention.layer_norm_rms_epsilon")?,
            Norm::Mean => keys.float("attention.layer_norm_epsilon")?,
        };
        let mut config = Config {
            architecture,
            vocabulary,
            context,
            width,
            key: 0,
            value: 0,
            layers: vec![LayerConfig::default(); layers as usize],
            epsilon,
            embedding_scale: match facts.embedding_scale {
                EmbeddingScale::One => 1.0,
                EmbeddingScale::RootOfWidth => (width as f32).sqrt(),
            },
            logit_cap: None,
            attention_scale: 0.0,
            experts: None,
            state_space: None,
        };
        if facts.mixer == Mixer::StateSpace {
            config.state_space = Some(keys.state_space()?);
            return Ok(config);
        }
        config.layers = keys.heads(layers)?;
        let LayerConfig { heads, hidden, .. } =
            *config.layers.first().ok_or_else(|| keys.bad("block_count", 0, "a model has layers"))?;
        config.key = keys.head("attention.key_length", width / heads, &config.layers)?;
        config.value = keys.head("attention.value_length", width / heads, &config.layers)?;
        config.experts = keys.experts(facts.expert_hidden, hidden)?;
        let rope = keys.rope(facts.rope, config.key, context)?;
        config.layers.iter_mut().for_each(|layer| layer.rope = rope);
        if facts.caps_logits {
            config.logit_cap = keys.set_float("final_logit_softcapping")?;
        }
        if facts.has_windows {
            keys.windows(&mut config.layers)?;
        }
        let scaled_by = if facts.scaled_by_width_at == Some(layers) { width / heads } else { config.key };
        let scale = keys.set_float("attention.scale")?;
        config.attention_scale = scale.unwrap_or(1.0 / (scaled_by as f32).sqrt());
        Ok(config)
    }
}

/// Maximum of layers; a larger number is taken for an error.
const MAX_LAYERS: u64 = 4096;
