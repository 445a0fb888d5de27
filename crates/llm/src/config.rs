use orlop_gguf::{Array, Metadata, Value};
use orlop_graph::{Rope, RopeMode};

use crate::{Architecture, Error};

/// The sizes and constants of a model, from its metadata alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How its layers are wired.
    pub architecture: Architecture,
    /// Rows of the embedding table.
    pub vocabulary: u64,
    /// Tokens it was trained to look back on.
    pub context: u64,
    /// Elements of an embedding.
    pub width: u64,
    /// Elements of a head of queries and keys.
    pub key: u64,
    /// Elements of a head of values.
    pub value: u64,
    /// What differs from layer to layer; one entry each.
    pub layers: Vec<LayerConfig>,
    /// Added under the root of a norm.
    pub epsilon: f32,
    /// How queries and keys are turned by their positions.
    pub rope: Rope,
    /// Factor of queries times keys.
    pub attention_scale: f32,
    /// A mixture of experts in the feed-forward part.
    pub experts: Option<Experts>,
}

/// Sizes of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Elements between the feed-forward products.
    pub hidden: u64,
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
        let keys = Keys { metadata, prefix: architecture.name() };
        let layers = keys.count("block_count")?;
        if layers > MAX_LAYERS {
            return Err(keys.bad("block_count", layers, "no model has that many layers"));
        }
        let width = keys.count("embedding_length")?;
        let heads = keys.per_layer("attention.head_count", layers, None)?;
        let kv_heads = keys.per_layer("attention.head_count_kv", layers, Some(&heads))?;
        let hidden = keys.per_layer("feed_forward_length", layers, Some(&vec![0; layers as usize]))?;
        let layers: Vec<LayerConfig> = heads
            .iter()
            .zip(&kv_heads)
            .zip(&hidden)
            .map(|((heads, kv_heads), hidden)| LayerConfig {
                heads: *heads,
                kv_heads: *kv_heads,
                hidden: *hidden,
            })
            .collect();
        for layer in &layers {
            if layer.heads == 0 || layer.kv_heads == 0 || layer.heads % layer.kv_heads != 0 {
                let rule = "heads of keys must divide heads of queries";
                return Err(keys.bad("attention.head_count_kv", layer.kv_heads, rule));
            }
        }
        let first = layers.first().ok_or_else(|| keys.bad("block_count", 0, "a model has layers"))?;
        let key = keys.optional("attention.key_length")?.unwrap_or(width / first.heads);
        let value = keys.optional("attention.value_length")?.unwrap_or(width / first.heads);
        let context = keys.count("context_length")?;
        let vocabulary = match keys.optional("vocab_size")? {
            Some(vocabulary) => vocabulary,
            None => metadata.array("tokenizer.ggml.tokens")?.len() as u64,
        };
        let epsilon = match architecture.norm() {
            Norm::Rms => keys.float("attention.layer_norm_rms_epsilon")?,
            Norm::Mean => keys.float("attention.layer_norm_epsilon")?,
        };
        let scale = keys.optional_float("attention.scale")?.filter(|scale| *scale != 0.0);
        Ok(Config {
            architecture,
            vocabulary,
            context,
            width,
            key,
            value,
            epsilon: epsilon
                .ok_or_else(|| keys.bad("attention.layer_norm_rms_epsilon", 0, "it must be there"))?,
            rope: keys.rope(architecture.rope(), key, context)?,
            attention_scale: scale.unwrap_or(1.0 / (key as f32).sqrt()),
            experts: keys.experts(architecture, first.hidden)?,
            layers,
        })
    }
}

/// Layers beyond which a file is taken to be wrong.
const MAX_LAYERS: u64 = 4096;
/// Elements, heads or tokens beyond which a file is taken to be wrong.
const MAX_COUNT: u64 = 1 << 40;

/// Which norm an architecture uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norm {
    /// Divides by the root mean square.
    Rms,
    /// Takes the mean away first.
    Mean,
}

