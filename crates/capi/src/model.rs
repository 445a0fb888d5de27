//! Models, tokens and texts.

use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::ptr;
use std::sync::{Arc, MutexGuard};

use orlop::llm::{End, SequenceId, Special};
use orlop::model_options::{Drafting, ModelOptions};
use orlop::{Model, SamplingOptions, TextModel, TextOptions, Tokenizer};

use crate::error::{Refusal, check_version, orlop_error, orlop_status, run};
use crate::pointer;
use crate::shared::Shared;

/// The version of the structures, with which they begin.
pub const ORLOP_STRUCT_VERSION: u32 = 1;

/// How a model is planned and loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_model_options {
    /// ORLOP_STRUCT_VERSION.
    pub version: u32,
    /// Threads of the CPU; 0: one for each core.
    pub threads: u32,
    /// Tokens that the cache holds; 0: as many as the model was trained for, or as many as fit.
    pub context: u64,
    /// Maximum of tokens in a run.
    pub batch: u64,
    /// Maximum of sequences beside the one of texts.
    pub sequences: u64,
    /// Maximum of tokens that prompt lookup drafts; 0: none.
    pub lookup: u64,
    /// Layers on the first device; -1: the placement with the least predicted time.
    pub layers: i64,
    /// Names of devices with commas between, the most preferred first; NULL: the CPU.
    pub devices: *const c_char,
}

/// Facts of a loaded model.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct orlop_model_info {
    /// ORLOP_STRUCT_VERSION.
    pub version: u32,
    /// The token that begins a text; -1: none.
    pub bos: i32,
    /// The token that ends a text; -1: none.
    pub eos: i32,
    /// Tokens that the cache holds.
    pub context: u64,
    /// Tokens of the vocabulary.
    pub vocabulary: u64,
    /// Bytes on all devices.
    pub bytes: u64,
}

/// How a text is continued.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct orlop_text_options {
    /// ORLOP_STRUCT_VERSION.
    pub version: u32,
    /// Likeliest tokens that are kept; 0: all.
    pub top_k: u32,
    /// Maximum of new tokens; 0: no limit.
    pub max_tokens: u64,
    /// Seed of the sampler.
    pub seed: u64,
    /// 0 takes the likeliest token; below 0: temperature, top_k, top_p and min_p are what the model file recommends.
    pub temperature: f32,
    /// Likeliest tokens that together have this probability are kept; 1: all.
    pub top_p: f32,
    /// Minimum probability relative to the likeliest token; 0: none.
    pub min_p: f32,
    /// Penalty for repeated tokens; 1: none.
    pub repeat_penalty: f32,
}

/// How a text ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum orlop_end {
    /// The model ended it.
    OrlopEndToken = 0,
    /// As many tokens as were wanted.
    OrlopEndLimit = 1,
    /// The context is full.
    OrlopEndContext = 2,
    /// The callback stopped it.
    OrlopEndStopped = 3,
}

/// Sees a piece of whole characters; returns false to stop. `text` does not end with a zero.
pub type orlop_text_callback =
    Option<unsafe extern "C" fn(text: *const c_char, length: usize, user_data: *mut c_void) -> bool>;

/// A model in memory.
pub struct orlop_model {
    pub(crate) loaded: Arc<Loaded>,
}

pub(crate) struct Loaded {
    model: Shared<TextModel>,
    tokenizer: Arc<Tokenizer>,
    info: orlop_model_info,
}

impl Loaded {
    /// The model, if no other call uses it.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, TextModel>, Refusal> {
        self.model.lock()
    }

    /// Ends a sequence, before the next call at the latest.
    pub(crate) fn end(&self, id: SequenceId) {
        self.model.release(id);
    }

    pub(crate) fn vocabulary(&self) -> usize {
        self.info.vocabulary as usize
    }
}

