//! A server: its listener, its threads, and its end.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use orlop_llm::Pooling;
use orlop_serve::Limits;
use tokio::sync::Notify;

use crate::bounds;
use crate::engine::embed_loop::AskedEmbedder;
use crate::engine::engine_loop::EngineLoop;
use crate::engine::lane::Lane;
use crate::engine::live::Live;
use crate::engine::paged_model::limits;
use crate::event_log::EventLog;
use crate::front::{EmbedderReady, Front, Ready, ResidenceCell, Served};
use crate::net::listen;
use crate::options::ServerEvent;
use crate::{ServedEmbedder, ServedModel, ServerError, ServerOptions, routes};

/// Time that the observer has for the last events.
const LOG_TIME: Duration = Duration::from_secs(1);

/// A server that listens. Requests are answered while [`HttpServer::run`] runs; before, it says that the model is loading.
///
/// A thread serves the connections; the thread that calls `run` is the engine's.
#[derive(Debug)]
pub struct HttpServer {
    front: Arc<Front>,
    closing: Arc<Notify>,
    connections: Option<JoinHandle<io::Result<()>>>,
}

/// Ends a server.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Front>);

impl Stopper {
    /// Takes no new requests from now on; those that run may end within this time.
    pub fn stop(&self, within: Duration) {
        self.0.mailbox.end_within(within);
    }
}

impl HttpServer {
    /// Listens.
    ///
    /// # Errors
    /// The address cannot be listened on, or must not be without a key.
    pub fn bind(options: ServerOptions) -> Result<HttpServer, ServerError> {
        let address = options.address;
        if !address.ip().is_loopback() && options.keys.is_empty() && !options.insecure {
            return Err(ServerError::Open { address });
        }
        let printable =
            |key: &String| !key.is_empty() && key.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        if !options.keys.iter().all(printable) {
            return Err(ServerError::BadKey);
        }
        let refused = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let log = EventLog::start(options.observer.clone()).map_err(ServerError::Thread)?;
        let front = Arc::new(Front::new(options, address, log));
        let closing = Arc::new(Notify::new());
        let (shared, closed) = (Arc::clone(&front), Arc::clone(&closing));
        let connections = thread::Builder::new().name("orlop-http".to_owned()).spawn(move || {
            let router = routes::router(&shared);
            listen::run(listener, &shared, &router, &closed)
        });
        let connections = Some(connections.map_err(ServerError::Thread)?);
        Ok(HttpServer { front, closing, connections })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.front.address
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.front))
    }

    /// Answers requests until [`Stopper::stop`]. The first of the models that make text is loaded now, the others when requests
    /// name them; models with nothing to do are unloaded when another one needs their memory. Embedders stay. When a device is
    /// lost, models are loaded on those that are left: requests that wait go on then.
    ///
    /// # Errors
    /// [`ServerError::Names`]. [`ServerError::Load`]: the first model cannot be loaded. [`ServerError::Lost`]: a model cannot
    /// be loaded after the loss of a device. [`ServerError::Thread`].
    pub fn run(mut self, texts: Vec<ServedModel>, embedders: Vec<ServedEmbedder>) -> Result<(), ServerError> {
        let count = texts.len() + embedders.len();
        let names = texts.iter().map(|model| &*model.name).chain(embedders.iter().map(|model| &*model.name));
        if count == 0 || names.collect::<BTreeSet<&str>>().len() < count {
            return Err(ServerError::Names);
        }
        let mut lanes: Vec<Lane> =
            texts.into_iter().enumerate().map(|(index, model)| self.lane(index, model)).collect();
        let (embedders, asked): (Vec<Arc<EmbedderReady>>, Vec<AskedEmbedder>) =
            embedders.into_iter().map(|model| self.embedder(model)).unzip();
        // A server runs once, so there were no models before.
        let _ = self
            .front
            .served
            .set(Served { texts: lanes.iter().map(|lane| Arc::clone(&lane.ready)).collect(), embedders });
        let mut capacity = Vec::new();
        if let Some(first) = lanes.first_mut() {
            first.come();
            let engine = (first.load)().map_err(|source| ServerError::Load {
                model: first.ready.name.clone(),
                source: Box::new(source),
            })?;
            first.arrive(engine);
            let devices = &first.ready.planned.devices;
            capacity = devices.iter().map(|device| device.free.unwrap_or(u64::MAX)).collect();
        }
        let (mailbox, metrics) = (Arc::clone(&self.front.mailbox), Arc::clone(&self.front.metrics));
        let engine = EngineLoop::new(lanes, capacity, Arc::clone(&mailbox), metrics);
        // The threads of embedders answer what they were asked, as long as there is time.
        let ended = thread::scope(|scope| {
            for asked in asked {
                let (name, mailbox) = ("orlop-embed".to_owned(), &mailbox);
                let started =
                    thread::Builder::new().name(name).spawn_scoped(scope, move || asked.answer(mailbox));
                if let Err(error) = started {
                    mailbox.end_within(Duration::ZERO);
                    return Err(ServerError::Thread(error));
                }
            }
            self.open();
            engine.run().map_err(|error| ServerError::Lost(Box::new(error)))
        });
        self.close().map_err(ServerError::Thread)?;
        ended
    }

    /// An embedder, and how it is asked.
    fn embedder(&self, model: ServedEmbedder) -> (Arc<EmbedderReady>, AskedEmbedder) {
        let ServedEmbedder { name, embedder, tokenizer, facts, planned } = model;
        self.front.metrics.loaded(&name, &planned, &embedder.memory());
        let (asks, asked) = sync_channel(bounds::EMBED_ASKS);
        let (longest, dimensions) = (embedder.longest_text() as usize, embedder.dimensions());
        let ranks = embedder.pooling() == Pooling::Rank;
        let ready = EmbedderReady { name, tokenizer, facts, longest, dimensions, ranks, asks };
        (Arc::new(ready), AskedEmbedder { embedder, asked })
    }

    /// A model that is not loaded.
    fn lane(&self, index: usize, model: ServedModel) -> Lane {
        let ServedModel { name, load, context, blueprint, tokenizer, template, sampling, facts, planned } =
            model;
        let parallel = self.front.options.parallel;
        let mut batches: Vec<usize> = blueprint.shapes().map(|shape| shape.tokens as usize).collect();
        batches.dedup();
        let ready = Ready {
            name,
            index,
            live: Arc::new(Live::new()),
            residence: ResidenceCell::default(),
            tokenizer,
            template,
            sampling,
            facts,
            limits: Limits { batches, ..limits(&blueprint, context, parallel) },
            planned,
            grammars: OnceLock::new(),
        };
        Lane::new(Arc::new(ready), load, context, parallel, Arc::clone(&self.front.metrics))
    }

    /// Requests are answered from now on.
    fn open(&self) {
        self.front.open();
        let address = self.front.address;
        self.front.log.see(|| ServerEvent::Ready { address });
    }

    /// Lets connections send what they have, and closes them.
    fn close(&mut self) -> io::Result<()> {
        self.closing.notify_one();
        match self.connections.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(result) => {
                self.front.log.finish(LOG_TIME);
                result.unwrap_or_else(|_| Err(io::Error::other("it has panicked")))
            }
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // Nothing can be done about an error here.
        let _ = self.close();
    }
}
