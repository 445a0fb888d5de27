//! `orlop pull`: downloads a model of a hub.

use clap::Args;
use orlop::hub::{HubModel, PulledModel};
use serde_json::json;

use crate::failure::Failure;
use crate::hub;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop pull ggml-org/gemma-3-1b-it-GGUF
  orlop run -m \"$(orlop pull ggml-org/gemma-3-1b-it-GGUF:Q8_0)\" \"Once upon a time\"

The hub is Hugging Face's, or one that speaks its API: HF_ENDPOINT. HF_TOKEN is sent to it. Files are kept where other tools
look for them: HF_HOME, by default ~/.cache/huggingface.

Exit status: 0 the model is there; 2 unknown models, quantizations or files; 1 other errors.";

/// Arguments of `orlop pull`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PullArguments {
    /// The model: `org/repo`, with `:QUANT` or `:FILE` for one of its files [default: Q4_K_M, else Q8_0, else the first]
    #[arg(value_name = "MODEL")]
    model: HubModel,
    /// Print one JSON object: `path`, `files`, `bytes`.
    #[arg(long)]
    json: bool,
}

/// Downloads a model, and prints the path of the file to open.
pub(crate) fn run(arguments: &PullArguments) -> Result<(), Failure> {
    let pulled = hub::pull(&arguments.model)?;
    let PulledModel { files, bytes } = &pulled;
    let mut printer = Printer::new();
    match arguments.json {
        true => printer.json(&json!({ "path": pulled.path(), "files": files, "bytes": bytes })),
        false => printer.line(pulled.path().display()),
    }
}
