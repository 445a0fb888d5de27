//! Models with random weights, of any dimensions: for tests and measurements without a download.

use std::cell::RefCell;
use std::path::Path;

use orlop_gguf::{GgufPart, Metadata, MetadataValue, Writer};
use orlop_graph::DType;

use crate::mixture::{Candidate, FileType, MixturePolicy, Traits, mixture};
use crate::{Architecture, Error, Experts, Progress, StateSpace};

mod pool;
mod presets;
mod tensors;
mod vocabulary;

use pool::Pools;
pub use tensors::SynthTensor;

/// A model with random weights, complete enough to be loaded and run.
///
/// Weights are normally distributed with a deviation of one over the root of what they are summed over, so that
/// values keep their size from layer to layer; norms are 1. Equal fields give equal bytes.
///
/// ```
/// use std::sync::Arc;
/// use orlop_gguf::GgufPart;
/// use orlop_llm::{FileType, Synth};
///
/// let synth = Synth { layers: 1, file_type: FileType::Q8_0, ..Synth::default() };
/// let file = GgufPart::from_bytes(Arc::new(synth.bytes()?))?;
/// assert_eq!(file.metadata().u32("llama.block_count")?, 1);
/// assert_eq!(file.tensor("blk.0.ffn_up.weight").unwrap().desc.to_string(), "q8_0[64 128 1 1]");
/// # Ok::<(), orlop_llm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Synth {
    /// `general.name`.
    pub name: String,
    /// How its layers are wired; the prefix of most keys.
    pub architecture: Architecture,
    /// Layers.
    pub layers: u64,
    /// Elements of an embedding.
    pub width: u64,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Elements of a head of queries and keys.
    pub key: u64,
    /// Elements of a head of values.
    pub value: u64,
    /// Elements between the feed-forward products.
    pub hidden: u64,
    /// Tokens in the vocabulary. Below 259 there is no room for one, and the model has no tokenizer.
    pub vocabulary: u64,
    /// Tokens of its context.
    pub context: u64,
    /// A mixture of experts instead of one feed-forward part.
    pub experts: Option<Experts>,
    /// State-space mixers instead of attention and feed-forward parts.
    pub state_space: Option<StateSpace>,
    /// The embedding serves as output matrix.
    pub tied: bool,
    /// Queries, keys and values have biases.
    pub biases: bool,
    /// Queries and keys are normed head by head.
    pub head_norms: bool,
    /// Norms lie around 1 with this deviation; 0 makes all of them 1.
    pub norm_deviation: f32,
    /// Added under the root of a norm.
    pub epsilon: f32,
    /// Base of the frequencies with which positions turn queries and keys.
    pub rope_base: f32,
    /// What the file is stored as.
    pub file_type: FileType,
    /// How types are spread over the matrices.
    pub spread: MixturePolicy,
    /// What the weights depend on.
    pub seed: u64,
    /// Further keys; one that is there already gets this value.
    pub metadata: Vec<(String, MetadataValue)>,
    /// Further tensors; one of a name that is there already takes its place.
    pub tensors: Vec<SynthTensor>,
}

/// A small model for tests.
impl Default for Synth {
    fn default() -> Synth {
        Synth {
            name: "synth".to_owned(),
            architecture: Architecture::LLAMA,
            layers: 2,
            width: 64,
            heads: 4,
            kv_heads: 2,
            key: 16,
            value: 16,
            hidden: 128,
            vocabulary: 512,
            context: 128,
            experts: None,
            state_space: None,
            tied: false,
            biases: false,
            head_norms: false,
            norm_deviation: 0.0,
            epsilon: 1e-5,
            rope_base: 10_000.0,
            file_type: FileType::F32,
            spread: MixturePolicy::Mixed,
            seed: 0,
            metadata: Vec::new(),
            tensors: Vec::new(),
        }
    }
}

impl Synth {
    /// Whether random models of the architecture are known, and with experts if some are wanted.
    pub(crate) fn can_be_made(&self) -> bool {
        let facts = self.architecture.facts();
        facts.mixers.can_be_random()
            && !facts.encoder
            && !(self.experts.is_some() && facts.experts.beside_dense)
    }

