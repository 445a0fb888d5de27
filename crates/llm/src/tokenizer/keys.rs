//! The keys under which files keep vocabularies.

pub(super) const MODEL: &str = "tokenizer.ggml.model";
pub(super) const PRE: &str = "tokenizer.ggml.pre";
pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(super) const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";
pub(super) const SCORES: &str = "tokenizer.ggml.scores";
pub(super) const MERGES: &str = "tokenizer.ggml.merges";
pub(super) const BOS_ID: &str = "tokenizer.ggml.bos_token_id";
pub(super) const EOS_ID: &str = "tokenizer.ggml.eos_token_id";
pub(super) const EOT_ID: &str = "tokenizer.ggml.eot_token_id";
pub(super) const EOM_ID: &str = "tokenizer.ggml.eom_token_id";
pub(super) const LOWERCASE: &str = "tokenizer.ggml.normalizer.lowercase";
pub(super) const STRIP_ACCENTS: &str = "tokenizer.ggml.normalizer.strip_accents";
pub(super) const CHARACTER_MAP: &str = "tokenizer.ggml.precompiled_charsmap";
pub(super) const REMOVE_EXTRA_SPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";
pub(super) const SEPARATOR_ID: &str = "tokenizer.ggml.seperator_token_id";
pub(super) const ADD_SEPARATOR: &str = "tokenizer.ggml.add_sep_token";
pub(super) const UNKNOWN_ID: &str = "tokenizer.ggml.unknown_token_id";
pub(super) const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
pub(super) const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
pub(super) const ADD_SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
