//! Tokenizers: text to tokens and back, by the vocabulary in a model file. Known are BPE of bytes (`gpt2` in files) and of plain
//! text (`gemma4`, and `whitespace` without blanks), SentencePiece by merges (`llama`) and by Unigram (`t5`), WordPiece (`bert`), and RWKV's longest matches
//! (`rwkv`); results are those of llama.cpp and of the models' own tokenizers.

mod alphabet;
mod bpe;
mod chain;
mod character_map;
mod class;
mod ends;
mod error;
mod keys;
mod longest;
mod pre_tokenizer;
mod sentencepiece;
mod special;
mod unigram;
mod vocabulary;
mod word_piece;
mod words;

use std::borrow::Cow;

use orlop_gguf::{Metadata, Strings};

use crate::Error;
use bpe::Bpe;
use ends::Purpose;
pub use error::TokenizerError;
pub(crate) use keys::TOKENS;
use longest::LongestMatch;
use pre_tokenizer::{PlainWords, PreTokenizer};
use sentencepiece::SentencePiece;
use special::{Fragment, Specials};
use unigram::Unigram;
use vocabulary::{Kind, Spelling, Vocabulary};
use word_piece::WordPiece;

pub use special::Special;

/// The values of `tokenizer.ggml.model` that are known.
const MODELS: [&str; 7] = ["gpt2", "llama", "bert", "t5", "gemma4", "rwkv", "whitespace"];

/// Longer texts are cut here, so that positions in them fit 32 bits.
const LONGEST: usize = 1 << 30;

/// Some bytes of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
}

/// A tokenizer: the vocabulary of a model file, and what the file says about its use.
///
/// ```
/// use orlop_gguf::{Array, Metadata, Strings};
/// use orlop_llm::{Special, Tokenizer};
///
/// let mut metadata = Metadata::new();
/// metadata.set("tokenizer.ggml.model", "gpt2")?;
/// metadata.set("tokenizer.ggml.pre", "gpt-2")?;
/// let tokens: Strings = ["Ġ", "a", "b", "ab", "Ġab"].into_iter().collect();
/// metadata.set("tokenizer.ggml.tokens", Array::from(tokens))?;
/// let merges: Strings = ["a b", "Ġ ab"].into_iter().collect();
/// metadata.set("tokenizer.ggml.merges", Array::from(merges))?;
///
/// let tokenizer = Tokenizer::from_metadata(&metadata)?;
/// let ids = tokenizer.encode("ab aba", Special::Parse);
/// assert_eq!(ids, [3, 4, 1]);
/// assert_eq!(tokenizer.decode(4), b" ab");
/// # Ok::<(), orlop_llm::Error>(())
/// ```
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    model: Model,
    specials: Specials,
    ids: SpecialIds,
    adds_bos: bool,
    adds_eos: bool,
    /// Behind the first of two texts.
    adds_separator: bool,
}

#[derive(Debug)]
enum Model {
    Bytes { pre: PreTokenizer, bpe: Bpe },
    Pieces { pieces: SentencePiece, space_first: bool },
    Longest(LongestMatch),
    Words(WordPiece),
    Unigram(Box<Unigram>),
}

/// What is added to texts, unless the file says otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct Added {
    bos: bool,
    eos: bool,
    separator: bool,
}

/// Tokens with a special meaning.
#[derive(Debug, Default)]
struct SpecialIds {
    bos: Option<u32>,
    eos: Option<u32>,
    eot: Option<u32>,
    unknown: Option<u32>,
    separator: Option<u32>,
    /// All tokens that end generation, in order.
    ends: Vec<u32>,
}

