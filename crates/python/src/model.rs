//! Models: loading, tokens, texts and logits.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use orlop::backend::{Cancel, DeviceError, Precision};
use orlop::gguf::{GgufFile, SharedBytes};
use orlop::llm::{
    CacheTypes, ChatPrompt, ChatTemplate, Content, Engine, Error, Forecast, Grammar, Message, Outputs, Part,
    SequenceId, Special, TemplateSource,
};
use orlop::model_options::{Drafting, ModelOptions, PlannedModel};
use orlop::{DType, Model as ModelFile, SamplingOptions, TextModel, TextOptions, Tokenizer, default_model};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Deserialize, Serialize};

use crate::array::Numbers;
use crate::error::{bad_value, json_error, raised};
use crate::picture::Pictures;
use crate::sequence::Sequence;
use crate::shared::Shared;
use crate::stream::TextStreaming;

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LoadedModel>()?;
    module.add_class::<ModelForecast>()?;
    module.add_class::<FileTokenizer>()
}

/// How a model is planned and loaded, as the package writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoadRequest {
    context: Option<u64>,
    batch: u64,
    sequences: u64,
    threads: Option<usize>,
    devices: Vec<String>,
    layers: Option<usize>,
    budgets: Vec<(String, u64)>,
    cache_k: String,
    cache_v: String,
    precision: String,
    all_logits: bool,
    lookup: u64,
    draft_model: Option<PathBuf>,
    draft_max: u64,
    /// The default model has a sampling of its own.
    is_default: bool,
}

impl LoadRequest {
    pub(crate) fn read(text: &str) -> PyResult<LoadRequest> {
        serde_json::from_str(text).map_err(json_error)
    }

    pub(crate) fn options(&self) -> PyResult<ModelOptions> {
        let dtype = |name: &str| {
            DType::from_name(name).ok_or_else(|| bad_value(format!("unknown element type `{name}`")))
        };
        let defaults = ModelOptions::default();
        Ok(ModelOptions {
            context: self.context,
            batch: self.batch,
            sequences: self.sequences.saturating_add(1),
            threads: self.threads.unwrap_or(defaults.threads),
            devices: self.devices.clone(),
            layers: self.layers,
            budgets: self.budgets.clone(),
            cache: CacheTypes { k: dtype(&self.cache_k)?, v: dtype(&self.cache_v)? },
            precision: match self.precision.as_str() {
                "int8" => Precision::Int8,
                "int16" => Precision::Int16,
                "f32" => Precision::F32,
                other => {
                    return Err(bad_value(format!("precision is `{other}`: it must be int8, int16 or f32")));
                }
            },
            outputs: if self.all_logits { Outputs::All } else { Outputs::Last },
            drafting: match &self.draft_model {
                Some(path) => Drafting::Model { path: path.clone(), most: self.draft_max },
                None => Drafting::Lookup { most: self.lookup },
            },
            ..defaults
        })
    }
}

/// How a text is continued, as the package writes it; what is missing is what the file recommends.
#[derive(Deserialize)]
pub(crate) struct TextRequest {
    max_tokens: Option<usize>,
    seed: u64,
    stop: Vec<String>,
    bias: Vec<(u32, f32)>,
    grammar: Option<GrammarRequest>,
    #[serde(flatten)]
    sampling: SamplingRequest,
}

/// What a text has to match.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum GrammarRequest {
    JsonSchema(serde_json::Value),
    JsonObject,
    Regex(String),
    /// GBNF or Lark.
    Text(String),
}

impl From<GrammarRequest> for Grammar {
    fn from(request: GrammarRequest) -> Grammar {
        match request {
            GrammarRequest::JsonSchema(schema) => Grammar::JsonSchema(schema),
            GrammarRequest::JsonObject => Grammar::JsonObject,
            GrammarRequest::Regex(pattern) => Grammar::Regex(pattern),
            GrammarRequest::Text(text) => Grammar::of_text(&text),
        }
    }
}

