//! Pre-tokenizers: how text is split into words before BPE, by their names in `tokenizer.ggml.pre`, as
//! [llama.cpp](https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp) writes them.

use super::{TokenizerError, words};
use crate::Error;

/// The length of the match at the start of a text, 0 for none.
type Matcher = fn(&str) -> usize;

/// How a family of models cuts text into words.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreTokenizer {
    /// Each splits the pieces of the stage before into its matches and the text between them.
    stages: &'static [Matcher],
    /// Whether a word that is a token is taken whole, without merging.
    pub(super) whole_words: bool,
    /// Whether text begins with the BOS token, unless the file says otherwise.
    pub(super) adds_bos: bool,
}

const fn stages(stages: &'static [Matcher]) -> PreTokenizer {
    PreTokenizer { stages, whole_words: false, adds_bos: false }
}

const DEFAULT: &[Matcher] = &[words::marks, words::gpt2, words::digits, words::three_ascii_digits];
const DIGIT_GPT2: &[Matcher] = &[words::digit, words::gpt2];
const DEEPSEEK_CODER: &[Matcher] =
    &[words::line_end, words::spaced_letters, words::spaced_marks, words::deepseek_coder_cjk, words::digit];
const DEEPSEEK3: &[Matcher] = &[words::three_digits_at_most, words::deepseek3_cjk, words::deepseek3];

const LLAMA3: PreTokenizer = PreTokenizer { stages: &[words::llama3], whole_words: true, adds_bos: true };
const TEKKEN: PreTokenizer = PreTokenizer { stages: &[words::tekken], whole_words: true, adds_bos: true };
const MINICPM5: PreTokenizer = PreTokenizer {
    stages: &[words::three_digits_at_most, words::any_digits],
    whole_words: true,
    adds_bos: false,
};

/// The names that `tokenizer.ggml.pre` may have.
const KNOWN: &[(&[&str], PreTokenizer)] = &[
    (&["default"], stages(DEFAULT)),
    (
        &["gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo", "jais", "exaone4"],
        stages(&[words::gpt2]),
    ),
    (&["jina-es", "jina-de", "jina-v2-es", "jina-v2-de"], stages(&[words::gpt2])),
    (&["trillion", "granite-docling"], stages(&[words::gpt2])),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        stages(DIGIT_GPT2),
    ),
    (&["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"], LLAMA3),
    (&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], stages(&[words::llama3])),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        stages(&[words::qwen2]),
    ),
    (&["qwen35"], stages(&[words::qwen35])),
    (&["minicpm5"], MINICPM5),
    (&["tekken"], TEKKEN),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], stages(&[words::gpt4o])),
    (&["falcon"], stages(&[words::falcon_marks, words::gpt2, words::three_ascii_digits])),
    (&["deepseek-coder"], stages(DEEPSEEK_CODER)),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm"], stages(DEEPSEEK3)),
    (&["bloom", "gpt3-finnish", "poro-chat"], stages(&[words::bloom])),
    (&["viking"], stages(&[words::bloom, words::digit])),
];

impl PreTokenizer {
    /// The one with this name.
    pub(super) fn named(name: &str) -> Result<PreTokenizer, Error> {
        match KNOWN.iter().find(|(names, _)| names.contains(&name)) {
            Some((_, found)) => Ok(*found),
            None => {
                let names: Vec<&str> = KNOWN.iter().flat_map(|(names, _)| names.iter().copied()).collect();
                Err(TokenizerError::UnknownPreTokenizer { name: name.to_owned(), known: names.join(", ") }
                    .into())
            }
        }
    }

    /// The words of a text, all of it, in order.
    pub(super) fn words<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let mut pieces = vec![text];
        for stage in self.stages {
            let mut cut = Vec::with_capacity(pieces.len());
            for piece in pieces {
                isolate(piece, *stage, &mut cut);
            }
            pieces = cut;
        }
        pieces
    }
}

/// Splits a text into matches and the text between them.
fn isolate<'a>(text: &'a str, matcher: Matcher, pieces: &mut Vec<&'a str>) {
    let (mut start, mut at) = (0, 0);
    while let Some(next) = text[at..].chars().next() {
        match matcher(&text[at..]) {
            0 => at += next.len_utf8(),
            length => {
                if start < at {
                    pieces.push(&text[start..at]);
                }
                pieces.push(&text[at..at + length]);
                at += length;
                start = at;
            }
        }
    }
    if start < at {
        pieces.push(&text[start..at]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<&str> = KNOWN.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_words_of_every_family_are_the_whole_text() {
        let text = "Hello wörld's 12345,\r\n\n  日本語 ½ e\u{301}\u{a0} \u{7f}\u{0}🦀🏽 x\t\t";
        for (names, pre) in KNOWN {
            assert_eq!(pre.words(text).concat(), text, "{}", names[0]);
            assert!(pre.words("").is_empty() || pre.words("") == [""]);
        }
    }

    #[test]
    fn stages_see_only_the_pieces_before_them() {
        let smollm = PreTokenizer::named("smollm").unwrap();
        assert_eq!(smollm.words("in  12"), ["in", "  ", "1", "2"]);
        let default = PreTokenizer::named("default").unwrap();
        assert_eq!(default.words("a, 12345"), ["a", ",", " ", "123", "45"]);
    }
}