impl Tokenizer {
    /// The tokenizer in a model file.
    ///
    /// # Errors
    /// [`TokenizerError`]: there is none, it is of a kind that is not known, or its vocabulary is broken. Metadata of
    /// other types than expected.
    pub fn from_metadata(metadata: &Metadata) -> Result<Tokenizer, Error> {
        let name = metadata.optional(keys::MODEL, Metadata::string)?;
        match name {
            None | Some("none" | "no_vocab") => Err(TokenizerError::Missing.into()),
            Some(name @ ("gpt2" | "gemma4" | "whitespace")) => Tokenizer::bpe(metadata, name),
            Some("llama") => Tokenizer::pieces(metadata),
            Some("bert") => Tokenizer::words(metadata),
            Some("t5") => Tokenizer::unigram(metadata),
            Some("rwkv") => Tokenizer::longest(metadata),
            Some(name) => {
                Err(TokenizerError::UnknownModel { name: name.to_owned(), known: MODELS.join(", ") }.into())
            }
        }
    }

    fn bpe(metadata: &Metadata, model: &str) -> Result<Tokenizer, Error> {
        let mut pre = match metadata.optional(keys::PRE, Metadata::string)? {
            None | Some("") if model == "gpt2" => PreTokenizer::named("default")?,
            None | Some("") => PreTokenizer::named(model)?,
            Some(name) => PreTokenizer::named(name)?,
        };
        if model == "whitespace" {
            let lowercase = metadata.optional(keys::LOWERCASE, Metadata::bool)?.unwrap_or(false);
            pre.plain = Some(PlainWords { drops_blanks: true, lowercase, ..pre.plain.unwrap_or_default() });
        }
        let spelling = if pre.plain.is_some() { Spelling::Text } else { Spelling::Bytes };
        let vocabulary = Vocabulary::from_metadata(metadata, spelling)?;
        let none = Strings::default();
        let lacks_merges = pre.may_lack_merges && !metadata.contains(keys::MERGES);
        let merges = if lacks_merges { &none } else { metadata.strings(keys::MERGES)? };
        let bpe = Bpe::new(merges, &vocabulary)?;
        let ids = SpecialIds::from_metadata(metadata, &vocabulary, [None; 4])?;
        let adds = Added { bos: pre.adds_bos, separator: pre.adds_separator, ..Added::default() };
        Tokenizer::finish(metadata, vocabulary, Model::Bytes { pre, bpe }, ids, adds)
    }

    fn words(metadata: &Metadata) -> Result<Tokenizer, Error> {
        let vocabulary = Vocabulary::from_metadata(metadata, Spelling::Text)?;
        let mut ids =
            SpecialIds::from_metadata(metadata, &vocabulary, [Some(101), None, Some(100), Some(102)])?;
        // Texts end with the separator, whatever else the file calls an end.
        ids.eos = ids.separator.or(ids.eos);
        let words = WordPiece::new(metadata, ids.unknown)?;
        let adds = Added { bos: true, eos: true, separator: false };
        let mut tokenizer = Tokenizer::finish(metadata, vocabulary, Model::Words(words), ids, adds)?;
        (tokenizer.adds_eos, tokenizer.adds_separator) = (true, false);
        Ok(tokenizer)
    }

    fn unigram(metadata: &Metadata) -> Result<Tokenizer, Error> {
        let vocabulary = Vocabulary::from_metadata(metadata, Spelling::Text)?;
        let ids = SpecialIds::from_metadata(metadata, &vocabulary, [None, Some(1), Some(2), None])?;
        let unigram = Box::new(Unigram::new(metadata, &vocabulary, ids.unknown)?);
        let adds = Added { eos: true, ..Added::default() };
        Tokenizer::finish(metadata, vocabulary, Model::Unigram(unigram), ids, adds)
    }

    fn pieces(metadata: &Metadata) -> Result<Tokenizer, Error> {
        let vocabulary = Vocabulary::from_metadata(metadata, Spelling::Text)?;
        let ids = SpecialIds::from_metadata(metadata, &vocabulary, [Some(1), Some(2), Some(0), None])?;
        let pieces = SentencePiece::new(metadata, &vocabulary, ids.unknown)?;
        let space_first = metadata.optional(keys::ADD_SPACE_PREFIX, Metadata::bool)?.unwrap_or(true);
        let adds = Added { bos: true, ..Added::default() };
        Tokenizer::finish(metadata, vocabulary, Model::Pieces { pieces, space_first }, ids, adds)
    }