/// Sampling options; what is missing is what the file recommends.
#[derive(Deserialize)]
pub(crate) struct SamplingRequest {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    repeat_last: Option<usize>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
}

impl SamplingRequest {
    pub(crate) fn over(&self, file: SamplingOptions) -> SamplingOptions {
        SamplingOptions {
            temperature: self.temperature.unwrap_or(file.temperature),
            top_k: self.top_k.unwrap_or(file.top_k),
            top_p: self.top_p.unwrap_or(file.top_p),
            min_p: self.min_p.unwrap_or(file.min_p),
            repeat_penalty: self.repeat_penalty.unwrap_or(file.repeat_penalty),
            repeat_last: self.repeat_last.unwrap_or(file.repeat_last),
            frequency_penalty: self.frequency_penalty.unwrap_or(file.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(file.presence_penalty),
        }
    }
}

/// Facts of a model, which do not change.
#[derive(Serialize)]
struct Facts {
    context: u64,
    batch: u64,
    vocabulary: u64,
    embedding: u64,
    layers: usize,
    architecture: String,
    name: Option<String>,
    has_chat_template: bool,
    template: String,
    bos: Option<u32>,
    eos: Option<u32>,
    eot: Option<u32>,
    memory: Vec<MemoryShare>,
}

/// Bytes on one device.
#[derive(Serialize)]
struct MemoryShare {
    device: String,
    weights: u64,
    repacked: u64,
    kv: u64,
    compute: u64,
    total: u64,
    free: Option<u64>,
}

fn shares(forecast: &Forecast) -> Vec<MemoryShare> {
    let share = |device: &orlop::llm::DeviceMemory| MemoryShare {
        device: device.name.clone(),
        weights: device.weights,
        repacked: device.repacked,
        kv: device.kv,
        compute: device.compute,
        total: device.total(),
        free: device.free,
    };
    forecast.devices.iter().map(share).collect()
}

/// A model in memory.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct LoadedModel {
    pub(crate) shared: Shared<TextModel>,
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    sampling: SamplingOptions,
    facts: String,
    pub(crate) vocabulary: usize,
    /// Sequences whose objects are gone; they end at the next call.
    pub(crate) dropped: Mutex<Vec<SequenceId>>,
}

/// Messages of a chat, as the package writes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatMessage {
    role: String,
    content: Vec<String>,
    #[serde(default)]
    name: Option<String>,
}