impl orlop_model_options {
    /// # Safety
    /// `devices` is NULL or a text.
    pub(crate) unsafe fn read(&self) -> Result<ModelOptions, Refusal> {
        check_version("orlop_model_options", self.version, ORLOP_STRUCT_VERSION)?;
        let defaults = ModelOptions::default();
        let devices = if self.devices.is_null() {
            defaults.devices.clone()
        } else {
            // SAFETY: the caller promises it.
            let names = unsafe { pointer::text(self.devices, "devices") }?;
            names.split(',').map(|name| name.trim().to_owned()).collect()
        };
        Ok(ModelOptions {
            context: (self.context > 0).then_some(self.context),
            batch: self.batch,
            sequences: self.sequences.saturating_add(1),
            threads: if self.threads == 0 { defaults.threads } else { self.threads as usize },
            devices,
            layers: usize::try_from(self.layers).ok(),
            drafting: Drafting::Lookup { most: self.lookup },
            ..defaults
        })
    }
}

/// Sets options to their defaults.
///
/// # Safety
/// `options` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_model_options_init(options: *mut orlop_model_options) {
    let defaults = orlop_model_options {
        version: ORLOP_STRUCT_VERSION,
        threads: 0,
        context: 0,
        batch: 512,
        sequences: 0,
        lookup: 0,
        layers: -1,
        devices: ptr::null(),
    };
    // SAFETY: the caller promises it.
    unsafe { pointer::give(options, defaults) };
}

/// Sets options to their defaults: what the model file recommends.
///
/// # Safety
/// `options` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_text_options_init(options: *mut orlop_text_options) {
    let SamplingOptions { top_k, top_p, min_p, repeat_penalty, .. } = SamplingOptions::default();
    let defaults = orlop_text_options {
        version: ORLOP_STRUCT_VERSION,
        top_k: top_k as u32,
        max_tokens: 0,
        seed: 0,
        temperature: -1.0,
        top_p,
        min_p,
        repeat_penalty,
    };
    // SAFETY: the caller promises it.
    unsafe { pointer::give(options, defaults) };
}

/// Opens a GGUF file, plans the model and loads it.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_model_open(
    path: *const c_char,
    options: *const orlop_model_options,
    model: *mut *mut orlop_model,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let path = unsafe { pointer::text(path, "path") }?;
        // SAFETY: the caller promises it.
        let options = unsafe { pointer::object(options, "options") }?;
        // SAFETY: the caller promises it.
        let options = unsafe { options.read() }?;
        if model.is_null() {
            return Err(Refusal::null("model"));
        }
        let file = Model::open(path).map_err(|error| Refusal::failed(format!("{path}: {error}")))?;
        let mut loaded = options.load(&file).map_err(Refusal::failed)?;
        let tokenizer = Arc::clone(loaded.tokenizer());
        let bytes = loaded.memory().devices.iter().map(|device| device.total()).sum();
        let engine = loaded.engine();
        let id = |token: Option<u32>| token.map_or(-1, |token| token as i32);
        let info = orlop_model_info {
            version: ORLOP_STRUCT_VERSION,
            bos: id(tokenizer.bos()),
            eos: id(tokenizer.eos()),
            context: engine.blueprint().context(),
            vocabulary: engine.config().vocabulary,
            bytes,
        };
        let loaded = Arc::new(Loaded { model: Shared::new("model", loaded), tokenizer, info });
        // SAFETY: the caller promises it.
        unsafe { pointer::give_object(model, orlop_model { loaded }, "model") }
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Frees a model. Its memory is free when its last sequence is, too.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_model_free(model: *mut orlop_model) {
    // SAFETY: the caller promises it.
    unsafe { pointer::free(model) };
}