    fn longest(metadata: &Metadata) -> Result<Tokenizer, Error> {
        let vocabulary = Vocabulary::from_metadata(metadata, Spelling::Escaped)?;
        let ids = SpecialIds::from_metadata(metadata, &vocabulary, [None; 4])?;
        let model = Model::Longest(LongestMatch::new(&vocabulary));
        Tokenizer::finish(metadata, vocabulary, model, ids, Added::default())
    }

    fn finish(
        metadata: &Metadata,
        mut vocabulary: Vocabulary,
        model: Model,
        mut ids: SpecialIds,
        adds: Added,
    ) -> Result<Tokenizer, Error> {
        ids.recognise(&mut vocabulary);
        // Files do not say so, but these models need it.
        let name = metadata.optional("general.name", Metadata::text)?;
        let name = name.map(|name| name.to_str_lossy().to_lowercase()).unwrap_or_default();
        let phi3 = name.contains("phi-3") || name.contains("phi3");
        let takes_space = |text: &[u8]| phi3 && !matches!(text, b"<unk>" | b"<s>" | b"<|endoftext|>");
        // Unigram finds them by itself, after spaces are normalized.
        let defined = !matches!(model, Model::Unigram(_));
        let specials = Specials::new(&vocabulary, defined, takes_space);
        let flag = |key, default| Ok::<_, Error>(metadata.optional(key, Metadata::bool)?.unwrap_or(default));
        let adds_bos = flag(keys::ADD_BOS, adds.bos)?;
        let adds_eos = flag(keys::ADD_EOS, adds.eos)?;
        let adds_separator = flag(keys::ADD_SEPARATOR, adds.separator)?;
        Ok(Tokenizer { vocabulary, model, specials, ids, adds_bos, adds_eos, adds_separator })
    }

