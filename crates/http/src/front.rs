//! What all connections share.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use orlop_llm::{ChatTemplate, Forecast, GrammarCompiler, GrammarError, SamplingOptions, Tokenizer};
use orlop_serve::Limits;
use tokio::sync::{Notify, Semaphore};

use crate::api_error::ApiError;
use crate::bounds::{self, ServerBounds};
use crate::engine::embed_loop::EmbedAsk;
use crate::engine::generation::Generation;
use crate::engine::live::Live;
use crate::engine::mailbox::{Mailbox, NotTaken, Room};
use crate::engine::ring::{Ring, Ticket};
use crate::event_log::EventLog;
use crate::metrics::Metrics;
use crate::model::ModelFacts;
use crate::options::ServerOptions;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) options: ServerOptions,
    pub(crate) log: Arc<EventLog>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) metrics: Arc<Metrics>,
    /// The models, as soon as they are known.
    pub(crate) served: OnceLock<Served>,
    /// The first model is loaded.
    is_open: AtomicBool,
    /// When the server started, in seconds since 1970.
    pub(crate) started: u64,
    text_workers: Arc<Semaphore>,
    random: RandomState,
    count: AtomicU64,
    pub(crate) connections: AtomicUsize,
    /// Requests are answered from now on.
    pub(crate) running: Notify,
}

/// The models of a server; there is at least one.
#[derive(Debug)]
pub(crate) struct Served {
    /// They make text.
    pub(crate) texts: Vec<Arc<Ready>>,
    /// They make embeddings, or scores of pairs of texts.
    pub(crate) embedders: Vec<Arc<EmbedderReady>>,
}

/// Where a model is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Residence {
    /// It is loaded when it is needed.
    #[default]
    Unloaded,
    Loading,
    Loaded,
}

/// Where a model is now.
#[derive(Debug, Default)]
pub(crate) struct ResidenceCell(Mutex<Residence>);

impl ResidenceCell {
    pub(crate) fn get(&self) -> Residence {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, residence: Residence) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = residence;
    }
}

/// A model that can be asked for embeddings or scores.
#[derive(Debug)]
pub(crate) struct EmbedderReady {
    pub(crate) name: String,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) facts: ModelFacts,
    /// Tokens of a text, at most.
    pub(crate) longest: usize,
    /// Elements of an embedding.
    pub(crate) dimensions: u64,
    /// It makes scores.
    pub(crate) ranks: bool,
    pub(crate) asks: SyncSender<EmbedAsk>,
}

/// A model that can be asked for text.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) name: String,
    /// Its place among the server's models.
    pub(crate) index: usize,
    /// What its scheduler does.
    pub(crate) live: Arc<Live>,
    pub(crate) residence: ResidenceCell,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: Arc<ChatTemplate>,
    pub(crate) sampling: SamplingOptions,
    pub(crate) facts: ModelFacts,
    pub(crate) limits: Limits,
    pub(crate) planned: Forecast,
    /// Made for the first answer that has to match something: it reads the whole vocabulary.
    pub(crate) grammars: OnceLock<Result<GrammarCompiler, GrammarError>>,
}

impl Ready {
    /// What compiles grammars for the model.
    pub(crate) fn grammars(&self) -> Result<&GrammarCompiler, GrammarError> {
        let made = self.grammars.get_or_init(|| GrammarCompiler::new(Arc::clone(&self.tokenizer)));
        made.as_ref().map_err(Clone::clone)
    }
}

impl Front {
    pub(crate) fn new(options: ServerOptions, address: SocketAddr, log: EventLog) -> Front {
        let log = Arc::new(log);
        Front {
            address,
            mailbox: Arc::default(),
            metrics: Arc::new(Metrics::new(Arc::clone(&log))),
            log,
            served: OnceLock::new(),
            is_open: AtomicBool::new(false),
            started: now(),
            text_workers: Arc::new(Semaphore::new(bounds::TEXT_WORKERS)),
            random: RandomState::new(),
            count: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            running: Notify::new(),
            options,
        }
    }

    /// The model of a name, or the first one that makes text.
    pub(crate) fn ready(&self, name: Option<&str>) -> Result<Arc<Ready>, ApiError> {
        let Served { texts, embedders } = self.served()?;
        let names = texts.iter().map(|model| model.name.as_str()).collect::<Vec<_>>();
        let others = embedders.iter().map(|model| model.name.as_str()).collect::<Vec<_>>();
        let index = self.find(name, &names, &others, "makes embeddings, and no text")?;
        Ok(Arc::clone(&texts[index]))
    }

    /// The model of a name that makes embeddings or scores, or the first one that makes what is wanted.
    pub(crate) fn embedder(&self, name: Option<&str>, ranks: bool) -> Result<Arc<EmbedderReady>, ApiError> {
        let Served { texts, embedders } = self.served()?;
        let mut able: Vec<&Arc<EmbedderReady>> = embedders.iter().collect();
        able.sort_by_key(|model| model.ranks != ranks);
        let names = able.iter().map(|model| model.name.as_str()).collect::<Vec<_>>();
        let others = texts.iter().map(|model| model.name.as_str()).collect::<Vec<_>>();
        let index = self.find(name, &names, &others, "makes text, and no embeddings")?;
        Ok(Arc::clone(able[index]))
    }