#[pymethods]
impl LoadedModel {
    /// Plans a model file for the devices that the options name, and loads it.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, options: &str) -> PyResult<LoadedModel> {
        let request = LoadRequest::read(options)?;
        let options = request.options()?;
        py.detach(|| {
            let file = open(&path)?;
            let metadata = file.file().metadata();
            let mut loaded = options.load(&file).map_err(raised)?;
            if request.is_default {
                loaded =
                    loaded.with_sampling(default_model::sampling().recommended(metadata).map_err(raised)?);
            }
            let (tokenizer, sampling) = (Arc::clone(loaded.tokenizer()), loaded.sampling());
            let template = ChatTemplate::from_metadata(metadata, &tokenizer);
            let memory = shares(&loaded.memory());
            let engine = loaded.engine();
            let (blueprint, config) = (engine.blueprint(), engine.config());
            let name = metadata.optional("general.name", orlop::gguf::Metadata::string).ok().flatten();
            let facts = Facts {
                context: blueprint.context(),
                batch: blueprint.batch(),
                vocabulary: config.vocabulary,
                embedding: config.width,
                layers: config.layers.len(),
                architecture: config.architecture.name().to_owned(),
                name: name.map(str::to_owned),
                has_chat_template: template.source() == TemplateSource::File,
                template: template.text().to_owned(),
                bos: tokenizer.bos(),
                eos: tokenizer.eos(),
                eot: tokenizer.eot(),
                memory,
            };
            let facts = serde_json::to_string(&facts).map_err(json_error)?;
            let vocabulary = config.vocabulary as usize;
            let (shared, dropped) = (Shared::new("model", loaded), Mutex::default());
            Ok(LoadedModel { shared, tokenizer, template, sampling, facts, vocabulary, dropped })
        })
    }

    /// What does not change, as JSON.
    fn facts(&self) -> &str {
        &self.facts
    }

    /// Passes unless it is closed, or belongs to another process.
    fn check(&self) -> PyResult<()> {
        self.shared.check()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }

    /// The tokens of a text; `prompt`: with BOS and EOS where the file says so.
    fn tokenize(&self, py: Python<'_>, text: &str, prompt: bool, special: bool) -> Vec<u32> {
        py.detach(|| tokens_of(&self.tokenizer, text, prompt, special))
    }

    /// The bytes of tokens.
    fn detokenize<'py>(&self, py: Python<'py>, tokens: Vec<u32>, special: bool) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &bytes_of(&self.tokenizer, &tokens, special))
    }

    /// Whether a token ends texts.
    fn is_end(&self, token: u32) -> bool {
        self.tokenizer.is_end(token)
    }

    /// The tokens of a chat before its next answer, and the texts that end the answer.
    fn chat_prompt(&self, messages: &str) -> PyResult<(Vec<u32>, Vec<&'static str>)> {
        let messages: Vec<ChatMessage> = serde_json::from_str(messages).map_err(json_error)?;
        let message = |said: ChatMessage| {
            let content = match <[String; 1]>::try_from(said.content) {
                Ok([text]) => Content::Text(text),
                Err(parts) => Content::Parts(parts),
            };
            Message { role: said.role, content, name: said.name, ..Message::default() }
        };
        let messages: Vec<Message> = messages.into_iter().map(message).collect();
        let text = self.template.render(&messages, &ChatPrompt::Answer.into()).map_err(raised)?;
        let stop = if self.template.source() == TemplateSource::File { vec![] } else { vec!["\nUser:"] };
        Ok((self.tokenizer.chat(&text), stop))
    }

    /// Starts to continue a prompt; the result is read while it is made.
    fn stream(&self, py: Python<'_>, prompt: Vec<u32>, request: &str) -> PyResult<TextStreaming> {
        let request: TextRequest = serde_json::from_str(request).map_err(json_error)?;
        let options = TextOptions {
            max_tokens: request.max_tokens,
            sampling: Some(request.sampling.over(self.sampling)),
            seed: request.seed,
            stop: request.stop,
            bias: request.bias,
            grammar: request.grammar.map(Grammar::from),
        };
        let cancel = Cancel::new();
        let lent = self.shared.take_for_stream(py, cancel.clone())?;
        TextStreaming::start(lent, prompt, options, cancel)
    }

    /// The logits behind the last of some tokens, or behind all of them, from an empty context.
    fn logits(&self, py: Python<'_>, tokens: Vec<u32>, all: bool) -> PyResult<Numbers> {
        let rows = if all { tokens.len() } else { 1 };
        let width = self.vocabulary;
        let data = self.shared.compute(py, |model, cancel| {
            let engine = model.engine();
            engine.cancel_with(Some(cancel.clone()));
            engine.truncate(0);
            let part = if all {
                Part::all(SequenceId::FIRST, &tokens)
            } else {
                Part::last(SequenceId::FIRST, &tokens)
            };
            let read = read_logits(engine, &[part], rows, width);
            engine.cancel_with(None);
            engine.truncate(0);
            read
        })?;
        let shape = if all { vec![rows as u64, width as u64] } else { vec![width as u64] };
        Ok(Numbers::floats(data, shape))
    }

    /// Feeds sequences together. Gives the logits behind the last token of each, or behind all of them.
    fn feed(
        &self,
        py: Python<'_>,
        parts: Vec<(PyRef<'_, Sequence>, Vec<u32>)>,
        all: bool,
    ) -> PyResult<Vec<Numbers>> {
        let parts: Vec<(SequenceId, Vec<u32>)> = parts
            .into_iter()
            .map(|(sequence, tokens)| Ok((sequence.id()?, tokens)))
            .collect::<PyResult<_>>()?;
        let count = |tokens: &[u32]| if all { tokens.len() } else { usize::from(!tokens.is_empty()) };
        let counts: Vec<usize> = parts.iter().map(|(_, tokens)| count(tokens)).collect();
        let width = self.vocabulary;
        let data = self.shared.compute(py, |model, cancel| {
            let engine = model.engine_for_sequences();
            self.end_dropped(engine)?;
            engine.cancel_with(Some(cancel.clone()));
            let parts: Vec<Part<'_>> = parts.iter().map(|given| part_of(given, all)).collect();
            let read = read_logits(engine, &parts, counts.iter().sum(), width);
            engine.cancel_with(None);
            read
        })?;
        if let [count] = counts[..] {
            return Ok(vec![rows(data, all, count, width)]);
        }
        let mut rest = data.as_slice();
        let part = |count: &usize| {
            let (data, after) = rest.split_at(count * width);
            rest = after;
            rows(data.to_vec(), all, *count, width)
        };
        Ok(counts.iter().map(part).collect())
    }

    /// An empty sequence.
    fn start_sequence(slf: Py<Self>, py: Python<'_>) -> PyResult<Sequence> {
        let id = slf.get().with_sequences(py, Engine::start_sequence)?;
        Ok(Sequence::new(slf, id))
    }

    /// The tokens of the last prompt and text in the cache, and what the cache holds of them, to continue from later.
    fn save_state<'py>(&self, py: Python<'py>) -> PyResult<(Vec<u32>, Bound<'py, PyBytes>)> {
        let (tokens, bytes) = self.shared.with(py, |model| {
            let tokens = model.cached().to_vec();
            let engine = model.engine();
            engine.truncate(tokens.len());
            let bytes = engine.sequence_bytes(SequenceId::FIRST, &tokens)?;
            model.set_cached(&tokens)?;
            Ok::<_, Error>((tokens, bytes))
        })?;
        Ok((tokens, PyBytes::new(py, &bytes)))
    }

    /// Goes back to a saved state, and gives its tokens.
    fn load_state(&self, py: Python<'_>, state: Vec<u8>) -> PyResult<Vec<u32>> {
        let state: SharedBytes = Arc::new(state);
        self.shared.with(py, |model| {
            let tokens = model.engine().load_sequence_bytes(SequenceId::FIRST, state)?;
            model.set_cached(&tokens)?;
            Ok::<_, Error>(tokens)
        })
    }

    /// Drafted and accepted tokens so far.
    fn drafts(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        self.shared.with(py, |model| {
            let counts = model.drafts();
            Ok::<_, Error>((counts.drafted, counts.accepted))
        })
    }
}

