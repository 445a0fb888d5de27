//! What can go wrong with a model: names and numbers, and no command-line flags.

use orlop_alloc::Error as AllocError;
use orlop_backend::DeviceError;
use orlop_graph::GraphError;

use crate::{
    GrammarError, LayerSplit, LoraError, RunFailure, StateError, TokenizerError, VocabularyDifference,
};

/// What can go wrong with a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file, or what it says about itself.
    #[error("the model file: {0}")]
    File(#[from] orlop_gguf::Error),
    /// Its architecture is not known.
    #[error("the architecture `{name}` is not known; the nearest known one is `{nearest}`")]
    UnknownArchitecture {
        /// What the file says.
        name: String,
        /// The known one whose name is nearest.
        nearest: &'static str,
    },
    /// It is the part of another model that reads pictures or sounds.
    #[error(
        "`{name}` files read pictures or sounds for a model of text, and are not supported; use the model's own file"
    )]
    Projector {
        /// What the file says that it is.
        name: String,
    },
    /// An adapter that cannot be used with the model.
    #[error("the adapter: {0}")]
    Adapter(Box<LoraError>),
    /// A key has an invalid value.
    #[error("`{key}` is {value}: {rule}")]
    BadKey {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What it should be.
        rule: &'static str,
    },
    /// The file lacks a tensor.
    #[error("the model has no tensor `{0}`")]
    MissingTensor(String),
    /// A tensor is of another size than the metadata says.
    #[error("the tensor `{name}` is {found:?} and should be {expected:?}")]
    TensorShape {
        /// Its name.
        name: String,
        /// What the metadata says.
        expected: Vec<u64>,
        /// What is there.
        found: Vec<u64>,
    },
    /// No kind of memory of the device serves all uses of a weight.
    #[error("{device} has no memory for `{tensor}` from which it can be used: {reason}")]
    NoMemoryFor {
        /// The device.
        device: String,
        /// The weight.
        tensor: String,
        /// What the last kind of memory was refused for.
        reason: String,
    },
    /// There is no room in the context.
    #[error("{tokens} tokens do not fit the context of {context} ({used} are in use)")]
    ContextFull {
        /// Tokens to be added.
        tokens: usize,
        /// Tokens that it holds.
        context: u64,
        /// Tokens in it.
        used: usize,
    },
    /// Too few pages of the cache are free.
    #[error("the tokens need {needed} pages of the cache, and {free} are free")]
    NoPages {
        /// Pages that they need.
        needed: u64,
        /// Pages that no sequence uses.
        free: usize,
    },
    /// There is no such sequence, or it has ended.
    #[error("there is no sequence {0} in the cache")]
    UnknownSequence(u32),
    /// The maximum of sequences is in use.
    #[error("the cache is for {sequences} sequences at a time, and all are in use")]
    TooManySequences {
        /// How many there may be.
        sequences: usize,
    },
    /// A state cannot be rewound, nor a window to rows that are gone.
    #[error(
        "the cache no longer holds what is needed to go back to {len} of {tokens} tokens; start with an empty sequence"
    )]
    NoWayBack {
        /// The tokens that were to be kept.
        len: usize,
        /// The tokens there are.
        tokens: usize,
    },
    /// Speculative decoding with a model that keeps a state.
    #[error(
        "speculative decoding takes rejected tokens back, and a {architecture} model keeps a state that cannot go back"
    )]
    CannotRewind {
        /// The architecture.
        architecture: &'static str,
    },
    /// A draft model with other tokens.
    #[error("the draft model has another vocabulary: {difference}")]
    OtherVocabulary {
        /// How they differ.
        difference: VocabularyDifference,
    },
    /// Text was to be made by a model that makes embeddings.
    #[error("a {architecture} model makes embeddings, and no text")]
    MakesNoText {
        /// The architecture.
        architecture: &'static str,
    },
    /// Embeddings were to be made by a model that cannot be fed whole texts.
    #[error("embeddings of {architecture} models are not supported")]
    MakesNoEmbeddings {
        /// The architecture.
        architecture: &'static str,
    },
    /// A text that is longer than a run.
    #[error(
        "text number {index} has {tokens} tokens, and at most {most} fit; shorten it or set a larger context"
    )]
    TextTooLong {
        /// Its place among the texts, from 0.
        index: usize,
        /// Tokens it has.
        tokens: usize,
        /// Tokens a text may have.
        most: u64,
    },
    /// A classifier was asked for embeddings, or another model for scores.
    #[error("the model gives {given}, and {wanted} were asked for")]
    OtherRows {
        /// What it gives.
        given: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The model has a tensor that its architecture does not use, so its results would be wrong.
    #[error("the tensor `{tensor}` is not known in the architecture `{architecture}`")]
    UnknownTensor {
        /// Its name.
        tensor: String,
        /// The architecture.
        architecture: &'static str,
    },
    /// The context that was asked for does not fit the devices' memory.
    #[error("a context of {context} needs {needed} bytes on {device}, which has {available}; {}", offers(*.largest, *.divided))]
    DoesNotFit {
        /// What was asked for.
        context: u64,
        /// The device that is too small.
        device: String,
        /// Bytes it would take there.
        needed: u64,
        /// Bytes there are.
        available: u64,
        /// The largest context that fits where everything is.
        largest: Option<u64>,
        /// The most layers that fit on the first device, if there are several.
        divided: Option<LayerSplit>,
    },
    /// There is no token to feed.
    #[error("the prompt is empty, and the model has no token to begin with; give at least one token")]
    EmptyPrompt,
    /// Logits were asked for, and there are none.
    #[error("there are no logits: nothing was fed yet, the last run failed, or it did not give this row")]
    NoLogits,
    /// A run failed on a device. It says which sequences survive.
    #[error("{}", .0.cause)]
    RunFailed(Box<RunFailure>),
    /// The file of a saved sequence.
    #[error("the saved sequence: {0}")]
    State(Box<StateError>),
    /// A text with too few tokens to score.
    #[error("the text has {tokens} tokens, and at least {needed} are needed")]
    TextTooShort {
        /// Tokens there are.
        tokens: usize,
        /// Tokens of a chunk.
        needed: usize,
    },
    /// A token id that is not in the vocabulary.
    #[error("token {token} is not one of the model's {vocabulary}")]
    UnknownToken {
        /// The id.
        token: u32,
        /// How many there are.
        vocabulary: u64,
    },
    /// Settings that contradict each other or the model.
    #[error("{setting} is {value}: {rule}")]
    BadSetting {
        /// Which.
        setting: &'static str,
        /// What was given.
        value: String,
        /// What it should be.
        rule: &'static str,
    },
    /// A model was to be written over itself.
    #[error("{} is the model that is being read; give another name", .0.display())]
    SameFile(std::path::PathBuf),
    /// A tensor would have to be read or written in a type that has no codec.
    #[error(
        "the tensor `{tensor}` cannot be converted: there is no way to read or to make {dtype}; use another type"
    )]
    NoCodec {
        /// The tensor.
        tensor: String,
        /// The type.
        dtype: orlop_graph::DType,
    },
    /// Importance data cannot be used.
    #[error("the importance of {tensor} cannot be used: {what}; make the data from this model")]
    Importance {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        what: String,
    },
    /// The file has no tokenizer that can be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A grammar that an answer has to match.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// A chat template cannot be read or used.
    #[error("the chat template does not work: {0}")]
    ChatTemplate(String),
    /// Memory plans of another model, or for other settings.
    #[error("none of the {plans} saved plans is of this model with these settings (signature {signature})")]
    OtherPlans {
        /// Of a graph that none is for.
        signature: String,
        /// How many were given.
        plans: usize,
    },
    /// A graph of the model is invalid.
    #[error("the model's graph is invalid: {0}")]
    Graph(Box<GraphError>),
    /// Planning or running on several devices.
    #[error(transparent)]
    Schedule(Box<orlop_sched::Error>),
    /// Memory for weights or caches.
    #[error(transparent)]
    Memory(Box<AllocError>),
    /// A device refused.
    #[error(transparent)]
    Device(Box<DeviceError>),
}

fn offers(largest: Option<u64>, divided: Option<LayerSplit>) -> String {
    let largest = largest.map(|largest| format!("the largest that fits is {largest}"));
    let divided = divided.map(|divided| divided.to_string());
    match (largest, divided) {
        (None, None) => "no context fits".to_owned(),
        (largest, divided) => largest.into_iter().chain(divided).collect::<Vec<_>>().join(", or "),
    }
}

impl From<orlop_sched::Error> for Error {
    fn from(error: orlop_sched::Error) -> Error {
        Error::Schedule(Box::new(error))
    }
}

impl From<AllocError> for Error {
    fn from(error: AllocError) -> Error {
        Error::Memory(Box::new(error))
    }
}

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Error {
        Error::Graph(Box::new(error))
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        Error::Device(Box::new(error))
    }
}