    /// The index of a name among those of the models that can answer; `others` cannot. A server with one model takes any name,
    /// unless it is strict.
    fn find(
        &self,
        name: Option<&str>,
        able: &[&str],
        others: &[&str],
        cannot: &str,
    ) -> Result<usize, ApiError> {
        let takes_any = able.len() + others.len() == 1 && !self.options.strict_model;
        let found = able.iter().position(|known| Some(*known) == name);
        match (found, name) {
            (Some(index), _) => Ok(index),
            (None, Some(name)) if others.contains(&name) => Err(other_model(&format!("`{name}` {cannot}"))),
            (None, Some(name)) if !takes_any => Err(unknown_model(name, able.iter().chain(others).copied())),
            _ if able.is_empty() => Err(other_model(&format!("of this server {cannot}"))),
            _ => Ok(0),
        }
    }

    /// The models, unless the first one is not loaded yet or the server shuts down.
    pub(crate) fn served(&self) -> Result<&Served, ApiError> {
        if self.mailbox.ends().is_some() {
            return Err(ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "The server is shutting down", 5));
        }
        let loading = || ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "Loading model", 1);
        self.served.get().filter(|_| self.is_open.load(Ordering::Acquire)).ok_or_else(loading)
    }

    /// Requests are answered from now on.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
        self.running.notify_one();
    }

    /// A number that was not given before.
    pub(crate) fn next_number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that cannot be guessed.
    pub(crate) fn random(&self) -> u64 {
        self.random.hash_one(self.next_number())
    }

    /// A name that was not given before.
    pub(crate) fn id(&self, prefix: &str) -> String {
        format!("{prefix}{:016x}{:08x}", self.random(), self.random() as u32)
    }

    /// Runs work on texts, off the connections' thread: a limited number at a time.
    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let failed = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be read");
        let permit = Arc::clone(&self.text_workers)
            .acquire_owned()
            .await
            .map_err(|_| ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "The server is shutting down", 5))?;
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        done.await.map_err(|error| failed(error.to_string()))?
    }

    /// Submits a generation that can run.
    pub(crate) fn submit(&self, ready: &Ready, generation: Generation) -> Result<Ticket, ApiError> {
        let choices = generation.choices();
        if choices > bounds::CHOICES {
            let message = format!("the request has {choices} answers, of at most {}", bounds::CHOICES);
            return Err(ApiError::field("n", message));
        }
        for prompt in &generation.prompts {
            check_prompt(prompt, ready)?;
        }
        let wait = ready.live.wait();
        let ServerBounds { queue_time, requests, tokens, .. } = self.options.bounds;
        if wait > queue_time {
            let message = format!(
                "The queue is full: a request would wait for about {} s, and {} s are the most",
                wait.as_secs(),
                queue_time.as_secs()
            );
            let over = (wait - queue_time).as_secs() + 1;
            return Err(ApiError::busy(StatusCode::TOO_MANY_REQUESTS, message, over));
        }
        let ring = Arc::new(Ring::new(choices, Arc::clone(&self.mailbox)));
        let full = |message: String| {
            ApiError::busy(StatusCode::TOO_MANY_REQUESTS, message, wait.as_secs().clamp(1, 60))
        };
        match self.mailbox.submit(ready.index, generation, Arc::clone(&ring), Room { requests, tokens }) {
            Ok(key) => Ok(Ticket::new(key, ring)),
            Err(NotTaken::Ending) => {
                Err(ApiError::busy(StatusCode::SERVICE_UNAVAILABLE, "The server is shutting down", 5))
            }
            Err(NotTaken::Full(live)) => Err(full(format!(
                "The queue is full: {live} requests are running or waiting, and more are refused"
            ))),
            Err(NotTaken::Tokens(known)) => Err(full(format!(
                "The queue is full: its prompts have {known} tokens, and more than {tokens} are refused"
            ))),
        }
    }
}

/// The error of a name that no model has.
pub(crate) fn unknown_model<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> ApiError {
    let shown: String = name.chars().take(100).collect();
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let message = format!("The model `{shown}` does not exist; this server has {}", known.join(", "));
    ApiError::new(StatusCode::NOT_FOUND, message).with_param("model").with_code("model_not_found")
}

fn other_model(what: &str) -> ApiError {
    ApiError::field("model", format!("The model {what}")).with_code("unsupported")
}

fn check_prompt(prompt: &[u32], ready: &Ready) -> Result<(), ApiError> {
    let context = ready.limits.context;
    if prompt.is_empty() {
        return Err(ApiError::field("prompt", "the prompt has no token"));
    }
    // A token of the answer needs a row, unless it is the last one.
    if prompt.len() > context {
        return Err(ApiError::too_long(prompt.len(), context));
    }
    match prompt.iter().find(|token| u64::from(**token) >= ready.facts.vocabulary) {
        Some(token) => {
            let message = format!("token {token} is not one of the model's {}", ready.facts.vocabulary);
            Err(ApiError::field("prompt", message))
        }
        None => Ok(()),
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