impl LoadedModel {
    /// Quick work on sequences beside the one of texts.
    pub(crate) fn with_sequences<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Engine) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        self.shared.with(py, |model| {
            let engine = model.engine_for_sequences();
            self.end_dropped(engine)?;
            work(engine)
        })
    }

    /// Ends sequences whose objects are gone.
    fn end_dropped(&self, engine: &mut Engine) -> Result<(), Error> {
        let dropped = std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        dropped.iter().try_for_each(|id| engine.end_sequence(*id))
    }
}

fn part_of((id, tokens): &(SequenceId, Vec<u32>), all: bool) -> Part<'_> {
    if all { Part::all(*id, tokens) } else { Part::last(*id, tokens) }
}

fn rows(data: Vec<f32>, all: bool, count: usize, width: usize) -> Numbers {
    let shape = if all { vec![count as u64, width as u64] } else { vec![width as u64] };
    Numbers::floats(data, shape)
}

/// Feeds parts, and reads the wanted rows from the device to where they stay. There is memory for them only once the engine
/// has taken the parts, which limits their number.
fn read_logits(
    engine: &mut Engine,
    parts: &[Part<'_>],
    rows: usize,
    width: usize,
) -> Result<Vec<f32>, Error> {
    let mut data: Vec<f32> = Vec::new();
    engine.feed_parts(parts, &mut |mut seen| {
        let (begin, bytes) = (data.len(), (rows as u64).saturating_mul(width as u64).saturating_mul(4));
        data.try_reserve_exact(rows.saturating_mul(width) - begin)
            .map_err(|_| DeviceError::OutOfMemory { buffer_type: "the host".to_owned(), bytes })?;
        data.resize(begin + seen.rows().len() * width, 0.0);
        seen.read_into(&mut data[begin..])
    })?;
    Ok(data)
}

pub(crate) fn open(path: &std::path::Path) -> PyResult<ModelFile> {
    ModelFile::open(path).map_err(|error| raised(format!("{}: {error}", path.display())))
}

fn tokens_of(tokenizer: &Tokenizer, text: &str, prompt: bool, special: bool) -> Vec<u32> {
    let special = if special { Special::Parse } else { Special::AsText };
    if prompt { tokenizer.prompt(text, special) } else { tokenizer.encode(text, special) }
}

fn bytes_of(tokenizer: &Tokenizer, tokens: &[u32], special: bool) -> Vec<u8> {
    let bytes = |id: &u32| if special { tokenizer.decode_special(*id) } else { tokenizer.decode(*id) };
    tokens.iter().flat_map(bytes).copied().collect()
}

/// The tokenizer of a model file, without the model.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct FileTokenizer {
    tokenizer: Tokenizer,
}