    /// How many tokens there are.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary.len()
    }

    /// The tokens of a text, with nothing added at its ends.
    ///
    /// Takes n log n time. Bytes without a token are left out, unless the vocabulary has an unknown token.
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        self.encode_from(text, special, true)
    }

    /// The tokens of a text that continues another one: no space is put before it.
    pub(crate) fn encode_inside(&self, text: &str) -> Vec<u32> {
        self.encode_from(text, Special::AsText, false)
    }

    fn encode_from(&self, text: &str, special: Special, mut after_token: bool) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut scratch = bpe::Scratch::default();
        for fragment in self.specials.cut(text, special, &self.vocabulary) {
            let span = match fragment {
                Fragment::Token(id) => {
                    ids.push(id);
                    after_token = true;
                    continue;
                }
                Fragment::Text(span) => span,
            };
            for part in parts(&text[span.start..span.end]) {
                match &self.model {
                    Model::Bytes { pre, bpe } if pre.plain.is_some() => {
                        self.encode_plain(pre, bpe, part, &mut scratch, &mut ids);
                    }
                    Model::Words(words) => words.encode(part, &self.vocabulary, &mut ids),
                    Model::Unigram(unigram) => unigram.encode(part, &self.vocabulary, &mut ids),
                    Model::Bytes { pre, bpe } => {
                        for word in pre.words(part) {
                            let whole = pre.whole_words.then(|| self.vocabulary.find(word.as_bytes()));
                            match whole.flatten() {
                                Some(id) => ids.push(id),
                                None => bpe.encode(word.as_bytes(), &mut scratch, &mut ids),
                            }
                        }
                    }
                    Model::Pieces { pieces, space_first } => {
                        let mut escaped = part.replace(' ', "▁");
                        if *space_first && after_token {
                            escaped.insert(0, '▁');
                        }
                        pieces.encode(&escaped, &self.vocabulary, &mut ids);
                    }
                    Model::Longest(longest) => {
                        longest.encode(part.as_bytes(), &self.vocabulary, self.ids.unknown, &mut ids);
                    }
                }
                after_token = false;
            }
        }
        ids
    }

    /// The tokens of words of plain text. Line ends that are a token are taken whole.
    fn encode_plain(
        &self,
        pre: &PreTokenizer,
        bpe: &Bpe,
        text: &str,
        scratch: &mut bpe::Scratch,
        ids: &mut Vec<u32>,
    ) {
        let PlainWords { escapes, marks_words, drops_blanks, lowercase } = pre.plain.unwrap_or_default();
        let lower = || text.chars().flat_map(char::to_lowercase).collect::<String>();
        let text = if lowercase { Cow::from(lower()) } else { Cow::from(text) };
        let escaped = if escapes { Cow::from(text.replace(' ', "▁")) } else { text };
        let words = pre.words(&escaped);
        for line in words.into_iter().filter(|word| !drops_blanks || !word.starts_with(class::space)) {
            let ends = line.starts_with('\n').then(|| self.vocabulary.find(line.as_bytes())).flatten();
            match ends {
                Some(id) => ids.push(id),
                None if marks_words && !line.starts_with('\n') => {
                    let line = if line.starts_with('▁') { line.to_owned() } else { format!("▁{line}") };
                    let starts = line.match_indices('▁').map(|(at, _)| at);
                    let ends = starts.clone().skip(1).chain([line.len()]);
                    for (start, end) in starts.zip(ends) {
                        bpe.encode_text(&line[start..end], &self.vocabulary, scratch, ids);
                    }
                }
                None => bpe.encode_text(line, &self.vocabulary, scratch, ids),
            }
        }
    }

    /// The tokens of a text, with BOS before and EOS after them where the file says so.
    pub fn prompt(&self, text: &str, special: Special) -> Vec<u32> {
        self.added_bos().into_iter().chain(self.encode(text, special)).chain(self.added_end()).collect()
    }

    /// The tokens of two texts that are looked at together, with what the file says before, between and behind them.
    pub fn pair(&self, first: &str, second: &str) -> Vec<u32> {
        let [first, second] = [first, second].map(|text| self.encode(text, Special::AsText));
        let separator = self.ids.separator.filter(|_| self.adds_separator);
        let begin = self.added_bos().into_iter().chain(first).chain(self.added_end());
        begin.chain(separator).chain(second).chain(self.added_end()).collect()
    }

    /// The token that [`Tokenizer::prompt`] puts behind a text, if it does.
    fn added_end(&self) -> Option<u32> {
        self.ids.eos.filter(|_| self.adds_eos)
    }

    /// The tokens of a text that a chat template made: special tokens in it are parsed, and BOS is added where
    /// the file says so and the template has not written it.
    pub fn chat(&self, text: &str) -> Vec<u32> {
        let ids = self.encode(text, Special::Parse);
        let bos = self.added_bos().filter(|bos| ids.first() != Some(bos));
        bos.into_iter().chain(ids).collect()
    }

    /// The bytes that a token adds to a text: none for control tokens, and for ids that are not in the
    /// vocabulary. They may be parts of characters: see [`TextStream`](crate::TextStream).
    pub fn decode(&self, id: u32) -> &[u8] {
        if self.is_control(id) { &[] } else { self.vocabulary.bytes(id) }
    }

    /// As [`Tokenizer::decode`], with control tokens written out.
    pub fn decode_special(&self, id: u32) -> &[u8] {
        self.vocabulary.bytes(id)
    }

    /// The text of some tokens from a text's beginning, control tokens left out, with U+FFFD for what is not
    /// UTF-8. The space that [`Tokenizer::encode`] puts before a text where the file says so is gone.
    pub fn decode_all(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| self.decode(*id)).copied().collect();
        let text = match &self.model {
            Model::Pieces { space_first: true, .. } | Model::Words(_) | Model::Unigram(_) => {
                bytes.strip_prefix(b" ").unwrap_or(&bytes)
            }
            _ => &bytes,
        };
        String::from_utf8_lossy(text).into_owned()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.ids.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.ids.eos
    }

    /// The token that ends a turn of a chat.
    pub fn eot(&self) -> Option<u32> {
        self.ids.eot
    }

    /// The token that [`Tokenizer::prompt`] puts before a text, if it does.
    pub fn added_bos(&self) -> Option<u32> {
        self.ids.bos.filter(|_| self.adds_bos)
    }

    /// Whether [`Tokenizer::prompt`] begins with BOS.
    pub fn adds_bos(&self) -> bool {
        self.added_bos().is_some()
    }

    /// Whether [`Tokenizer::prompt`] ends with EOS.
    pub fn adds_eos(&self) -> bool {
        self.adds_eos && self.ids.eos.is_some()
    }

    /// Whether this token ends generation: EOS, the end of a turn, and similar ones.
    pub fn is_end(&self, id: u32) -> bool {
        self.ids.ends.binary_search(&id).is_ok()
    }

    /// Whether a token stands for a byte because no piece of text does.
    pub(crate) fn is_byte(&self, id: u32) -> bool {
        self.vocabulary.kind(id) == Kind::Byte
    }

    /// Whether a token controls the model, and is not text.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.vocabulary.kind(id), Kind::Control | Kind::Unknown)
    }
}