    /// What the file says about itself.
    ///
    /// # Errors
    /// [`Error::File`] for a key among [`Synth::metadata`] that is empty.
    pub fn keys(&self) -> Result<Metadata, Error> {
        if !self.can_be_made() {
            return Err(Error::BadSetting {
                setting: "the architecture",
                value: self.architecture.to_string(),
                rule: "random models of it cannot be made",
            });
        }
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", self.architecture.name())?;
        metadata.set("general.name", self.name.as_str())?;
        metadata.set("general.file_type", self.file_type.id())?;
        metadata.set("general.quantization_version", 2u32)?;
        let mut own =
            |key: &str, value: MetadataValue| metadata.set(&format!("{}.{key}", self.architecture), value);
        for (key, value) in [
            ("vocab_size", self.vocabulary),
            ("context_length", self.context),
            ("embedding_length", self.width),
            ("block_count", self.layers),
            ("feed_forward_length", self.hidden),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.key),
            ("attention.value_length", self.value),
            ("rope.dimension_count", self.key),
        ] {
            own(key, number(key, value)?)?;
        }
        own("rope.freq_base", self.rope_base.into())?;
        own("attention.layer_norm_rms_epsilon", self.epsilon.into())?;
        own("attention.layer_norm_epsilon", self.epsilon.into())?;
        if let Some(StateSpace { kernel, inner, state, heads, groups }) = self.state_space {
            for (key, value) in [
                ("ssm.conv_kernel", kernel),
                ("ssm.inner_size", inner),
                ("ssm.state_size", state),
                ("ssm.time_step_rank", heads),
                ("ssm.group_count", groups),
            ] {
                own(key, number(key, value)?)?;
            }
        }
        if let Some(Experts { count, used, hidden, scale, .. }) = self.experts {
            own("expert_count", number("expert_count", count)?)?;
            own("expert_used_count", number("expert_used_count", used)?)?;
            own("expert_feed_forward_length", number("expert_feed_forward_length", hidden)?)?;
            if scale != 1.0 {
                own("expert_weights_scale", scale.into())?;
            }
        }
        vocabulary::describe(self.vocabulary, &mut metadata)?;
        for (key, value) in &self.metadata {
            metadata.set(key, value.clone())?;
        }
        Ok(metadata)
    }

    /// All tensors with their types, in the order of the file.
    pub fn typed_tensors(&self) -> Vec<(SynthTensor, DType)> {
        let tensors = self.all_tensors();
        let candidates: Vec<Candidate<'_>> = tensors
            .iter()
            .map(|tensor| Candidate { name: &tensor.name, extents: &tensor.extents, dtype: DType::F32 })
            .collect();
        let traits = Traits {
            architecture: self.architecture.name(),
            layers: self.layers,
            sharing: self.heads.checked_div(self.kv_heads).unwrap_or(0),
            experts: self.experts.map_or(0, |experts| experts.count),
            importance: false,
        };
        let types = mixture(self.file_type, self.spread, &traits, &candidates);
        tensors.into_iter().zip(types).collect()
    }

    /// The file in memory.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for dimensions that make no model.
    pub fn bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.write(&mut |_, _| {}, |writer| writer.write(&mut bytes))?;
        Ok(bytes)
    }

    /// The file at a path, whole or not at all; gives its bytes.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for dimensions that make no model, [`Error::File`] if the file cannot be written.
    pub fn create(&self, path: impl AsRef<Path>, progress: Progress<'_>) -> Result<u64, Error> {
        self.write(progress, |writer| writer.create(path))
    }

    /// The file with zeros for weights, which take no memory: what is planned and never run.
    ///
    /// # Errors
    /// [`Error::BadSetting`] for dimensions that make no model, [`Error::File`] for more bytes than the system maps.
    pub fn outline(&self) -> Result<GgufPart, Error> {
        self.check()?;
        let mut writer = Writer::with_metadata(self.keys()?);
        for (tensor, dtype) in self.typed_tensors() {
            writer.tensor_with(&tensor.name, dtype, &tensor.extents, |_| Ok(()))?;
        }
        Ok(writer.outline()?)
    }

    fn write(
        &self,
        progress: Progress<'_>,
        write: impl FnOnce(Writer<'_>) -> Result<u64, orlop_gguf::Error>,
    ) -> Result<u64, Error> {
        self.check()?;
        let tensors = self.typed_tensors();
        let pools = Pools::fill(self.seed, &tensors)?;
        let bytes = |(tensor, dtype): &(SynthTensor, DType)| tensor.bytes(*dtype);
        let all = tensors.iter().filter_map(bytes).fold(0, u64::saturating_add);
        let progress = RefCell::new((0, progress));
        let mut writer = Writer::with_metadata(self.keys()?);
        for (tensor, dtype) in &tensors {
            let (pools, progress) = (&pools, &progress);
            writer.tensor_with(&tensor.name, *dtype, &tensor.extents, move |out| {
                pools.pour(tensor, *dtype, out)?;
                let (done, progress) = &mut *progress.borrow_mut();
                *done += tensor.bytes(*dtype).unwrap_or(0);
                progress(*done, all);
                Ok(())
            })?;
        }
        Ok(write(writer)?)
    }

    fn check(&self) -> Result<(), Error> {
        let sizes = [
            ("layers", self.layers),
            ("width", self.width),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("key", self.key),
            ("value", self.value),
            ("vocabulary", self.vocabulary),
            ("context", self.context),
            ("hidden", self.experts.map_or(self.hidden, |experts| experts.hidden)),
            ("experts", self.experts.map_or(1, |experts| experts.count)),
        ];
        for (setting, value) in sizes {
            // Keys have 32 bits.
            if value == 0 || u32::try_from(value).is_err() {
                return Err(bad(setting, value, "it must be at least 1 and fit 32 bits"));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(bad("kv_heads", self.kv_heads, "heads of keys must divide heads of queries"));
        }
        match self.experts {
            Some(experts) if experts.used == 0 || experts.used > experts.count => {
                Err(bad("experts used", experts.used, "it must be at least 1, and no more than there are"))
            }
            _ => Ok(()),
        }
    }
}

fn bad(setting: &'static str, value: u64, rule: &'static str) -> Error {
    Error::BadSetting { setting, value: value.to_string(), rule }
}

fn number(setting: &'static str, value: u64) -> Result<MetadataValue, Error> {
    u32::try_from(value).map(MetadataValue::from).map_err(|_| bad(setting, value, "it must fit 32 bits"))
}

#[cfg(test)]
mod tests;