#[pymethods]
impl FileTokenizer {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<FileTokenizer> {
        py.detach(|| {
            let refused = |error: &dyn std::fmt::Display| raised(format!("{}: {error}", path.display()));
            let file = GgufFile::open(&path).map_err(|error| refused(&error))?;
            let tokenizer = Tokenizer::from_metadata(file.metadata()).map_err(|error| refused(&error))?;
            Ok(FileTokenizer { tokenizer })
        })
    }

    fn tokenize(&self, text: &str, prompt: bool, special: bool) -> Vec<u32> {
        tokens_of(&self.tokenizer, text, prompt, special)
    }

    fn detokenize<'py>(&self, py: Python<'py>, tokens: Vec<u32>, special: bool) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &bytes_of(&self.tokenizer, &tokens, special))
    }

    /// BOS, EOS, and the end of a turn.
    fn special(&self) -> (Option<u32>, Option<u32>, Option<u32>) {
        (self.tokenizer.bos(), self.tokenizer.eos(), self.tokenizer.eot())
    }
}

/// A model that is planned and not loaded.
#[pyclass(frozen, module = "orlop._orlop")]
pub(crate) struct ModelForecast {
    facts: String,
    pub(crate) pictures: Pictures,
}

#[pymethods]
impl ModelForecast {
    #[staticmethod]
    fn plan(py: Python<'_>, path: PathBuf, options: &str) -> PyResult<ModelForecast> {
        let options = LoadRequest::read(options)?.options()?;
        py.detach(|| {
            let planned = options.plan(&open(&path)?).map_err(raised)?;
            let PlannedModel { blueprint, forecast, largest_context } = planned;
            let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
            let pictures = orlop::model_pictures::pictures(&blueprint, &name).map_err(raised)?;
            let facts = serde_json::json!({
                "context": forecast.context,
                "fits": forecast.fits(),
                "largest_context": largest_context,
                "trained_context": blueprint.trained_context(),
                "layers": forecast.layers,
                "memory": shares(&forecast),
            });
            let facts = serde_json::to_string(&facts).map_err(json_error)?;
            Ok(ModelForecast { facts, pictures: Pictures(pictures.into()) })
        })
    }

    fn facts(&self) -> &str {
        &self.facts
    }

    fn html(&self) -> PyResult<String> {
        self.pictures.html()
    }

    fn svg(&self) -> PyResult<String> {
        self.pictures.svg()
    }

    /// Both as one page, and what differs as text.
    fn beside(&self, other: &ModelForecast) -> PyResult<(String, String)> {
        self.pictures.beside(&other.pictures)
    }
}
