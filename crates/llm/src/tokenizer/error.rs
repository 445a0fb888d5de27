//! What can be wrong with the tokenizer in a file.

/// Why a file's tokenizer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file holds no tokenizer.
    #[error("the file has no tokenizer (`tokenizer.ggml.model`), so text cannot be used with it")]
    Missing,
    /// A kind of tokenizer that is not known.
    #[error("the tokenizer `{name}` (`tokenizer.ggml.model`) is not known; known are {known}")]
    UnknownModel {
        /// What the file says.
        name: String,
        /// What there is.
        known: String,
    },
    /// A way to cut text into words that is not known.
    #[error("the pre-tokenizer `{name}` (`tokenizer.ggml.pre`) is not known; known are {known}")]
    UnknownPreTokenizer {
        /// What the file says.
        name: String,
        /// What there is.
        known: String,
    },
    /// A vocabulary without tokens, or with too many.
    #[error("the vocabulary has {tokens} tokens, where 1 to {} are possible", i32::MAX)]
    VocabularySize {
        /// How many there are.
        tokens: usize,
    },
    /// A list beside the vocabulary is not as long as it.
    #[error("`{key}` has {found} values for a vocabulary of {tokens} tokens")]
    VocabularyLength {
        /// The list.
        key: &'static str,
        /// How long it is.
        found: usize,
        /// How many tokens there are.
        tokens: usize,
    },
    /// Two tokens are the same.
    #[error("tokens {first} and {second} are both `{text}`")]
    DuplicateToken {
        /// Their text.
        text: String,
        /// The one.
        first: u32,
        /// The other.
        second: u32,
    },
    /// A merge is not two texts with a space between them.
    #[error("merge number {index} is `{merge}`, where two tokens with a space between them are expected")]
    MergeForm {
        /// Its place among the merges, from 0.
        index: usize,
        /// What it is.
        merge: String,
    },
    /// A merge is of tokens that are not in the vocabulary, or makes one.
    #[error(
        "merge number {index}, `{merge}`, needs the token `{token}`, which is not among the {tokens} there are"
    )]
    MergeUnknown {
        /// Its place among the merges, from 0.
        index: usize,
        /// What it is.
        merge: String,
        /// What is missing.
        token: String,
        /// How many tokens there are.
        tokens: usize,
    },
    /// The map of characters has not the form that it should have.
    #[error(
        "`tokenizer.ggml.precompiled_charsmap` is no character map: it should be bytes, a size, as many of them, and texts; \
         it has {bytes}"
    )]
    CharacterMap {
        /// How many bytes it has.
        bytes: usize,
    },
    /// A special token is not in the vocabulary.
    #[error("`{key}` is {id}, which is not in the vocabulary of {tokens} tokens")]
    SpecialTokenRange {
        /// Which special token.
        key: &'static str,
        /// Its id.
        id: i64,
        /// How many tokens there are.
        tokens: usize,
    },
}
