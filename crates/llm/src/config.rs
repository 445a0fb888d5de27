//! The sizes and constants of a model, read from the metadata of its file and nothing else.

use orlop_gguf::Metadata;
use orlop_graph::Rope;

use crate::arch::{Mixers, Norm, Positions, Residual};
use crate::draft::FeedForward;
use crate::{Architecture, Error, Pooling};

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
    /// What each layer does, and its sizes.
    pub layers: Vec<LayerConfig>,
    /// Added under the root of a norm.
    pub epsilon: f32,
    /// Factor of the embeddings.
    pub embedding_scale: f32,
    /// Factor of what each part adds to the residual.
    pub residual_scale: f32,
    /// Factor of the logits, before the limit.
    pub logit_scale: f32,
    /// Attention and the feed-forward part both work on a layer's input.
    pub parallel: bool,
    /// The limit of `limit * tanh(x / limit)` of attention scores.
    pub attention_cap: Option<f32>,
    /// Tokens see those behind them, too: the model makes embeddings, and no text.
    pub bidirectional: bool,
    /// What stands for a text, if the file says it.
    pub pooling: Option<Pooling>,
    /// Blocks behind the layers that predict further tokens, and are not run.
    pub skipped_blocks: u64,
    /// The limit of `limit * tanh(x / limit)` of logits.
    pub logit_cap: Option<f32>,
    /// Factor of queries times keys.
    pub attention_scale: f32,
    /// What the feed-forward part is made of.
    pub(crate) feed_forward: FeedForward,
    /// A mixture of experts in the feed-forward part.
    pub experts: Option<Experts>,
    /// Sizes of state-space mixers.
    pub state_space: Option<StateSpace>,
    /// Elements of the embedding that each token has for each layer; 0 for none.
    pub layer_embedding: u64,
    /// State-space mixers norm their steps, B and C, without a weight.
    pub norms_steps: bool,
    /// Tokens that short convolutions see.
    pub short_convolution: Option<u64>,
    /// Sizes of latent attention.
    pub latent: Option<Latent>,
    /// Queries grow with their position.
    pub query_growth: Option<QueryGrowth>,
}

/// What one layer does, and its sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerConfig {
    /// What mixes tokens.
    pub mixer: Mixer,
    /// What comes behind that.
    pub feed: Feed,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values ([GQA](https://arxiv.org/abs/2305.13245)).
    pub kv_heads: u64,
    /// Elements of a head of queries and keys.
    pub key: u64,
    /// Elements of a head of values.
    pub value: u64,
    /// Elements between the feed-forward products.
    pub hidden: u64,
    /// How positions turn queries and keys ([RoPE](https://arxiv.org/abs/2104.09864)), if they do.
    pub rope: Option<Rope>,
    /// How many tokens each one sees, itself included, where the attention has a sliding window.
    pub window: Option<u32>,
    /// The layer before whose keys and values it uses, where it has none of its own.
    pub shares: Option<usize>,
}

/// What mixes the tokens of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mixer {
    /// Attention, which keeps keys and values of each token.
    #[default]
    Attention,
    /// A single matrix, `attn_output`.
    Linear,
    /// The layer has no such part.
    Nothing,
    /// A [selective state space](https://arxiv.org/abs/2405.21060) as in Mamba 2, which keeps a state of each sequence.
    StateSpace,
    /// The selective state space of [Mamba 1](https://arxiv.org/abs/2312.00752).
    Mamba1,
    /// A convolution over the last few tokens, with gates before and behind it ([LFM 2](https://arxiv.org/abs/2511.23404)).
    ShortConvolution,
    /// Attention and a state space of the same input, added.
    Both,
    /// [Latent attention](https://arxiv.org/abs/2405.04434), which keeps one small row of each token.
    Latent,
    /// A [gated delta net](https://arxiv.org/abs/2412.06464), which keeps a matrix of each head.
    DeltaNet,
    /// The time mix of [RWKV 7](https://arxiv.org/abs/2503.14456), which keeps a matrix of each head.
    TimeMix,
}

impl Mixer {
    fn attends(self) -> bool {
        matches!(self, Mixer::Attention | Mixer::Both | Mixer::Latent)
    }

    fn keeps_state(self) -> bool {
        match self {
            Mixer::Attention | Mixer::Linear | Mixer::Nothing | Mixer::Latent => false,
            Mixer::StateSpace
            | Mixer::Mamba1
            | Mixer::ShortConvolution
            | Mixer::Both
            | Mixer::DeltaNet
            | Mixer::TimeMix => true,
        }
    }
}

