//! Options of speculative decoding.

use std::path::PathBuf;

use clap::Args;

/// Who drafts tokens, and how many.
#[derive(Clone, Debug, Args)]
pub(crate) struct DraftArguments {
    /// Speculative decoding without a draft model: look up the last tokens in the text so far, and draft what followed
    /// them there. The output stays the same; texts that repeat parts of the prompt are generated faster.
    #[arg(long, group = "drafter")]
    pub(crate) lookup: bool,
    /// Speculative decoding with a draft model: a smaller model with the same vocabulary (also -md). The output stays the
    /// same.
    #[arg(long = "model-draft", visible_alias = "md", value_name = "FILE", group = "drafter")]
    pub(crate) model_draft: Option<PathBuf>,
    /// Maximum number of tokens to draft at a time. How many are drafted adapts to how many are accepted.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 15,
        visible_aliases = ["draft", "draft-n"],
        requires = "drafter",
        value_parser = parse_draft_max
    )]
    draft_max: u64,
}

impl DraftArguments {
    /// The maximum length of drafts; 0 without speculative decoding.
    pub(crate) fn length(&self) -> u64 {
        if self.lookup || self.model_draft.is_some() { self.draft_max } else { 0 }
    }
}

fn parse_draft_max(text: &str) -> Result<u64, String> {
    let count = text.parse::<u64>().ok().filter(|count| (1..=512).contains(count));
    count.ok_or_else(|| "expected a number of tokens from 1 to 512".to_owned())
}
