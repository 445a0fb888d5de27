//! Servers of random models.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use orlop_backend::Device;
use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_gguf::{GgufFile, GgufPart, MetadataValue, Writer};
use orlop_graph::DType;
use orlop_http::{
    HttpServer, LoadedModel, ServedEmbedder, ServedModel, ServerOptions, Stopper, with_sequences,
};
use orlop_llm::{Blueprint, Embedder, Engine, Error, Model, SamplingOptions, Settings, Synth};
use orlop_sched::Machine;
use serde_json::Value as Json;

use crate::client::{Answer, Connection, request};

/// Tokens that the cache of a test server holds.
pub(crate) const ROWS: u64 = 1024;

/// A template in the form of Qwen's.
const TEMPLATE: &str = "{%- if tools %}<|tools|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}<tool_call></tool_call>\
    {% endif %}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}\n{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>{% endif %}";

/// A model with random weights that are drawn from a seed.
pub(crate) fn model() -> Model {
    made(vec![("tokenizer.chat_template".to_owned(), MetadataValue::from(TEMPLATE))])
}

/// A model with some metadata.
pub(crate) fn made(metadata: Vec<(String, MetadataValue)>) -> Model {
    let synth = Synth { context: 512, vocabulary: 400, metadata, ..Synth::default() };
    let part = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    Model::from_file(GgufFile::from_file(part)).unwrap()
}

/// A server that runs in a thread of its own, until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn options() -> ServerOptions {
    ServerOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), parallel: 8, ..ServerOptions::default() }
}

/// A server with usual options.
pub(crate) fn start() -> Running {
    start_with(options(), ROWS)
}

/// A server whose cache holds this many tokens.
pub(crate) fn start_with(options: ServerOptions, rows: u64) -> Running {
    start_on(cpu(), options, rows, model())
}

pub(crate) fn cpu() -> Arc<dyn Device> {
    CpuDevice::new(ThreadPool::new(1).unwrap())
}

/// The plan of a model, with a budget if one is given.
pub(crate) fn blueprint(
    device: Arc<dyn Device>,
    model: &Model,
    parallel: usize,
    rows: u64,
    budget: Option<u64>,
) -> Result<Blueprint, Error> {
    let machine = Machine::new([device])?;
    let budgets = machine.indices().zip(budget).collect();
    let settings = Settings { context: Some(rows), batch: 64, budgets, ..Settings::default() };
    Blueprint::plan(model, &machine, &with_sequences(settings, model.config(), parallel))
}

/// A server on a device; should that be lost, another one takes its place.
pub(crate) fn start_on(device: Arc<dyn Device>, options: ServerOptions, rows: u64, model: Model) -> Running {
    let served = served("default", device, &model, options.parallel, rows);
    start_models(options, vec![served])
}

/// A model with a cache of this many tokens.
pub(crate) fn served(
    name: &str,
    device: Arc<dyn Device>,
    model: &Model,
    parallel: usize,
    rows: u64,
) -> ServedModel {
    let planned = blueprint(Arc::clone(&device), model, parallel, rows, None).unwrap();
    let model = model.clone();
    let load = move || {
        let device = if device.facts().lost { cpu() } else { Arc::clone(&device) };
        let planned = blueprint(device, &model, parallel, rows, None)?;
        Engine::load(planned, &mut |_, _| ()).map(LoadedModel::from)
    };
    ServedModel::new(name, planned, SamplingOptions::default(), load).unwrap()
}

/// A server of some models.
pub(crate) fn start_models(options: ServerOptions, models: Vec<ServedModel>) -> Running {
    start_all(options, models, Vec::new())
}

/// A server of some models, and of some that make embeddings or scores.
pub(crate) fn start_all(
    options: ServerOptions,
    models: Vec<ServedModel>,
    embedders: Vec<ServedEmbedder>,
) -> Running {
    let server = HttpServer::bind(options).unwrap();
    let (address, stopper) = (server.address(), server.stopper());
    let thread = std::thread::spawn(move || server.run(models, embedders).unwrap());
    let running = Running { address, stopper, thread: Some(thread) };
    running.until("it is ready", || running.get("/health").status == 200);
    running
}

/// A model with random weights and a classifier of pairs of texts.
pub(crate) fn reranker() -> Model {
    let synth = Synth { layers: 1, ..Synth::default() };
    let known = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    let weights: Vec<u8> = (0..synth.width).flat_map(|column| (column as f32 - 31.5).to_le_bytes()).collect();
    let mut writer = Writer::copy_of(&known).unwrap();
    writer.set("tokenizer.chat_template.rerank", "{query} {document}").unwrap();
    writer.tensor("cls.output.weight", DType::F32, &[synth.width, 1], &weights).unwrap();
    let mut file = Vec::new();
    writer.write(&mut file).unwrap();
    Model::from_file(GgufFile::from_file(GgufPart::from_bytes(Arc::new(file)).unwrap())).unwrap()
}

/// A model that makes embeddings or scores.
pub(crate) fn embedder(model: &Model) -> Embedder {
    let machine = Machine::new([cpu()]).unwrap();
    let settings = Settings { context: Some(128), ..Settings::default() };
    let blueprint = Embedder::plan(model, &machine, &settings, None).unwrap();
    Embedder::load(blueprint, &mut |_, _| ()).unwrap()
}

/// A server of embeddings or scores, and the same model beside it.
pub(crate) fn start_embedder(model: Model) -> (Running, Embedder) {
    let served = ServedEmbedder::new("default", embedder(&model), &model).unwrap();
    (start_all(options(), Vec::new(), vec![served]), embedder(&model))
}

impl Running {
    pub(crate) fn get(&self, path: &str) -> Answer {
        request(self.address, "GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, json: &Json) -> Answer {
        request(
            self.address,
            "POST",
            path,
            &[("Content-Type", "application/json")],
            json.to_string().as_bytes(),
        )
    }

    /// A connection over which a request was sent.
    pub(crate) fn begin(&self, path: &str, json: &Json) -> Connection {
        let mut connection = Connection::open(self.address);
        connection.ask("POST", path, &[], json.to_string().as_bytes());
        connection
    }

    /// A number of the server's metrics.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text().to_owned();
        let line =
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not happen that {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until no request is running or waiting.
    pub(crate) fn until_idle(&self) {
        self.until("no request is left", || {
            self.metric("orlop_num_requests_running") == 0.0
                && self.metric("orlop_num_requests_waiting") == 0.0
        });
    }

    /// Stops the server, and waits for its end.
    pub(crate) fn join(mut self, within: Duration) {
        self.stopper.stop(within);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop(Duration::ZERO);
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().unwrap();
        }
    }
}