/// Sizes of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Elements of the row that queries are made from, if they are.
    pub query: Option<u64>,
    /// Elements of the row that keys and values are made from.
    pub rank: u64,
    /// Elements of a head of queries that positions do not turn.
    pub fixed: u64,
    /// Elements of a head of queries, and of the one key, that positions turn.
    pub turned: u64,
    /// Elements of a head of values.
    pub value: u64,
    /// The rows are cached, and keys and values are not made from them: files have `attn_k_b` and `attn_v_b`.
    pub absorbed: bool,
}

/// Queries are multiplied with `1 + scale * ln(1 + floor((position + offset) / length))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryGrowth {
    /// How fast they grow.
    pub scale: f32,
    /// Positions of a step.
    pub length: u32,
    /// Added to positions.
    pub offset: u32,
    /// Only in layers in which positions do not turn queries.
    pub unturned: bool,
}

impl QueryGrowth {
    pub(crate) fn factor(&self, position: u32) -> f32 {
        let steps = position.saturating_add(self.offset) / self.length.max(1);
        1.0 + self.scale * (f64::from(steps) + 1.0).ln() as f32
    }
}

/// What works on each token alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feed {
    /// Products with all weights.
    #[default]
    Dense,
    /// A mixture of experts.
    Experts,
    /// The channel mix of [RWKV](https://arxiv.org/abs/2503.14456), which sees the token before each one, too.
    ChannelMix,
    /// The layer has no such part.
    Nothing,
}

/// Sizes of a state-space mixer, or of another one that keeps states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSpace {
    /// Tokens that the convolution sees.
    pub kernel: u64,
    /// Elements of all heads.
    pub inner: u64,
    /// Elements of the state for each element of a head; in delta nets, those of a head of keys.
    pub state: u64,
    /// Heads; in delta nets, those of values.
    pub heads: u64,
    /// Groups of heads that share the B and C of the scan; in delta nets, heads of keys.
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
    /// How scores become weights.
    pub gating: Gating,
    /// The weights of the chosen are divided by their sum.
    pub normalized: bool,
    /// Groups of experts, and how many of them a token uses; the best two experts of a group stand for it.
    pub groups: Option<[u64; 2]>,
}

impl Default for Experts {
    fn default() -> Experts {
        let gating = Gating::Softmax;
        Experts { count: 0, used: 0, hidden: 0, scale: 1.0, gating, normalized: true, groups: None }
    }
}

/// How a router's scores become weights of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gating {
    /// The softmax of all.
    Softmax,
    /// The sigmoid of each.
    Sigmoid,
    /// The softmax of those that were chosen.
    SoftmaxOfChosen,
}

