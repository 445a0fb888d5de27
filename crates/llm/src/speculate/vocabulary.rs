//! Whether two models have the same tokens.

use std::fmt;

use orlop_gguf::{Metadata, Strings};

use crate::tokenizer::TOKENS;
use crate::{Error, Model};

/// Vocabularies of one family are padded differently; llama.cpp allows
/// [as much](https://github.com/ggml-org/llama.cpp/blob/master/common/speculative.cpp).
const MAX_PADDING: usize = 128;

/// How the vocabularies of a model and a draft model differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VocabularyDifference {
    /// Tokens of the model.
    pub model_tokens: usize,
    /// Tokens of the draft model.
    pub draft_tokens: usize,
    /// The first token that differs, if both files list their tokens and it is not only their number.
    pub first: Option<DifferentToken>,
}

/// A token that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferentToken {
    /// Its id.
    pub id: usize,
    /// Its text in the model.
    pub model: String,
    /// Its text in the draft model.
    pub draft: String,
}

impl fmt::Display for VocabularyDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VocabularyDifference { model_tokens, draft_tokens, first } = self;
        if let Some(DifferentToken { id, model, draft }) = first {
            write!(f, "token {id} is `{draft}` instead of `{model}` ")?;
        }
        write!(f, "({draft_tokens} tokens, the model has {model_tokens})")
    }
}

/// Checks that a draft model has the tokens of a model, up to padding at the end.
pub(crate) fn check_vocabulary(model: &Model, draft: &Model) -> Result<(), Error> {
    let [model_tokens, draft_tokens] = [model, draft].map(|model| model.config().vocabulary as usize);
    let first = first_difference(listed(model)?, listed(draft)?);
    if first.is_none() && model_tokens.abs_diff(draft_tokens) <= MAX_PADDING {
        return Ok(());
    }
    Err(Error::OtherVocabulary { difference: VocabularyDifference { model_tokens, draft_tokens, first } })
}

fn listed(model: &Model) -> Result<Option<&Strings>, Error> {
    Ok(model.file().metadata().optional(TOKENS, Metadata::strings)?)
}

fn first_difference(model: Option<&Strings>, draft: Option<&Strings>) -> Option<DifferentToken> {
    let (model, draft) = (model?, draft?);
    let different = |id: &usize| model.get(*id) != draft.get(*id);
    let id = (0..model.len().min(draft.len())).find(different)?;
    let text = |strings: &Strings| strings.get(id).map(|text| String::from_utf8_lossy(text).into_owned());
    Some(DifferentToken { id, model: text(model)?, draft: text(draft)? })
}
