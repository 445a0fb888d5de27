//! Reading the keys of an architecture, with checks and defaults. The keys are those of
//! [GGUF](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).

use orlop_gguf::{Array, Metadata, MetadataValue};
use orlop_graph::{Glu, Rope, RopeMode};

use super::{Config, Experts, Feed, Gating, Latent, LayerConfig, Mixer, QueryGrowth, StateSpace};
use crate::arch::{ExpertHidden, ExpertRules, Facts, Mixers, Scales, Turned, WindowRules};
use crate::draft::FeedForward;
use crate::{Error, Pooling};

/// Maximum of elements, heads or tokens; larger numbers are taken for errors.
const MAX_COUNT: u64 = 1 << 40;
/// The same for sizes of state-space mixers, which are multiplied with each other.
const MAX_STATE_SPACE: u64 = 1 << 20;

/// Known ways to scale RoPE beyond the context of the training.
const SCALINGS: [&str; 4] = ["none", "linear", "yarn", "longrope"];

/// The keys of one architecture.
pub(super) struct Keys<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) prefix: &'static str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    pub(super) fn bad(&self, key: &str, value: u64, rule: &'static str) -> Error {
        Error::BadKey { key: self.name(key), value: value.to_string(), rule }
    }

    /// A number that has to be there and not 0.
    pub(super) fn count(&self, key: &str) -> Result<u64, Error> {
        let value = self.metadata.u64(&self.name(key))?;
        if value == 0 || value > MAX_COUNT {
            return Err(self.bad(key, value, "it must be from 1 to 2^40"));
        }
        Ok(value)
    }

    /// A number, unless it is missing or says "not set".
    pub(super) fn optional(&self, key: &str) -> Result<Option<u64>, Error> {
        let value = self.metadata.optional(&self.name(key), Metadata::i64)?;
        let unset = i64::from(u32::MAX);
        match value.filter(|value| *value > 0 && *value != unset) {
            Some(value) if value as u64 > MAX_COUNT => {
                Err(self.bad(key, value as u64, "it must be at most 2^40"))
            }
            value => Ok(value.map(|value| value as u64)),
        }
    }

    pub(super) fn float(&self, key: &str) -> Result<f32, Error> {
        Ok(self.metadata.f32(&self.name(key))?)
    }

    /// A number, unless it is missing or 0.
    pub(super) fn set_float(&self, key: &str) -> Result<Option<f32>, Error> {
        Ok(self.optional_float(key)?.filter(|value| *value != 0.0))
    }

    fn optional_float(&self, key: &str) -> Result<Option<f32>, Error> {
        Ok(self.metadata.optional(&self.name(key), Metadata::f32)?)
    }

    /// A flag, which is off if it is missing.
    pub(super) fn flag(&self, key: &str) -> Result<bool, Error> {
        Ok(self.metadata.optional(&self.name(key), Metadata::bool)?.unwrap_or(false))
    }

    /// A limit; 0 means none.
    pub(super) fn cap(&self, key: &str, default: f32) -> Result<Option<f32>, Error> {
        Ok(Some(self.optional_float(key)?.unwrap_or(default)).filter(|cap| *cap != 0.0))
    }

    /// Whether tokens see only those before them, which they do if nothing is said.
    pub(super) fn causal(&self) -> Result<bool, Error> {
        Ok(self.metadata.optional(&self.name("attention.causal"), Metadata::bool)?.unwrap_or(true))
    }

    /// What stands for a text.
    pub(super) fn pooling(&self) -> Result<Option<Pooling>, Error> {
        let key = "pooling_type";
        match self.metadata.optional(&self.name(key), Metadata::i64)? {
            Some(number) => Pooling::from_key(number).map_err(|rule| Error::BadKey {
                key: self.name(key),
                value: number.to_string(),
                rule,
            }),
            None => Ok(None),
        }
    }

    /// The feed-forward part of an architecture; files of encoders may name another gate.
    pub(super) fn feed_forward(&self, facts: &Facts) -> Result<FeedForward, Error> {
        let key = self.name("hidden_activation");
        let said = self.metadata.optional(&key, Metadata::string)?;
        match (facts.feed_forward, said.filter(|_| facts.encoder)) {
            (FeedForward::Fused(_), Some("silu" | "swish" | "swiglu")) => Ok(FeedForward::Fused(Glu::Silu)),
            (_, Some(said)) if !said.contains("gelu") && !said.contains("geglu") => {
                let rule = "encoders have gelu, or silu in a fused gate";
                Err(Error::BadKey { key, value: said.to_owned(), rule })
            }
            (known, _) => Ok(known),
        }
    }

    /// Factors of embeddings, residuals and logits.
    pub(super) fn scales(&self, scales: Scales, config: &mut Config) -> Result<(), Error> {
        let (width, layers) = (config.width as f32, config.layers.len() as f32);
        let [embedding, residual, logits] = match scales {
            Scales::Nothing => return Ok(()),
            Scales::RootOfWidth => {
                config.embedding_scale = width.sqrt();
                return Ok(());
            }
            Scales::Logits => {
                config.logit_scale = self.set_float("logit_scale")?.unwrap_or(1.0);
                return Ok(());
            }
            Scales::Granite => [1.0; 3],
            Scales::MiniCpm => [12.0, 1.4 / layers.sqrt(), width / 256.0],
        };
        config.embedding_scale = self.set_float("embedding_scale")?.unwrap_or(embedding);
        config.residual_scale = self.set_float("residual_scale")?.unwrap_or(residual);
        config.logit_scale = 1.0 / self.set_float("logit_scale")?.unwrap_or(logits);
        Ok(())
    }

    /// One number for all layers, or an array with one each.
    fn per_layer(&self, key: &str, layers: u64, default: Option<&[u64]>) -> Result<Vec<u64>, Error> {
        let name = self.name(key);
        match (self.metadata.get(&name), default) {
            (Some(MetadataValue::Array(_)), _) => {
                let values = self.numbers(key)?;
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

    /// An array of numbers; negative ones count as 0.
    fn numbers(&self, key: &str) -> Result<Vec<u64>, Error> {
        let name = self.name(key);
        Ok(match self.metadata.get(&name) {
            Some(MetadataValue::Array(Array::I32(_))) => {
                self.metadata.i32s(&name)?.into_iter().map(|value| value.max(0) as u64).collect()
            }
            _ => self.metadata.u32s(&name)?.into_iter().map(u64::from).collect(),
        })
    }

    pub(super) fn rope(&self, mode: RopeMode, key: u64, context: u64, mixers: Mixers) -> Result<Rope, Error> {
        let kind = self.metadata.optional(&self.name("rope.scaling.type"), Metadata::string)?;
        if let Some(kind) = kind.filter(|kind| !SCALINGS.contains(kind)) {
            let rule = "none, linear, yarn and longrope are known";
            return Err(Error::BadKey { key: self.name("rope.scaling.type"), value: kind.to_owned(), rule });
        }
        let factor = match self.optional_float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.optional_float("rope.scale_linear")?,
        };
        let freq_scale = match (kind, factor) {
            (Some("none"), _) | (_, None) => 1.0,
            (_, Some(0.0)) => 1.0,
            (_, Some(factor)) => 1.0 / factor,
        };
        let mode = self.sections()?.unwrap_or(mode);
        let yarn = kind == Some("yarn");
        let dims = self.optional("rope.dimension_count")?.unwrap_or(key);
        let rule = "no more than a head's elements can be turned, and they must fit 32 bits";
        let dims = u32::try_from(dims)
            .ok()
            .filter(|dims| u64::from(*dims) <= key)
            .ok_or_else(|| self.bad("rope.dimension_count", dims, rule))?;
        let original = self.optional("rope.scaling.original_context_length")?.unwrap_or(context);
        let log = match (yarn, self.set_float("rope.scaling.yarn_log_multiplier")?) {
            // Latent attention has it in the factor of its scores.
            (true, Some(_)) if mixers == Mixers::Latent => 1.0 + 0.1 * (1.0 / freq_scale).max(1.0).ln(),
            (true, Some(multiplier)) => 1.0 + 0.1 * multiplier * (1.0 / freq_scale).max(1.0).ln(),
            _ => 1.0,
        };
        let stretched = match self.set_float("rope.scaling.alpha")? {
            Some(alpha) if key > 2 => alpha.powf(key as f32 / (key - 2) as f32),
            _ => 1.0,
        };
        let set = |value: Option<f32>, default: f32| value.filter(|value| *value > 0.0).unwrap_or(default);
        Ok(Rope {
            mode,
            dims,
            freq_base: set(self.optional_float("rope.freq_base")?, 10_000.0) * stretched,
            freq_scale,
            ext_factor: if yarn {
                set(self.optional_float("rope.scaling.yarn_ext_factor")?, 1.0)
            } else {
                0.0
            },
            attn_factor: set(self.optional_float("rope.scaling.attn_factor")?, 1.0) / log,
            beta_fast: set(self.optional_float("rope.scaling.yarn_beta_fast")?, 32.0),
            beta_slow: set(self.optional_float("rope.scaling.yarn_beta_slow")?, 1.0),
            original_context: u32::try_from(original).unwrap_or(u32::MAX),
        })
    }

    /// How heads are turned that have sections which positions of pictures turn apart, if there are any. In text these positions
    /// are equal, and the fourth section of every known file is empty.
    fn sections(&self) -> Result<Option<RopeMode>, Error> {
        let key = "rope.dimension_sections";
        if self.metadata.get(&self.name(key)).is_none() {
            return Ok(None);
        }
        match self.numbers(key)?[..] {
            [0, _, _] | [_, 0, _] | [0, _, _, 0] | [_, 0, _, 0] => Ok(None),
            [_, _, _] | [_, _, _, 0] => Ok(Some(RopeMode::Neox)),
            [_, _, _, last] => Err(self.bad(key, last, "the fourth section must be empty")),
            ref other => Err(self.bad(key, other.len() as u64, "it must have four sections")),
        }
    }

    /// Which layers are turned.
    pub(super) fn turned(&self, turned: Turned, layers: &mut [LayerConfig]) -> Result<(), Error> {
        let windowed = layers.iter().any(|layer| layer.window.is_some());
        let finetuned = self.metadata.optional(&self.name("rope.scaling.finetuned"), Metadata::bool)?;
        for (index, layer) in layers.iter_mut().enumerate() {
            let turns = match turned {
                Turned::All => true,
                Turned::None => false,
                Turned::Windowed => !windowed || layer.window.is_some(),
                Turned::AllBut(period) => (index + 1) % period != 0,
                Turned::ByKey => finetuned != Some(false),
            };
            layer.rope = layer.rope.filter(|_| turns);
        }
        Ok(())
    }

    /// Which layers have experts: all, those behind a dense lead, or every n-th of these.
    pub(super) fn expert_layers(&self, layers: &mut [LayerConfig]) -> Result<(), Error> {
        let lead = self.optional("leading_dense_block_count")?.unwrap_or(0);
        let step = self.optional("interleave_moe_layer_step")?.unwrap_or(1);
        for (index, layer) in layers.iter_mut().enumerate() {
            let routed = index as u64 >= lead && (index as u64 + 1).is_multiple_of(step);
            if routed && layer.feed != Feed::Nothing {
                layer.feed = Feed::Experts;
            }
        }
        Ok(())
    }

    /// The experts of a model with this feed-forward size, and this shape: layers and vocabulary.
    pub(super) fn experts(
        &self,
        rules: &ExpertRules,
        hidden: u64,
        shape: [u64; 2],
    ) -> Result<Option<Experts>, Error> {
        let Some(count) = self.optional("expert_count")? else { return Ok(None) };
        let used = self.optional("expert_used_count")?.unwrap_or(0);
        if used == 0 || used > count {
            return Err(self.bad(
                "expert_used_count",
                used,
                "a token uses at least one expert, and no more than there are",
            ));
        }
        let default = match rules.hidden {
            ExpertHidden::FeedForward => hidden,
            ExpertHidden::FeedForwardPerUsed => hidden / used,
        };
        let hidden = self.optional("expert_feed_forward_length")?.unwrap_or(default);
        let scale = self.set_float("expert_weights_scale")?.unwrap_or(1.0);
        let gating = match self.optional("expert_gating_func")? {
            None if rules.sigmoid_at.contains(&shape) => Gating::Sigmoid,
            None => rules.gating,
            Some(1) => Gating::Softmax,
            Some(2) => Gating::Sigmoid,
            Some(3) => Gating::SoftmaxOfChosen,
            Some(other) => return Err(self.bad("expert_gating_func", other, "1, 2 and 3 are known")),
        };
        let normalized = self.metadata.optional(&self.name("expert_weights_norm"), Metadata::bool)?;
        let groups = match self.optional("expert_group_count")? {
            None | Some(1) => None,
            Some(groups) => {
                let chosen = self.optional("expert_group_used_count")?.unwrap_or(0);
                if !count.is_multiple_of(groups) || count / groups < 2 {
                    let rule = "groups must divide the experts, and have at least two";
                    return Err(self.bad("expert_group_count", groups, rule));
                }
                if chosen == 0 || chosen > groups || used > chosen * (count / groups) {
                    let rule =
                        "a token uses at least one group, no more than there are, and all of its experts fit";
                    return Err(self.bad("expert_group_used_count", chosen, rule));
                }
                Some([groups, chosen])
            }
        };
        let normalized = normalized.unwrap_or(rules.normalized);
        Ok(Some(Experts { count, used, hidden, scale, gating, normalized, groups }))
    }

    /// A flag for each layer, where the key is an array.
    fn flags(&self, key: &str, layers: u64) -> Result<Option<Vec<bool>>, Error> {
        let flags = match self.metadata.get(&self.name(key)) {
            Some(MetadataValue::Array(Array::Bool(flags))) => flags.clone(),
            Some(MetadataValue::Array(_)) => self.numbers(key)?.into_iter().map(|flag| flag != 0).collect(),
            _ => return Ok(None),
        };
        match flags.len() as u64 {
            length if length == layers => Ok(Some(flags)),
            length => Err(self.bad(key, length, "an array must have one entry a layer")),
        }
    }

    /// Which layers have attention, where the others keep states: those that an array does not name, or the last of each
    /// interval.
    fn attending(&self, layers: u64) -> Result<Vec<bool>, Error> {
        let (which, every) = ("attention.recurrent_layers", "full_attention_interval");
        let rule = "some layer must have attention";
        if let Some(recurrent) = self.flags(which, layers)? {
            if recurrent.iter().all(|recurrent| *recurrent) {
                return Err(self.bad(which, layers, rule));
            }
            return Ok(recurrent.into_iter().map(|recurrent| !recurrent).collect());
        }
        let interval = match self.metadata.get(&self.name(every)) {
            Some(_) => self.count(every)?,
            None => 4,
        };
        if interval > layers {
            return Err(self.bad(every, interval, rule));
        }
        Ok((1..=layers).map(|layer| layer.is_multiple_of(interval)).collect())
    }

    /// The layers of RWKV.
    pub(super) fn channel_mixes(&self, layers: u64) -> Result<Vec<LayerConfig>, Error> {
        let key = "token_shift_count";
        if let Some(shifts) = self.optional(key)?.filter(|shifts| *shifts != 2) {
            return Err(self.bad(key, shifts, "a layer has two parts that see the token before each one"));
        }
        let hidden = self.per_layer("feed_forward_length", layers, None)?;
        let layer = |hidden| LayerConfig {
            mixer: Mixer::TimeMix,
            feed: Feed::ChannelMix,
            hidden,
            ..LayerConfig::default()
        };
        Ok(hidden.into_iter().map(layer).collect())
    }

    /// The sizes of RWKV's time mix, which sees two tokens.
    pub(super) fn time_mix(&self, width: u64) -> Result<StateSpace, Error> {
        let key = "wkv.head_size";
        let state = self.size(key)?;
        if !width.is_multiple_of(state) {
            return Err(self.bad(key, state, "heads must divide the width"));
        }
        let heads = width / state;
        Ok(StateSpace { kernel: 2, inner: width, state, heads, groups: heads })
    }

    /// Heads and feed-forward sizes of every layer.
    pub(super) fn heads(&self, mixers: Mixers, layers: u64) -> Result<Vec<LayerConfig>, Error> {
        let heads = self.per_layer("attention.head_count", layers, None)?;
        let kv_heads = self.per_layer("attention.head_count_kv", layers, Some(&heads))?;
        let hidden = self.per_layer("feed_forward_length", layers, Some(&vec![0; layers as usize]))?;
        let attending = match mixers {
            Mixers::Interleaved(_) => self.attending(layers)?,
            _ => vec![true; layers as usize],
        };
        let sizes = heads.into_iter().zip(kv_heads).zip(hidden).zip(attending);
        sizes
            .map(|(((heads, kv_heads), hidden), attends)| {
                let mixer = match (mixers, heads, kv_heads) {
                    (Mixers::Interleaved(mixer), ..) if !attends => mixer,
                    (Mixers::SomeAttention, 0, _) => Mixer::Nothing,
                    (Mixers::SomeAttention, _, 0) => Mixer::Linear,
                    (Mixers::Only(mixer), ..) | (Mixers::Hybrid(mixer), _, 0) => mixer,
                    (Mixers::OnePart, ..) if hidden > 0 => Mixer::Nothing,
                    (Mixers::OnePart, _, 0) => Mixer::StateSpace,
                    (Mixers::Both, ..) => Mixer::Both,
                    (Mixers::Latent, ..) => Mixer::Latent,
                    _ => Mixer::Attention,
                };
                let may_lack = matches!(mixers, Mixers::SomeAttention | Mixers::OnePart);
                let feed = if may_lack && hidden == 0 { Feed::Nothing } else { Feed::Dense };
                if mixer.attends() && (heads == 0 || kv_heads == 0 || heads % kv_heads != 0) {
                    let rule = "heads of keys must divide heads of queries";
                    return Err(self.bad("attention.head_count_kv", kv_heads, rule));
                }
                Ok(LayerConfig { mixer, feed, heads, kv_heads, hidden, ..LayerConfig::default() })
            })
            .collect()
    }

    /// Elements of a head; all heads of a layer together are limited, too.
    pub(super) fn head(&self, key: &str, default: u64, layers: &[LayerConfig]) -> Result<u64, Error> {
        let size = self.optional(key)?.unwrap_or(default);
        let heads = layers.iter().map(|layer| layer.heads).max().unwrap_or(0);
        match size.checked_mul(heads) {
            Some(all) if all <= MAX_COUNT => Ok(size),
            _ => Err(self.bad(key, size, "all heads of a layer together must have at most 2^40 elements")),
        }
    }

    /// Sliding windows of most layers, which have a RoPE base of their own. Which layers these are is an array of flags,
    /// or a period: the last layer of each period sees everything, or the first.
    pub(super) fn windows(&self, rules: &WindowRules, layers: &mut [LayerConfig]) -> Result<(), Error> {
        let key = "attention.sliding_window";
        let set = self.metadata.get(&self.name(key)).is_some();
        let default = rules.default.filter(|_| !set).map(u64::from);
        if set && self.metadata.i64(&self.name(key))? == 0 {
            return Err(self.bad(key, 0, "a token sees at least itself"));
        }
        let Some(window) = self.optional(key)?.or(default) else { return Ok(()) };
        let window = u32::try_from(window)
            .map_err(|_| self.bad("attention.sliding_window", window, "it must fit 32 bits"))?;
        let key = "attention.sliding_window_pattern";
        let windowed = match self.flags(key, layers.len() as u64)? {
            Some(flags) => flags,
            None => {
                let period = match self.metadata.get(&self.name(key)) {
                    Some(_) => self.metadata.u64(&self.name(key))?,
                    None => rules.period,
                };
                let full = if rules.first_sees_all { 0 } else { period.saturating_sub(1) };
                (0..layers.len() as u64).map(|layer| period == 0 || layer % period != full).collect()
            }
        };
        let base = self.set_float("rope.freq_base_swa")?.or(rules.base);
        for (layer, _) in layers.iter_mut().zip(windowed).filter(|(_, windowed)| *windowed) {
            layer.window = Some(window);
            if let Some(rope) = &mut layer.rope {
                rope.freq_base = base.unwrap_or(rope.freq_base);
                if !rules.scaled {
                    *rope = Rope { freq_scale: 1.0, ext_factor: 0.0, attn_factor: 1.0, ..*rope };
                }
            }
        }
        Ok(())
    }

    /// Heads of layers with a window may have another size.
    pub(super) fn window_heads(&self, layers: &mut [LayerConfig]) -> Result<(), Error> {
        let dims_key = "rope.dimension_count_swa";
        let (sizes, dims) = (["key_length_swa", "value_length_swa"], self.optional(dims_key)?);
        let sizes = sizes.map(|key| self.head(&format!("attention.{key}"), 0, layers));
        let [key, value] = sizes;
        let (key, value) = (key?, value?);
        for layer in layers.iter_mut().filter(|layer| layer.window.is_some()) {
            layer.key = if key > 0 { key } else { layer.key };
            layer.value = if value > 0 { value } else { layer.value };
            if let Some(rope) = &mut layer.rope {
                let dims = dims.unwrap_or(u64::from(rope.dims));
                let rule = "no more than a head's elements can be turned, and they must fit 32 bits";
                let fits = u32::try_from(dims).ok().filter(|_| dims <= layer.key);
                rope.dims = fits.ok_or_else(|| self.bad(dims_key, dims, rule))?;
            }
        }
        Ok(())
    }

    /// The last layers may use keys and values of the last layer before them with the same window.
    pub(super) fn shared_rows(&self, layers: &mut [LayerConfig]) -> Result<(), Error> {
        let key = "attention.shared_kv_layers";
        let Some(shared) = self.optional(key)? else { return Ok(()) };
        let first = layers.len().saturating_sub(shared as usize);
        for layer in first..layers.len() {
            let LayerConfig { window, key: size, kv_heads, mixer, .. } = layers[layer];
            if mixer != Mixer::Attention {
                continue;
            }
            let alike = |other: &LayerConfig| {
                let same = other.window == window && (other.key, other.kv_heads) == (size, kv_heads);
                same && other.mixer == Mixer::Attention
            };
            let source = layers[..first].iter().rposition(alike);
            let rule = "a layer before them must have the same window and heads";
            layers[layer].shares = Some(source.ok_or_else(|| self.bad(key, shared, rule))?);
        }
        Ok(())
    }

    /// A size that is multiplied with others.
    fn size(&self, key: &str) -> Result<u64, Error> {
        match self.count(key)? {
            size if size > MAX_STATE_SPACE => Err(self.bad(key, size, "it must be at most 2^20")),
            size => Ok(size),
        }
    }

    /// The tokens that a convolution sees.
    pub(super) fn kernel(&self, key: &str) -> Result<u64, Error> {
        match self.size(key)? {
            1 => Err(self.bad(key, 1, "it must be at least 2")),
            kernel => Ok(kernel),
        }
    }

    /// The sizes of Mamba 1, which has a head for each element.
    pub(super) fn mamba1(&self) -> Result<StateSpace, Error> {
        Ok(StateSpace {
            kernel: self.kernel("ssm.conv_kernel")?,
            inner: self.size("ssm.inner_size")?,
            state: self.size("ssm.state_size")?,
            heads: self.size("ssm.time_step_rank")?,
            groups: 1,
        })
    }

    /// The sizes of latent attention. Older files have matrices that make keys and values of all heads.
    pub(super) fn latent(
        &self,
        heads: u64,
        [key, value]: [u64; 2],
        rope: Option<Rope>,
    ) -> Result<Latent, Error> {
        let whole = self.optional("attention.key_length_mla")?;
        let (all, value) =
            (whole.unwrap_or(key), self.optional("attention.value_length_mla")?.unwrap_or(value));
        let rank = self.size("attention.kv_lora_rank")?;
        let turned = rope.map_or(0, |rope| u64::from(rope.dims));
        let name = if whole.is_some() { "attention.key_length_mla" } else { "attention.key_length" };
        if all <= turned || all.max(value).checked_mul(heads).is_none_or(|elements| elements > MAX_COUNT) {
            return Err(self.bad(
                name,
                all,
                "positions must turn a part of it, and all heads have at most 2^40",
            ));
        }
        if whole.is_some() && key != rank + turned {
            return Err(self.bad("attention.key_length", key, "it must be the rank and the turned part"));
        }
        Ok(Latent {
            query: self.optional("attention.q_lora_rank")?,
            rank,
            fixed: all - turned,
            turned,
            value,
            absorbed: whole.is_some(),
        })
    }

    /// Factor of queries times keys in latent attention: YaRN's counts twice. Files hold a tenth of its multiplier.
    pub(super) fn latent_scale(&self, latent: &Latent, rope: Option<Rope>) -> Result<f32, Error> {
        let multiplier = self.set_float("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.1);
        let yarn = match rope {
            Some(rope) if rope.ext_factor != 0.0 => 1.0 + multiplier * (1.0 / rope.freq_scale).max(1.0).ln(),
            _ => 1.0,
        };
        Ok(yarn * yarn / ((latent.fixed + latent.turned) as f32).sqrt())
    }

    /// A window of 0 says that a model with chunks has none.
    pub(super) fn chunked(&self) -> Result<(), Error> {
        let key = "attention.sliding_window";
        match self.metadata.optional(&self.name(key), Metadata::i64)? {
            Some(0) => Err(self.bad(key, 0, "models without chunks are not supported")),
            _ => Ok(()),
        }
    }

    /// How queries grow with their position: by steps of a length that a key says, or of the original context.
    pub(super) fn query_growth(&self, rope: Option<Rope>) -> Result<Option<QueryGrowth>, Error> {
        let Some(scale) = self.set_float("attention.temperature_scale")? else { return Ok(None) };
        let key = "attention.temperature_length";
        let length = match self.optional(key)? {
            Some(length) => {
                u32::try_from(length).map_err(|_| self.bad(key, length, "it must fit 32 bits"))?
            }
            None => rope.map_or(u32::MAX, |rope| rope.original_context),
        };
        Ok(Some(QueryGrowth { scale, length, offset: 0, unturned: false }))
    }

    /// The sizes of state-space mixers.
    pub(super) fn state_space(&self) -> Result<StateSpace, Error> {
        let size = |key: &str| self.size(key);
        let sizes = StateSpace {
            kernel: self.kernel("ssm.conv_kernel")?,
            inner: size("ssm.inner_size")?,
            state: size("ssm.state_size")?,
            heads: size("ssm.time_step_rank")?,
            groups: size("ssm.group_count")?,
        };
        let StateSpace { inner, heads, groups, .. } = sizes;
        if inner % heads != 0 {
            return Err(self.bad("ssm.time_step_rank", heads, "heads must divide the inner size"));
        }
        if heads % groups != 0 || inner % groups != 0 {
            return Err(self.bad(
                "ssm.group_count",
                groups,
                "groups must divide the heads and the inner size",
            ));
        }
        Ok(sizes)
    }
}
