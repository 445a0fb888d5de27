//! Language models from GGUF files, on the devices at hand.
//!
//! A [`Model`] is a file that is understood, a [`Blueprint`] says where everything goes and what it takes before anything
//! is allocated, an [`Engine`] runs it. [`generate()`] feeds a prompt and samples; [`Chat`] keeps what was said and seen.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use orlop_cpu::{CpuDevice, ThreadPool};
//! use orlop_llm::{
//!     Blueprint, Engine, GenerateEvent, Model, Sampler, SamplingOptions, Settings, Special, TextStream, Tokenizer,
//!     generate,
//! };
//! use orlop_sched::Machine;
//!
//! let model = Model::open("model.gguf")?;
//! let tokenizer = Tokenizer::from_metadata(model.file().metadata())?;
//! let pool = ThreadPool::for_machine()?;
//! let settings = Settings { threads: pool.threads(), ..Settings::default() };
//! let machine = Machine::new(vec![CpuDevice::new(pool) as _])?;
//! let blueprint = Blueprint::plan(&model, &machine, &settings)?;
//! println!("{} bytes", blueprint.forecast()?.devices[0].total());
//!
//! let mut engine = Engine::load(blueprint, &mut |_, _| ())?;
//! let mut sampler = Sampler::new(SamplingOptions::default(), 42);
//! let prompt = tokenizer.prompt("Once upon a time", Special::Parse);
//! let mut text = TextStream::new();
//! generate(&mut engine, &tokenizer, &mut sampler, &prompt, Some(32), &mut |event| {
//!     if let GenerateEvent::Token(token) = event {
//!         print!("{}", text.push(tokenizer.decode(token)));
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! println!("{}", text.finish());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(clippy::unwrap_used)]

mod adapter;
mod arch;
mod blueprint;
mod cache;
mod cache_rotation;
mod chat;
mod chat_output;
mod chat_template;
mod config;
mod cuts;
mod draft;
mod embedder;
mod engine;
mod error;
mod expert_counts;
mod expert_weights;
mod fit_choices;
mod forecast;
mod generate;
mod grammar;
mod importance;
mod key_bias;
mod mixture;
mod model;
mod pages;
mod perplexity;
mod placing;
mod planned_graph;
mod pooling;
mod quantize;
mod run_shapes;
mod run_table;
mod sampling;
mod sequences;
mod settings;
mod speculate;
mod speed_forecast;
mod synth;
mod text;
mod text_model;
mod tokenizer;
mod weight_memory;
mod weights;

pub use adapter::{LoraAdapter, LoraError};
pub use arch::Architecture;
pub use blueprint::{Blueprint, LayerSplit};
pub use chat::{Chat, ChatEvent, Turn};
pub use chat_output::{AnswerFormat, AnswerParser, AnswerPart};
pub use chat_template::{
    ChatPrompt, ChatTemplate, Content, Message, RenderOptions, TemplateSource, ToolCall,
};
pub use config::{Config, Experts, Feed, Gating, Latent, LayerConfig, Mixer, QueryGrowth, StateSpace};
pub use draft::{BatchShape, ModelPart};
pub use embedder::{Embedder, Embeddings};
pub use engine::{
    Engine, LogitsRow, PagePoolUse, Part, RecordedRun, Row, RunFailure, RunRows, SequenceLeft, StateError,
    Wanted,
};
pub use error::Error;
pub use expert_counts::{ExpertCounter, ExpertCounts};
pub use fit_choices::{FitChoice, FittingType};
pub use forecast::{DeviceMemory, Forecast, StoredKind, StoredPlace, StoredSet};
pub use generate::{End, GenerateEvent, GenerateOptions, generate, generate_with};
pub use grammar::{Grammar, GrammarCompiler, GrammarError, GrammarMatcher, ToolChoice};
pub use importance::{Importance, ImportanceSums};
pub use mixture::{Candidate, FileType, MixturePolicy, Traits, mixture};
pub use model::Model;
pub use pages::PAGE_ROWS;
pub use perplexity::{Perplexity, PerplexityOptions, perplexity};
pub use placing::{PartDecision, PlacementDecisions, Workload};
pub use pooling::Pooling;
pub use quantize::{Quantization, Quantized, quantize};
pub use sampling::{LogProbabilities, Sampler, SamplingOptions, TokenMask};
pub use sequences::SequenceId;
pub use settings::{CacheTypes, CutType, HotExperts, LayerChoice, LayerPlacement, Outputs, Settings};
pub use speculate::{
    BatchSpeculator, DifferentToken, DraftCounts, DraftModel, Drafter, Lookup, PairBlueprint, SequenceDraft,
    SequenceText, Speculator, VocabularyDifference,
};
pub use speed_forecast::SpeedForecast;
pub use synth::{Synth, SynthTensor};
pub use text::{StopText, TextStream};
pub use text_model::{GeneratedText, TextModel, TextOptions};
pub use tokenizer::{Special, Tokenizer, TokenizerError};
pub use weights::Progress;
