//! `orlop run`: generates text from a prompt, or chats.

mod prompt_cache;
mod trace;

use std::io::{IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use orlop::llm::{
    Chat, ChatTemplate, DraftCounts, End, Engine, Error, GenerateEvent, GenerateOptions, Model, Sampler,
    SamplingOptions, Special, Speculator, TemplateSource, TextStream, Tokenizer, generate_with,
};
use serde::Serialize;

use crate::advice;
use crate::draft_arguments::DraftArguments;
use crate::expert_file::ExpertStatsArguments;
use crate::failure::Failure;
use crate::grammar_arguments::GrammarArguments;
use crate::load::{MemoryReport, failure, load_with_drafts, memory, model_file, token_bar, tokenizer};
use crate::model_arguments::ModelArguments;
use crate::predicted::with_file_speed;
use crate::printer::Printer;
use crate::style::note;
use crate::timings::Timings;

const EXAMPLES: &str = "Examples:
  orlop run --temp 0 -n 16 \"The capital of France is\"
  orlop run --chat \"Name three colours.\" --seed 1 -n 40
  echo \"Once upon a time\" | orlop run -n 24 --repeat-penalty 1.1
  orlop run --json -n 4 \"One, two, three,\"
  orlop run --prompt-cache prompt.state -n 8 \"One, two, three,\"
  orlop run --regex \"[A-Z][a-z]+\" \"The capital of France is \"
  orlop run --lookup -n 32 \"One, two, three, one, two, three, one, two,\"
  orlop run --verbose

Without a prompt, on a terminal, it chats.

Exit status: 0 success; 2 invalid arguments or files; 3 out of memory or context; 1 other errors.";

use trace::Trace;

/// Arguments of `orlop run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArguments {
    /// Prompt [default: standard input; on a terminal, chat]
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Prompt, as in llama.cpp.
    #[arg(short, long = "prompt", value_name = "TEXT", conflicts_with = "prompt")]
    p: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// Number of tokens to generate; -1: no limit.
    #[arg(short, long = "n-predict", value_name = "N", default_value_t = -1, allow_hyphen_values = true)]
    n: i64,
    /// Format the prompt as a chat message with the model's chat template.
    #[arg(long)]
    chat: bool,
    /// System prompt; implies --chat.
    #[arg(long, value_name = "TEXT", visible_alias = "system-prompt")]
    system: Option<String>,
    #[command(flatten)]
    sampling: SamplingArguments,
    /// Random seed [default: random]
    #[arg(short, long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    pub(crate) draft: DraftArguments,
    #[command(flatten)]
    pub(crate) grammar: GrammarArguments,
    #[command(flatten)]
    pub(crate) expert_stats: ExpertStatsArguments,
    /// Treat special tokens in the prompt as text; not in a chat.
    #[arg(long, conflicts_with_all = ["chat", "system"])]
    no_special: bool,
    /// Keep the processed prompt in this file, and process only what differs from the prompt in it; not in a chat.
    #[arg(long, value_name = "FILE")]
    prompt_cache: Option<PathBuf>,
    /// Write a timeline of devices and memory in Chrome's trace format; not in a chat.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print one JSON object: `prompt_tokens`, `cached`, `tokens`, `text`, `drafted`, `accepted`, `timings`, `memory`.
    #[arg(long)]
    json: bool,
}

