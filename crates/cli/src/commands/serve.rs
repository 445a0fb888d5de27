//! `orlop serve`: answers requests over HTTP.

mod log;
mod plan;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use orlop::http::{HttpServer, ServedEmbedder, ServedModel, ServerError, ServerOptions, with_sequences};
use orlop::llm::{Blueprint, Embedder, Engine, Model, Outputs, Settings};
use orlop::sched::Machine;

use crate::adapter_argument::adapted;
use crate::commands::run::SamplingArguments;
use crate::failure::Failure;
use crate::load::{
    failure, load_engine, load_planned_embedder, open_for, plan_what_is_left, repack_engine,
};
use crate::memory_table;
use crate::model_arguments::ModelArguments;
use crate::style::note;
use log::LogForm;

const EXAMPLES: &str = "Examples:
  orlop serve --plan
  orlop serve --plan --json -c 4096 --parallel 8

While it runs, any client of OpenAI's API can use it: http://127.0.0.1:8080/v1

Exit status: 0 ended by a signal; 2 invalid arguments or files; 3 out of memory; 1 other errors.";

/// Arguments of `orlop serve`.
#[derive(Debug, Args)]
// In other commands, `--plan` names a saved plan.
#[command(after_help = EXAMPLES, mut_arg("saved_plan", |plan| plan.long("saved-plan")))]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Address or name to listen on. Other addresses than those of this machine alone need a key.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0: a free one.
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Key that requests must have; several with commas between them.
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    api_key: Vec<String>,
    /// File with a key on each line.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Maximum of requests that run at the same time; more wait (also -np).
    #[arg(long, visible_alias = "np", value_name = "N", default_value_t = 16, value_parser = parse_parallel)]
    parallel: usize,
    /// Maximum of tokens of a request and its answer [default: what the model was trained for, or what fits the cache]
    #[arg(long, value_name = "N")]
    max_context: Option<u64>,
    /// Name of the model in answers [default: the name of the file]
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,
    #[command(flatten)]
    sampling: SamplingArguments,
    /// Serve embeddings, or scores of a reranker, instead of text [default: for models that make no text]
    #[arg(long)]
    embeddings: bool,
    /// Print what is planned, and how many sequences of which length fit, and load nothing.
    #[arg(long)]
    plan: bool,
    /// Print the plan as JSON: `devices`, `cache_bytes_per_token`, `rows`, `sequences`.
    #[arg(long, requires = "plan")]
    json: bool,
    /// Listen on addresses of other machines without a key.
    #[arg(long)]
    insecure: bool,
    /// Name by which clients may call this server, beside `localhost` and addresses; can be repeated.
    #[arg(long, value_name = "HOST")]
    allowed_host: Vec<String>,
    /// Origin of web pages that may use this server, such as `https://chat.example`; can be repeated, `*`: all.
    #[arg(long, value_name = "ORIGIN")]
    allowed_origin: Vec<String>,
    /// Refuse requests that name another model.
    #[arg(long)]
    strict_model: bool,
    /// Share cached prefixes only among requests with the same key.
    #[arg(long)]
    isolate_keys: bool,
    /// Seconds that running requests have after SIGTERM or Ctrl-C.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    /// Form of the log on standard error.
    #[arg(long, value_name = "FORM", default_value = "text")]
    log: LogForm,
}

/// Serves, or plans to.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let file = arguments.model.file()?;
    let model = adapted(open_for("-m", &file)?, &arguments.model.settings.lora)?;
    let machine = arguments.model.settings.machine(&model)?;
    let name = file.file_stem().map(|name| name.to_string_lossy().into_owned());
    let name = arguments.alias.clone().or(name).unwrap_or_default();
    if arguments.embeddings || model.config().bidirectional {
        return serve_embedder(arguments, name, &model, &machine);
    }
    let settings = arguments.settings(&model, &machine)?;
    if arguments.plan {
        let blueprint = Blueprint::plan_unchecked(&model, &machine, &settings).map_err(failure)?;
        return plan::print(&blueprint, arguments.context(&model), arguments.parallel, arguments.json);
    }
    let server = HttpServer::bind(arguments.options(name, &model)?).map_err(refused)?;
    let blueprint = Blueprint::plan(&model, &machine, &settings).map_err(failure)?;
    let mut engine = load_engine(blueprint)?;
    repack_engine(&mut engine)?;
    if arguments.model.verbose {
        note(memory_table::table(&engine.memory()));
    }
    let sampling = arguments.sampling.options(arguments.model.is_default(), &model)?;
    let served = ServedModel::new(engine, &model, sampling).map_err(failure)?;
    let mut reload = || {
        let blueprint = plan_what_is_left(&model, &machine, &settings)?;
        Engine::load(blueprint, &mut |_, _| ())
    };
    server.run(served, &mut reload).map_err(refused)
}