impl SpecialIds {
    /// What the file says, or these defaults for BOS, EOS, the unknown token and the separator.
    fn from_metadata(
        metadata: &Metadata,
        vocabulary: &Vocabulary,
        defaults: [Option<u32>; 4],
    ) -> Result<SpecialIds, Error> {
        let tokens = vocabulary.len();
        let read = |key: &'static str, default: Option<u32>| {
            let default = default.filter(|id| (*id as usize) < tokens);
            match metadata.optional(key, Metadata::i64)? {
                None | Some(-1 | 0xffff_ffff) => Ok(default), // both stand for "not set"
                Some(id) => match u32::try_from(id) {
                    Ok(id) if (id as usize) < tokens => Ok(Some(id)),
                    _ => Err(Error::from(TokenizerError::SpecialTokenRange { key, id, tokens })),
                },
            }
        };
        let [bos, eos, unknown, separator] = defaults;
        let eom = read(keys::EOM_ID, None)?;
        let ids = SpecialIds {
            bos: read(keys::BOS_ID, bos)?,
            eos: read(keys::EOS_ID, eos)?,
            eot: read(keys::EOT_ID, None)?,
            unknown: read(keys::UNKNOWN_ID, unknown)?,
            separator: read(keys::SEPARATOR_ID, separator)?,
            ends: Vec::new(),
        };
        Ok(SpecialIds { ends: [ids.eos, ids.eot, eom].into_iter().flatten().collect(), ..ids })
    }

    /// Adds the tokens that are known by their text, and makes control tokens of them.
    fn recognise(&mut self, vocabulary: &mut Vocabulary) {
        let mut turn = None;
        // In Gemma 4's vocabulary `</s>` is the tag.
        let tag = vocabulary.find(b"<|tool_response>").and_then(|_| vocabulary.find(b"</s>"));
        for id in (0..vocabulary.len() as u32).filter(|id| Some(*id) != tag) {
            let text = vocabulary.text(id);
            let Some(purpose) = ends::purpose(text) else { continue };
            vocabulary.set_control(id);
            match purpose {
                Purpose::EndOfTurn(_) => {
                    self.ends.push(id);
                    turn = turn.into_iter().chain([(purpose, id)]).min();
                }
                Purpose::End => self.ends.push(id),
                Purpose::Control => {}
            }
        }
        self.eot = self.eot.or(turn.map(|(_, id)| id));
        // In harmony and Solar Open `<|end|>` ends a message, after which the model continues.
        let has = |text: &[u8]| self.ends.iter().any(|id| vocabulary.text(*id) == text);
        let calls = has(b"<|call|>") || has(b"<|calls|>");
        if calls && (has(b"<|return|>") || has(b"<|flush|>")) {
            self.ends.retain(|id| vocabulary.text(*id) != b"<|end|>");
        }
        self.ends.sort_unstable();
        self.ends.dedup();
    }
}

/// Cuts a text that is too long for one piece.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(rest.floor_char_boundary(LONGEST));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}
