//! How a server is set up, and what it reports.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use orlop_serve::RequestUsage;

use crate::bounds::ServerBounds;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where it listens. Default: `127.0.0.1:8080`. Port 0 takes a free one.
    pub address: SocketAddr,
    /// Keys of which requests need one. Default: none, and no key is needed.
    pub keys: Vec<String>,
    /// Whether a server without keys may listen on an address that is not loopback. Default: no.
    pub insecure: bool,
    /// Names by which clients may call it, beside its address and `localhost`. Default: none.
    pub hosts: Vec<String>,
    /// Origins of web pages that may use it, beside its own and those of `localhost`; `*` allows all. Default: none.
    pub origins: Vec<String>,
    /// Whether requests that name another model are refused where there is only one. Default: no.
    pub strict_model: bool,
    /// Whether cached prefixes are shared only among requests with the same key. Default: no.
    pub isolate_keys: bool,
    /// SIGINT and SIGTERM end a server that runs, with this time for its requests; a second one ends it at once. Default:
    /// signals are left alone.
    pub grace: Option<Duration>,
    /// Maximum of requests that run at the same time on a model. Default: 16.
    pub parallel: usize,
    /// Bounds of connections, times and the queue.
    pub bounds: ServerBounds,
    /// Sees what happens. Default: nothing does.
    pub observer: ServerObserver,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            keys: Vec::new(),
            insecure: false,
            hosts: Vec::new(),
            origins: Vec::new(),
            strict_model: false,
            isolate_keys: false,
            grace: None,
            parallel: 16,
            bounds: ServerBounds::default(),
            observer: ServerObserver::default(),
        }
    }
}

/// What happens in a server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ServerEvent {
    /// The first model is loaded, and requests are answered.
    Ready {
        /// Where the server listens.
        address: SocketAddr,
    },
    /// A signal ends the server.
    Signal,
    /// An answer is complete, or never will be.
    Answer {
        /// How it ended: `stop`, `length`, `cancelled`, `refused` or `failed`.
        end: &'static str,
        /// Its tokens.
        usage: RequestUsage,
        /// In the queue.
        queued: Duration,
        /// From then to the first token.
        prompt: Duration,
        /// From then to the last.
        generation: Duration,
    },
    /// The head of a response was made.
    Response {
        /// The request's number, which the response has in `x-request-id`.
        request: u64,
        /// Of the request.
        method: String,
        /// Of the request, without its query.
        path: String,
        /// Of the response.
        status: u16,
        /// From the request to then.
        time: Duration,
    },
    /// The observer was slow, and did not see some events.
    Dropped {
        /// How many.
        events: u64,
    },
    /// A connection could not be accepted.
    NotAccepted {
        /// The system's error.
        error: String,
    },
}

pub(crate) type See = dyn Fn(&ServerEvent) + Send + Sync;

/// Sees what happens in a server.
#[derive(Clone, Default)]
pub struct ServerObserver(Option<Arc<See>>);

impl ServerObserver {
    /// Calls a function for each event, from a thread of its own. If it is slow, events are dropped, and it is told how many.
    pub fn new(see: impl Fn(&ServerEvent) + Send + Sync + 'static) -> ServerObserver {
        ServerObserver(Some(Arc::new(see)))
    }

    /// The function, if there is one.
    pub(crate) fn function(self) -> Option<Arc<See>> {
        self.0
    }
}

impl fmt::Debug for ServerObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerObserver").field(&self.0.is_some()).finish()
    }
}