/// Facts of a model. `info` says which version is wanted.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_model_facts(
    model: *const orlop_model,
    info: *mut orlop_model_info,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let model = unsafe { pointer::object(model, "model") }?;
        // SAFETY: the caller promises it.
        let wanted = unsafe { pointer::object(info, "info") }?.version;
        check_version("orlop_model_info", wanted, ORLOP_STRUCT_VERSION)?;
        // SAFETY: the caller promises it.
        unsafe { pointer::give(info, model.loaded.info) };
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// The tokens of a text of `length` bytes. `prompt` adds what a prompt begins and ends with; special tokens are parsed. `count`
/// gets how many there are, also if `capacity` is smaller.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_tokenize(
    model: *const orlop_model,
    text: *const c_char,
    length: usize,
    prompt: bool,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let model = unsafe { pointer::object(model, "model") }?;
        // SAFETY: the caller promises it.
        let text = unsafe { pointer::array(text.cast::<u8>(), length, "text") }?;
        let text = std::str::from_utf8(text).map_err(|error| Refusal::argument(format!("text: {error}")))?;
        let tokenizer = &model.loaded.tokenizer;
        let made = if prompt {
            tokenizer.prompt(text, Special::Parse)
        } else {
            tokenizer.encode(text, Special::Parse)
        };
        // SAFETY: the caller promises it.
        unsafe { give_all(&made, tokens, capacity, count, "tokens") }
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// The bytes of tokens, without a zero at the end. `length` gets how many there are, also if `capacity` is smaller.
///
/// # Safety
/// As the rules of the header say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_detokenize(
    model: *const orlop_model,
    tokens: *const u32,
    count: usize,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let model = unsafe { pointer::object(model, "model") }?;
        // SAFETY: the caller promises it.
        let tokens = unsafe { pointer::array(tokens, count, "tokens") }?;
        let bytes: Vec<u8> =
            tokens.iter().flat_map(|token| model.loaded.tokenizer.decode(*token)).copied().collect();
        // SAFETY: the caller promises it.
        unsafe { give_all(&bytes, text.cast(), capacity, length, "text") }
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}

/// Copies values to an array of the caller, and says how many there are.
///
/// # Safety
/// `into` is NULL or has room for `capacity` values; `count` is NULL or may be written.
pub(crate) unsafe fn give_all<T: Copy>(
    made: &[T],
    into: *mut T,
    capacity: usize,
    count: *mut usize,
    what: &str,
) -> Result<(), Refusal> {
    // SAFETY: the caller promises it.
    unsafe { pointer::give(count, made.len()) };
    if made.len() > capacity {
        return Err(Refusal::too_small(what, made.len(), capacity));
    }
    // SAFETY: the caller promises it, and the values are written before they are read.
    unsafe { pointer::array_mut(into, made.len(), what) }?.copy_from_slice(made);
    Ok(())
}

/// Continues tokens. `callback` sees every piece of the text; what the cache holds of the last prompt and its text is not
/// processed again. `end` gets how the text ended, unless it is NULL.
///
/// # Safety
/// As the rules of the header say; `callback` may be called with `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orlop_generate(
    model: *const orlop_model,
    tokens: *const u32,
    count: usize,
    options: *const orlop_text_options,
    callback: orlop_text_callback,
    user_data: *mut c_void,
    end: *mut orlop_end,
    error: *mut *mut orlop_error,
) -> orlop_status {
    let work = || {
        // SAFETY: the caller promises it.
        let model = unsafe { pointer::object(model, "model") }?;
        // SAFETY: the caller promises it.
        let tokens = unsafe { pointer::array(tokens, count, "tokens") }?;
        // SAFETY: the caller promises it.
        let options = unsafe { pointer::object(options, "options") }?;
        check_version("orlop_text_options", options.version, ORLOP_STRUCT_VERSION)?;
        let mut model = model.loaded.lock()?;
        let file = SamplingOptions { repeat_penalty: options.repeat_penalty, ..model.sampling() };
        let sampling = match options.temperature < 0.0 {
            true => file,
            false => SamplingOptions {
                temperature: options.temperature,
                top_k: options.top_k as usize,
                top_p: options.top_p,
                min_p: options.min_p,
                ..file
            },
        };
        let options = TextOptions {
            max_tokens: (options.max_tokens > 0).then_some(options.max_tokens as usize),
            sampling: Some(sampling),
            seed: options.seed,
            ..TextOptions::default()
        };
        let made = model.generate_from(tokens, &options, &mut |piece| {
            let Some(callback) = callback else { return ControlFlow::Continue(()) };
            // SAFETY: the caller promises that it may be called with this data; the text lives until it returns.
            let goes_on = unsafe { callback(piece.as_ptr().cast(), piece.len(), user_data) };
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let how = match made.map_err(Refusal::failed)?.end {
            End::Token => orlop_end::OrlopEndToken,
            End::Limit => orlop_end::OrlopEndLimit,
            End::ContextFull => orlop_end::OrlopEndContext,
            End::Stopped => orlop_end::OrlopEndStopped,
        };
        // SAFETY: the caller promises it.
        unsafe { pointer::give(end, how) };
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { run(error, work) }
}