/// Serves embeddings, or scores of documents.
fn serve_embedder(
    arguments: &ServeArguments,
    name: String,
    model: &Model,
    machine: &Machine,
) -> Result<(), Failure> {
    let settings = &arguments.model.settings;
    let settings = settings.settings(machine, model.config().layers.len(), Outputs::Last)?;
    let blueprint = Embedder::plan(model, machine, &settings, None).map_err(failure)?;
    if arguments.plan {
        return plan::print_memory(&blueprint, arguments.json);
    }
    let server = HttpServer::bind(arguments.options(name, model)?).map_err(refused)?;
    let embedder = load_planned_embedder(blueprint)?;
    if arguments.model.verbose {
        note(memory_table::table(&embedder.memory()));
    }
    let served = ServedEmbedder::new(embedder, model).map_err(failure)?;
    server.run_embedder(served).map_err(refused)
}

impl ServeArguments {
    fn settings(&self, model: &Model, machine: &Machine) -> Result<Settings, Failure> {
        let settings = self.model.settings.settings(machine, model.config().layers.len(), Outputs::Last)?;
        Ok(with_sequences(settings, model.config(), self.parallel))
    }

    /// Maximum of tokens of a sequence.
    fn context(&self, model: &Model) -> Option<u64> {
        Some(self.max_context.unwrap_or(model.config().context))
    }

    fn options(&self, name: String, model: &Model) -> Result<ServerOptions, Failure> {
        Ok(ServerOptions {
            address: self.address()?,
            name,
            keys: self.keys()?,
            insecure: self.insecure,
            hosts: self.allowed_host.clone(),
            origins: self.allowed_origin.clone(),
            strict_model: self.strict_model,
            isolate_keys: self.isolate_keys,
            grace: Some(Duration::from_secs(self.grace)),
            parallel: self.parallel,
            max_context: self.context(model),
            observer: log::observer(self.log),
            ..ServerOptions::default()
        })
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        let unknown = |why: String| {
            Failure::BadInput(format!("no address of `{}` ({why}); give another --host", self.host))
        };
        let mut found =
            (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        found.next().ok_or_else(|| unknown("it has none".to_owned()))
    }

    fn keys(&self) -> Result<Vec<String>, Failure> {
        let mut keys = self.api_key.clone();
        if let Some(path) = &self.api_key_file {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::BadInput(format!(
                    "{}: cannot read the keys ({error}); give another --api-key-file",
                    path.display()
                ))
            })?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            keys.extend(lines.map(str::to_owned));
            if keys.is_empty() {
                return Err(Failure::BadInput(format!(
                    "{}: there is no key in it; add a line with one",
                    path.display()
                )));
            }
        }
        Ok(keys)
    }
}

fn parse_parallel(text: &str) -> Result<usize, String> {
    let count = text.parse::<usize>().ok().filter(|count| (1..=1024).contains(count));
    count.ok_or_else(|| "expected a number of requests from 1 to 1024".to_owned())
}

fn refused(error: ServerError) -> Failure {
    match error {
        ServerError::Open { .. } => Failure::BadInput(format!("{error}; add --api-key, or --insecure")),
        ServerError::BadKey => Failure::BadInput(format!("{error}; give another --api-key")),
        ServerError::Listen { .. } => {
            Failure::Other(anyhow::anyhow!("{error}; give another --port or --host"))
        }
        error => Failure::Other(error.into()),
    }
}