impl Config {
    /// Reads a model's metadata. Keys of `general.architecture`'s own prefix count; 0 and -1 mean "not set" where a
    /// value has a default.
    ///
    /// # Errors
    /// [`Error::UnknownArchitecture`], [`Error::Projector`], [`Error::BadKey`], and keys that are missing or of another type.
    pub fn read(metadata: &Metadata) -> Result<Config, Error> {
        let name = metadata.string("general.architecture")?;
        let kind = metadata.optional("general.type", Metadata::string)?;
        if let Some(name) = [Some(name), kind].into_iter().flatten().find(|name| PROJECTORS.contains(name)) {
            return Err(Error::Projector { name: name.to_owned() });
        }
        let architecture = Architecture::find(name)?;
        let facts = architecture.facts();
        let keys = Keys { metadata, prefix: facts.name };
        let blocks = keys.count("block_count")?;
        if blocks > MAX_LAYERS {
            return Err(keys.bad("block_count", blocks, "it must be at most 4096"));
        }
        let skipped_blocks = keys.optional("nextn_predict_layers")?.unwrap_or(0);
        if skipped_blocks >= blocks {
            return Err(keys.bad("nextn_predict_layers", skipped_blocks, "a model has layers before them"));
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
            layers: vec![LayerConfig::default(); blocks as usize],
            epsilon,
            embedding_scale: 1.0,
            residual_scale: 1.0,
            logit_scale: 1.0,
            parallel: match facts.residual {
                Residual::Parallel => true,
                Residual::ParallelByKey => keys.flag("use_parallel_residual")?,
                Residual::Series | Residual::NormedSums | Residual::ParallelWithoutNorm => false,
            },
            attention_cap: None,
            bidirectional: facts.encoder || !keys.causal()?,
            pooling: keys.pooling()?,
            skipped_blocks,
            logit_cap: None,
            attention_scale: 0.0,
            feed_forward: keys.feed_forward(facts)?,
            experts: None,
            state_space: None,
            layer_embedding: keys.optional("embedding_length_per_layer_input")?.unwrap_or(0),
            norms_steps: keys.flag("ssm.dt_b_c_rms")?,
            short_convolution: None,
            latent: None,
            query_growth: None,
        };
        keys.scales(facts.scales, &mut config)?;
        if let Some(default) = facts.logit_cap {
            config.logit_cap = keys.cap("final_logit_softcapping", default)?;
        }
        if let Some(default) = facts.attention_cap {
            config.attention_cap = keys.cap("attn_logit_softcapping", default)?;
        }
        config.layers = match facts.mixers {
            Mixers::Only(Mixer::TimeMix) => keys.channel_mixes(blocks)?,
            Mixers::Only(mixer) => {
                let layer = LayerConfig { mixer, feed: Feed::Nothing, ..LayerConfig::default() };
                vec![layer; blocks as usize]
            }
            mixers => keys.heads(mixers, blocks)?,
        };
        let has = |mixers: &[Mixer]| config.layers.iter().any(|layer| mixers.contains(&layer.mixer));
        if has(&[Mixer::StateSpace, Mixer::Both, Mixer::DeltaNet]) {
            config.state_space = Some(keys.state_space()?);
        } else if has(&[Mixer::TimeMix]) {
            config.state_space = Some(keys.time_mix(width)?);
        } else if has(&[Mixer::Mamba1]) {
            config.state_space = Some(keys.mamba1()?);
        }
        if has(&[Mixer::ShortConvolution]) {
            config.short_convolution = Some(keys.kernel("shortconv.l_cache")?);
        }
        if let Mixers::Only(_) = facts.mixers {
            return Ok(config);
        }
        let attending = config.layers.iter().find(|layer| layer.mixer.attends() && layer.heads > 0);
        let heads =
            attending.ok_or_else(|| keys.bad("attention.head_count", 0, "some layer must have heads"))?.heads;
        let hidden = config.layers.iter().map(|layer| layer.hidden).max().unwrap_or(0);
        let key = keys.head("attention.key_length", width / heads, &config.layers)?;
        let value = keys.head("attention.value_length", width / heads, &config.layers)?;
        config.experts = keys.experts(&facts.experts, hidden, [blocks - skipped_blocks, vocabulary])?;
        let rope = match facts.positions {
            Positions::Rope(mode) => Some(keys.rope(mode, key, context, facts.mixers)?),
            Positions::Embedded | Positions::Distances => None,
        };
        for layer in &mut config.layers {
            *layer = LayerConfig { key, value, rope, ..*layer };
        }
        if config.experts.is_some() {
            keys.expert_layers(&mut config.layers)?;
        }
        if let Some(rules) = facts.windows {
            keys.windows(&rules, &mut config.layers)?;
            keys.window_heads(&mut config.layers)?;
            keys.shared_rows(&mut config.layers)?;
        }
        keys.turned(facts.turned, &mut config.layers)?;
        config.query_growth = keys.query_growth(rope)?;
        if let Some(chunk) = facts.chunk {
            keys.chunked()?;
            config.context = config.context.min(u64::from(chunk));
            config.query_growth = Some(QueryGrowth { scale: 0.1, length: chunk, offset: 1, unturned: true });
        }
        let scaled_by = if facts.scaled_by_width_at == Some(blocks) { width / heads } else { key };
        let scale = keys.set_float("attention.scale")?;
        config.attention_scale = scale.unwrap_or(1.0 / (scaled_by as f32).sqrt());
        if facts.unscaled {
            config.attention_scale = 1.0;
        }
        if facts.mixers == Mixers::Latent {
            let latent = keys.latent(heads, [key, value], rope)?;
            config.attention_scale = keys.latent_scale(&latent, rope)?;
            config.latent = Some(latent);
        }
        config.layers.truncate((blocks - skipped_blocks) as usize);
        Ok(config)
    }

    /// Whether whole texts can be fed without a cache: every layer works on tokens alone, or attends.
    pub(crate) fn embeds(&self) -> bool {
        let alone = |mixer: Mixer| matches!(mixer, Mixer::Attention | Mixer::Linear | Mixer::Nothing);
        self.query_growth.is_none() && self.layers.iter().all(|layer| alone(layer.mixer))
    }

    /// Whether some layer keeps a state of each sequence, which cannot go back to an earlier token.
    pub fn keeps_states(&self) -> bool {
        self.layers.iter().any(|layer| layer.mixer.keeps_state())
    }
}

/// How files call themselves that read pictures or sounds for another model: by their architecture, or by their type.
const PROJECTORS: [&str; 2] = ["clip", "mmproj"];

/// Maximum of layers; a larger number is taken for an error.
const MAX_LAYERS: u64 = 4096;