/// The keys of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn bad(&self, key: &str, value: u64, rule: &'static str) -> Error {
        Error::BadKey { key: self.name(key), value: value.to_string(), rule }
    }

    /// A number that has to be there and not 0.
    fn count(&self, key: &str) -> Result<u64, Error> {
        let value = self.metadata.u64(&self.name(key))?;
        if value == 0 || value > MAX_COUNT {
            return Err(self.bad(key, value, "it must be at least 1, and not absurd"));
        }
        Ok(value)
    }

    /// A number, unless it is missing or says "not set".
    fn optional(&self, key: &str) -> Result<Option<u64>, Error> {
        let value = self.metadata.optional(&self.name(key), Metadata::i64)?;
        let unset = i64::from(u32::MAX);
        match value.filter(|value| *value > 0 && *value != unset) {
            Some(value) if value as u64 > MAX_COUNT => Err(self.bad(key, value as u64, "it is absurd")),
            value => Ok(value.map(|value| value as u64)),
        }
    }

    fn float(&self, key: &str) -> Result<Option<f32>, Error> {
        self.metadata.f32(&self.name(key)).map(Some).map_err(Error::from)
    }

    fn optional_float(&self, key: &str) -> Result<Option<f32>, Error> {
        Ok(self.metadata.optional(&self.name(key), Metadata::f32)?)
    }

    /// One number for all layers, or an array with one each.
    fn per_layer(&self, key: &str, layers: u64, default: Option<&[u64]>) -> Result<Vec<u64>, Error> {
        let name = self.name(key);
        match (self.metadata.get(&name), default) {
            (Some(Value::Array(array)), _) => {
                let values = match array {
                    Array::I32(_) => {
                        self.metadata.i32s(&name)?.into_iter().map(|value| value.max(0) as u64).collect()
                    }
                    _ => self.metadata.u32s(&name)?.into_iter().map(u64::from).collect::<Vec<u64>>(),
                };
                if values.len() as u64 != layers {
                    return Err(self.bad(key, values.len() as u64, "an array must have one entry a layer"));
                }
                Ok(values)
            }
            (None, Some(default)) => Ok(default.to_vec()),
            _ => match (self.optional(key)?, default) {
                (Some(value), _) => Ok(vec![value; layers as usize]),
                (None, Some(default)) => Ok(default.to_vec()),
                (None, None) => Err(self.bad(key, 0, "it must be at least 1")),
            },
        }
    }

    fn rope(&self, mode: RopeMode, key: u64, context: u64) -> Result<Rope, Error> {
        let kind = self.metadata.optional(&self.name("rope.scaling.type"), Metadata::string)?;
        let factor = match self.optional_float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.optional_float("rope.scale_linear")?,
        };
        let freq_scale = match (kind, factor) {
            (Some("none"), _) | (_, None) => 1.0,
            (_, Some(0.0)) => 1.0,
            (_, Some(factor)) => 1.0 / factor,
        };
        let yarn = kind == Some("yarn");
        let dims = self.optional("rope.dimension_count")?.unwrap_or(key);
        if dims > key {
            return Err(self.bad(
                "rope.dimension_count",
                dims,
                "no more than a head's elements can be turned",
            ));
        }
        let original = self.optional("rope.scaling.original_context_length")?.unwrap_or(context);
        let set = |value: Option<f32>, default: f32| value.filter(|value| *value > 0.0).unwrap_or(default);
        Ok(Rope {
            mode,
            dims: dims as u32,
            freq_base: set(self.optional_float("rope.freq_base")?, 10_000.0),
            freq_scale,
            ext_factor: if yarn {
                set(self.optional_float("rope.scaling.yarn_ext_factor")?, 1.0)
            } else {
                0.0
            },
            attn_factor: set(self.optional_float("rope.scaling.attn_factor")?, 1.0),
            beta_fast: set(self.optional_float("rope.scaling.yarn_beta_fast")?, 32.0),
            beta_slow: set(self.optional_float("rope.scaling.yarn_beta_slow")?, 1.0),
            original_context: u32::try_from(original).unwrap_or(u32::MAX),
        })
    }

    fn experts(&self, architecture: Architecture, hidden: u64) -> Result<Option<Experts>, Error> {
        let Some(count) = self.optional("expert_count")? else { return Ok(None) };
        let used = self.optional("expert_used_count")?.unwrap_or(0);
        if used == 0 || used > count {
            return Err(self.bad(
                "expert_used_count",
                used,
                "a token uses at least one expert, and no more than there are",
            ));
        }
        let default = if architecture == Architecture::Qwen3Moe { hidden / used } else { hidden };
        let hidden = self.optional("expert_feed_forward_length")?.unwrap_or(default);
        let scale = self.optional_float("expert_weights_scale")?.filter(|scale| *scale != 0.0).unwrap_or(1.0);
        Ok(Some(Experts { count, used, hidden, scale }))
    }
}
