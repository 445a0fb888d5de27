//! `orlop serve`: answers requests over HTTP.

mod log;
mod models;
mod plan;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use orlop::http::{HttpServer, ServedEmbedder, ServedModel, ServerError, ServerOptions};
use orlop::llm::{Forecast, Settings};

use crate::commands::run::SamplingArguments;
use crate::expert_file::ExpertStatsArguments;
use crate::failure::Failure;
use crate::load::failure;
use log::LogForm;
use models::{OpenModel, PlannedEmbedder, PlannedModel, ServedArguments, within};

const EXAMPLES: &str = "Examples:
  orlop serve --plan
  orlop serve --plan --json -c 4096 --parallel 8
  orlop synth small.gguf --preset smollm2-135m
  orlop synth large.gguf --preset smollm2-135m --type Q8_0
  orlop serve --plan -m small.gguf -m large.gguf

While it runs, any client of OpenAI's API can use it: http://127.0.0.1:8080/v1

Exit status: 0 ended by a signal; 2 invalid arguments or files; 3 out of memory; 1 other errors.";

/// Arguments of `orlop serve`.
#[derive(Debug, Args)]
// In other commands, `--plan` names a saved plan.
#[command(after_help = EXAMPLES, mut_arg("saved_plan", |plan| plan.long("saved-plan")),
    mut_arg("expert_stats", |stats| stats.conflicts_with("embeddings")))]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    models: ServedArguments,
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
    /// Maximum of requests that run at the same time on a model; more wait (also -np).
    #[arg(long, visible_alias = "np", value_name = "N", default_value_t = 16, value_parser = parse_parallel)]
    parallel: usize,
    /// Maximum of tokens of a request and its answer [default: what the model was trained for, or what fits the cache]
    #[arg(long, value_name = "N")]
    max_context: Option<u64>,
    #[command(flatten)]
    sampling: SamplingArguments,
    #[command(flatten)]
    expert_stats: ExpertStatsArguments,
    /// Serve embeddings, or scores of a reranker, instead of text [default: of models that are made for it]
    #[arg(long, conflicts_with = "drafter")]
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
    /// Refuse requests that name another model where there is only one.
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
    let models = arguments.models.open()?;
    let stats = arguments.expert_stats.begin()?;
    models.iter().try_for_each(|open| stats.check(open.model.config()))?;
    if models.len() > 1 && stats.counter().is_some() {
        let sentence = "--expert-stats counts the experts of one model; serve it alone";
        return Err(Failure::BadInput(sentence.to_owned()));
    }
    let is_alone = models.len() == 1;
    let embeds = |open: &OpenModel| arguments.embeddings || open.makes_no_text();
    let (embedders, texts): (Vec<OpenModel>, Vec<OpenModel>) = models.into_iter().partition(embeds);
    let drafts = arguments.models.drafts(&texts, &embedders)?;
    // Embedders stay in memory, and the other models have what they leave.
    let mut stay: Vec<Forecast> = Vec::new();
    let embedders = embedders.iter().map(|open| {
        let settings = arguments.models.embedder_settings(open, is_alone)?;
        let planned = PlannedEmbedder::of(open, &within(settings, &open.machine, &stay))?;
        stay.push(planned.forecast()?);
        Ok(planned)
    });
    let embedders: Vec<PlannedEmbedder> = embedders.collect::<Result<_, Failure>>()?;
    let parallel = arguments.parallel;
    let texts = texts.iter().map(|open| {
        let settings = within(arguments.models.settings(open, parallel)?, &open.machine, &stay);
        let settings = Settings { expert_counter: stats.counter(), ..settings };
        PlannedModel::of(open, &settings, &drafts, !arguments.plan)
    });
    let texts: Vec<PlannedModel> = texts.collect::<Result<_, Failure>>()?;
    let context = |planned: &PlannedModel| {
        arguments.max_context.unwrap_or_else(|| planned.blueprint.model().config().context)
    };
    if arguments.plan {
        return plan::print(&embedders, &texts, &context, parallel, arguments.json);
    }
    let verbose = arguments.models.verbose;
    let texts = texts.into_iter().map(|planned| {
        let (most, model) = (context(&planned), planned.blueprint.model());
        let sampling = arguments.sampling.options(arguments.models.is_default(), model)?;
        Ok(planned.served(sampling, verbose)?.with_context(most))
    });
    let texts: Vec<ServedModel> = texts.collect::<Result<_, Failure>>()?;
    let server = HttpServer::bind(arguments.options()?).map_err(refused)?;
    let embedders = embedders.into_iter().map(|planned| planned.served(verbose));
    let embedders: Vec<ServedEmbedder> = embedders.collect::<Result<_, Failure>>()?;
    server.run(texts, embedders).map_err(refused)?;
    stats.finish()
}

impl ServeArguments {
    fn options(&self) -> Result<ServerOptions, Failure> {
        Ok(ServerOptions {
            address: self.address()?,
            keys: self.keys()?,
            insecure: self.insecure,
            hosts: self.allowed_host.clone(),
            origins: self.allowed_origin.clone(),
            strict_model: self.strict_model,
            isolate_keys: self.isolate_keys,
            grace: Some(Duration::from_secs(self.grace)),
            parallel: self.parallel,
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
        ServerError::Load { source, .. } => failure(*source),
        error => Failure::Other(error.into()),
    }
}