/// Sampling options.
#[derive(Debug, Args)]
pub(crate) struct SamplingArguments {
    /// Temperature; 0: greedy [default: the model file's, or 0.8]
    #[arg(long, value_name = "T")]
    temp: Option<f32>,
    /// Top-k sampling; 0: disabled [default: the model file's, or 40]
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Top-p (nucleus) sampling; 1: disabled [default: the model file's, or 0.95]
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Min-p sampling: minimum probability relative to the most likely token; 0: disabled [default: the model file's, or 0.05]
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Penalty for repeated tokens; 1: disabled [default: the model file's, or 1]
    #[arg(long, value_name = "F", value_parser = parse_penalty)]
    repeat_penalty: Option<f32>,
    /// Number of last tokens considered for the repeat penalty [default: the model file's, or 64]
    #[arg(long, value_name = "N", visible_alias = "repeat-last-n")]
    repeat_last: Option<usize>,
}

impl SamplingArguments {
    /// The options: flags, then what the model file recommends, then defaults.
    pub(crate) fn options(&self, is_default_model: bool, model: &Model) -> Result<SamplingOptions, Failure> {
        let defaults = match is_default_model {
            false => SamplingOptions::default(),
            true => orlop::default_model::sampling(),
        };
        let file = defaults.recommended(model.file().metadata()).map_err(failure)?;
        Ok(SamplingOptions {
            temperature: self.temp.unwrap_or(file.temperature),
            top_k: self.top_k.unwrap_or(file.top_k),
            top_p: self.top_p.unwrap_or(file.top_p),
            min_p: self.min_p.unwrap_or(file.min_p),
            repeat_penalty: self.repeat_penalty.unwrap_or(file.repeat_penalty),
            repeat_last: self.repeat_last.unwrap_or(file.repeat_last),
            ..file
        })
    }
}

fn parse_penalty(text: &str) -> Result<f32, String> {
    let penalty = text.parse::<f32>().ok().filter(|penalty| penalty.is_finite() && *penalty > 0.0);
    penalty.ok_or_else(|| "expected a positive number, such as 1.1".to_owned())
}

impl RunArguments {
    /// The sampler.
    pub(crate) fn sampler(&self, model: &Model) -> Result<Sampler, Failure> {
        let options = self.sampling.options(self.model.is_default(), model)?;
        Ok(Sampler::new(options, self.seed.unwrap_or_else(random_seed)))
    }

    /// Limit on generated tokens.
    pub(crate) fn limit(&self) -> Option<usize> {
        usize::try_from(self.n).ok()
    }

    /// An empty chat with a model.
    pub(crate) fn chat(&self, model: &Model, tokenizer: &Tokenizer) -> Chat {
        let chat = Chat::new(ChatTemplate::from_metadata(model.file().metadata(), tokenizer));
        match &self.system {
            Some(system) => chat.with_system(system),
            None => chat,
        }
    }

    /// The prompt's tokens.
    fn tokens(&self, prompt: String, model: &Model, tokenizer: &Tokenizer) -> Vec<u32> {
        if !self.chat && self.system.is_none() {
            let special = if self.no_special { Special::AsText } else { Special::Parse };
            return tokenizer.prompt(&prompt, special);
        }
        let mut chat = self.chat(model, tokenizer);
        chat.say(prompt);
        let tokens = chat.prompt(tokenizer);
        match (chat.source(), chat.fault()) {
            (TemplateSource::File, _) => {}
            (_, Some(fault)) => note(format_args!("orlop: {fault}; using a generic template")),
            (_, None) => note("orlop: the model has no chat template; using a generic template"),
        }
        tokens
    }
}

#[derive(Serialize)]
struct Answer {
    prompt_tokens: Vec<u32>,
    /// Tokens of the prompt that were in the prompt cache.
    cached: usize,
    tokens: Vec<u32>,
    text: String,
    /// Tokens that were drafted, and how many of them were accepted.
    drafted: usize,
    accepted: usize,
    timings: Timings,
    memory: MemoryReport,
}

/// Generates text from a prompt, or chats.
pub(crate) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let Some(prompt) = prompt(arguments)? else {
        refuse_in_chat("--trace", arguments.trace.is_some())?;
        refuse_in_chat("--no-special", arguments.no_special)?;
        refuse_in_chat("--prompt-cache", arguments.prompt_cache.is_some())?;
        return crate::chat::run(arguments);
    };
    let trace = arguments.trace.as_deref().map(Trace::begin).transpose()?;
    let stats = arguments.expert_stats.begin()?;
    let mut loaded = load_with_drafts(&stats.counting(&arguments.model), &arguments.draft)?;
    stats.check(loaded.model.config())?;
    if trace.is_some() {
        loaded.engine.record();
    }
    let tokenizer = Arc::new(tokenizer(&loaded.model)?);
    let mut grammar = arguments.grammar.matcher(&tokenizer)?;
    let prompt_tokens = arguments.tokens(prompt, &loaded.model, &tokenizer);
    let mut sampler = arguments.sampler(&loaded.model)?;
    let (mut tokens, mut text, mut stream) = (Vec::new(), String::new(), TextStream::new());
    let begin = Instant::now();
    let bar = token_bar(prompt_tokens.len(), loaded.engine.blueprint().batch() as usize);
    let mut out = std::io::stdout().lock();
    let (mut repacked, mut first, mut broken) = (Duration::ZERO, None, None);
    let limit = arguments.limit();
    let too_long = |engine: &Engine, error| match error {
        Error::ContextFull { tokens, .. } => advice::prompt_too_long(engine, tokens, limit),
        error => failure(error),
    };
    let mut cached = 0;
    if let Some(file) = &arguments.prompt_cache {
        let engine = &mut loaded.engine;
        prompt_cache::check_room(engine, &prompt_tokens).map_err(|error| too_long(engine, error))?;
        let fed = |count| bar.set_position(count as u64);
        cached = prompt_cache::feed_cached(engine, &prompt_tokens, file, &fed)?;
        let before = &prompt_tokens[..engine.len()];
        sampler.restart(before);
        loaded.speculator.iter_mut().for_each(|drafts| drafts.restart(before));
    }
    let end = loop {
        let made = tokens.len();
        let fed = [&prompt_tokens[..], &tokens].concat();
        let mut each = |event| {
            let token = match event {
                GenerateEvent::Prompt { done, all, repacking } => {
                    bar.set_position(done as u64);
                    if done == all {
                        bar.finish_and_clear();
                    }
                    if first.is_none() {
                        repacked = repacking;
                    }
                    return ControlFlow::Continue(());
                }
                GenerateEvent::Token(token) => token,
            };
            first.get_or_insert_with(|| begin.elapsed());
            tokens.push(token);
            let piece = if tokenizer.is_end(token) { "" } else { stream.push(tokenizer.decode(token)) };
            if arguments.json {
                text.push_str(piece);
                return ControlFlow::Continue(());
            }
            match out.write_all(piece.as_bytes()).and_then(|()| out.flush()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    broken = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let options = GenerateOptions {
            limit: limit.map(|limit| limit - made),
            speculator: loaded.speculator.as_mut(),
            grammar: grammar.as_mut(),
        };
        let new = &fed[loaded.engine.len()..];
        let end = generate_with(&mut loaded.engine, &tokenizer, &mut sampler, new, options, &mut each);
        bar.finish_and_clear();
        match end {
            Ok(end) => break end,
            // The text so far is fed again, as a prompt.
            Err(error) if loaded.may_continue() => {
                loaded = loaded.continued(&error)?;
                if trace.is_some() {
                    loaded.engine.record();
                }
                sampler.restart(&[]);
                loaded.speculator.iter_mut().for_each(|drafts| drafts.restart(&[]));
            }
            Err(error) => return Err(too_long(&loaded.engine, error)),
        }
    };
    if let Some(error) = broken {
        return Err(Failure::printing(error));
    }
    let all = begin.elapsed();
    let (prompt_time, repacking) = (first.unwrap_or(all) - repacked, loaded.engine.repacking_time());
    let fed = prompt_tokens.len() - cached;
    let timings =
        Timings::new(loaded.took, fed, prompt_time, tokens.len(), all - repacking).with_repacking(repacking);
    let rest = stream.finish();
    let drafts = loaded.speculator.as_ref().map(Speculator::counts);
    stats.finish()?;
    let traced = trace.map(|trace| trace.finish(&loaded.engine)).transpose()?;
    if arguments.json {
        text.push_str(rest);
        let memory = MemoryReport::new(&memory(&loaded.engine, loaded.speculator.as_ref())).with_peak();
        drop(out);
        let DraftCounts { drafted, accepted } = drafts.unwrap_or_default();
        let answer = Answer { prompt_tokens, cached, tokens, text, drafted, accepted, timings, memory };
        return Printer::new().json(&answer);
    }
    writeln!(out, "{rest}").map_err(Failure::printing)?;
    if end == End::ContextFull {
        let context = loaded.engine.blueprint().context();
        note(format_args!("orlop: the context of {context} tokens is full; use a larger one (-c)"));
    }
    note(format_args!("\n{timings}"));
    if arguments.model.verbose {
        let file = model_file(arguments.model.model.as_deref())?;
        let no_measure = arguments.model.settings.no_measure;
        let blueprint = with_file_speed(loaded.engine.blueprint(), Some(&file), no_measure);
        let depth = (cached + prompt_tokens.len()) as u64;
        let speed = blueprint.speed_forecast(fed.max(1) as u64, cached as u64).map_err(failure)?;
        let token = blueprint.speed_forecast(1, depth + tokens.len() as u64 / 2).map_err(failure)?;
        note(format_args!(
            "predicted: prompt {:.1} tokens/s, generation {:.1} tokens/s",
            speed.prompt_tokens_per_second, token.generation_tokens_per_second
        ));
    }
    if let Some(DraftCounts { drafted, accepted }) = drafts {
        note(format_args!("accepted {accepted} of {drafted} drafted tokens"));
    }
    if let Some(summary) = traced {
        note(format_args!("{summary}"));
    }
    Ok(())
}

/// Rejects an option that needs a prompt.
fn refuse_in_chat(option: &str, given: bool) -> Result<(), Failure> {
    match given {
        true => Err(Failure::BadInput(format!(
            "{option} is not supported in a chat; add a prompt after `orlop run`"
        ))),
        false => Ok(()),
    }
}

/// The prompt; `None` for a chat on a terminal.
fn prompt(arguments: &RunArguments) -> Result<Option<String>, Failure> {
    if let Some(prompt) = arguments.prompt.as_ref().or(arguments.p.as_ref()) {
        return Ok(Some(prompt.clone()));
    }
    let mut input = std::io::stdin();
    if input.is_terminal() {
        return match (arguments.json, std::io::stdout().is_terminal()) {
            (false, true) => Ok(None),
            (true, _) => {
                Err(Failure::BadInput("--json needs a prompt; add one after `orlop run`".to_owned()))
            }
            (false, false) => Err(Failure::BadInput(
                "no prompt, and standard output is not a terminal to chat on; add a prompt after `orlop run`"
                    .to_owned(),
            )),
        };
    }
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|error| {
        Failure::BadInput(format!(
            "cannot read the prompt from standard input ({error}); add it after `orlop run`"
        ))
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to() + 1;
        Failure::BadInput(format!(
            "the prompt on standard input is not UTF-8 (byte {place} of {}); convert it to UTF-8",
            error.as_bytes().len()
        ))
    })?;
    if text.trim().is_empty() {
        return Err(Failure::BadInput(
            "the prompt on standard input is empty; add one after `orlop run`, or run it on a terminal to chat"
                .to_owned(),
        ));
    }
    // The last line break is not part of the prompt.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(Some(text.strip_suffix('\r').unwrap_or(text).to_owned()))
}

/// A seed that differs from run to run.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
