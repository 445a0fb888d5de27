//! Pre-tokenizers: how text is split into words before BPE, by their names in `tokenizer.ggml.pre`, as
//! [llama.cpp](https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp) writes them.

use super::{TokenizerError, words};
use crate::Error;

/// The length of the match at the start of a text, 0 for none.
type Matcher = fn(&str) -> usize;

/// How pieces of text are cut further.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Into matches and the text between them.
    Matches(Matcher),
    /// Numbers into groups of three digits from the right.
    Threes,
    /// The white space at the end, apart.
    BlankEnd,
}

/// Words as they are, without a character for each byte.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlainWords {
    /// Spaces are written as `▁`.
    pub(super) escapes: bool,
    /// A `▁` begins every word, and the text.
    pub(super) marks_words: bool,
    /// White space is no token.
    pub(super) drops_blanks: bool,
    /// Text is put in lower case.
    pub(super) lowercase: bool,
}

/// How a family of models cuts text into words.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreTokenizer {
    /// Each cuts the pieces of the stage before.
    stages: &'static [Stage],
    /// Tokens are spelt as plain text.
    pub(super) plain: Option<PlainWords>,
    /// Whether files may have no merges: each byte is a token then.
    pub(super) may_lack_merges: bool,
    /// Whether a separator comes behind the first of two texts, unless the file says otherwise.
    pub(super) adds_separator: bool,
    /// Whether a word that is a token is taken whole, without merging.
    pub(super) whole_words: bool,
    /// Whether text begins with the BOS token, unless the file says otherwise.
    pub(super) adds_bos: bool,
}

const fn stages(stages: &'static [Stage]) -> PreTokenizer {
    PreTokenizer {
        stages,
        plain: None,
        may_lack_merges: false,
        adds_separator: false,
        whole_words: false,
        adds_bos: false,
    }
}

const fn whole_words(stages: PreTokenizer) -> PreTokenizer {
    PreTokenizer { whole_words: true, ..stages }
}

const fn with_bos(stages: PreTokenizer) -> PreTokenizer {
    PreTokenizer { adds_bos: true, ..stages }
}

use Stage::{BlankEnd, Matches as M, Threes};

const GPT2: &[Stage] = &[M(words::gpt2)];
const DEFAULT: &[Stage] = &[M(words::marks), M(words::gpt2), M(words::digits), M(words::three_ascii_digits)];
const DIGIT_GPT2: &[Stage] = &[M(words::digit), M(words::gpt2)];
const DEEPSEEK_LLM: &[Stage] = &[
    M(words::line_end),
    M(words::deepseek_llm_letters),
    M(words::deepseek_llm_marks),
    BlankEnd,
    M(words::deepseek_coder_cjk),
    M(words::digits),
];
const DEEPSEEK_CODER: &[Stage] = &[
    M(words::line_end),
    M(words::spaced_letters),
    M(words::spaced_marks),
    M(words::deepseek_coder_cjk),
    M(words::digit),
];
const DEEPSEEK3: &[Stage] = &[M(words::three_digits_at_most), M(words::deepseek3_cjk), M(words::deepseek3)];
const SPARK: &[Stage] =
    &[M(words::three_digits_at_most), M(words::deepseek3_cjk), M(words::spark), M(words::digit)];
const CHAMELEON: &[Stage] = &[
    M(words::sentinel),
    M(words::image_token),
    M(words::indent),
    M(words::digit),
    M(words::one_mark),
    M(words::gpt2),
];
const FALCON: &[Stage] = &[M(words::falcon_marks), M(words::gpt2), M(words::three_ascii_digits)];

const LLAMA3: PreTokenizer = stages(&[M(words::llama3)]);
const AS_IT_IS: PlainWords =
    PlainWords { escapes: false, marks_words: false, drops_blanks: false, lowercase: false };
const ESCAPED: PlainWords = PlainWords { escapes: true, ..AS_IT_IS };
const MARKED: PlainWords = PlainWords { marks_words: true, ..ESCAPED };
const PLAIN_LINES: PreTokenizer = PreTokenizer { plain: Some(ESCAPED), ..stages(&[M(words::lines)]) };
const PLAIN_WORDS: PreTokenizer = PreTokenizer { plain: Some(MARKED), ..PLAIN_LINES };
const UNSPACED: PreTokenizer = PreTokenizer { plain: Some(AS_IT_IS), ..stages(&[M(words::unspaced)]) };

/// The names that `tokenizer.ggml.pre` may have.
const KNOWN: &[(&[&str], PreTokenizer)] = &[
    (&["default"], stages(DEFAULT)),
    (
        &["gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo", "jais", "exaone4"],
        stages(GPT2),
    ),
    (&["jina-es", "jina-de", "jina-v2-es", "jina-v2-de"], stages(GPT2)),
    (&["trillion", "granite-docling"], stages(GPT2)),
    (&["jina-v1-en", "jina-v2-code", "roberta-bpe"], PreTokenizer { adds_separator: true, ..stages(GPT2) }),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        stages(DIGIT_GPT2),
    ),
    (
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        with_bos(whole_words(LLAMA3)),
    ),
    (&["glm5"], whole_words(LLAMA3)),
    (&["dbrx", "smaug-bpe", "chatglm-bpe", "glm4"], LLAMA3),
    (&["jais-2"], stages(&[M(words::jais2)])),
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
            "bailingmoe",
            "bailingmoe2",
            "llada-moe",
        ],
        stages(&[M(words::qwen2)]),
    ),
    (&["laguna"], stages(&[M(words::lines), M(words::qwen2)])),
    (&["seed-coder"], stages(&[M(words::seed_coder)])),
    (&["ufakzeka"], stages(&[M(words::ufakzeka)])),
    (&["exaone-moe"], stages(&[M(words::exaone_moe)])),
    (&["qwen35"], stages(&[M(words::qwen35)])),
    (&["minicpm5"], whole_words(stages(&[M(words::three_digits_at_most), M(words::any_digits)]))),
    (&["tekken"], with_bos(whole_words(stages(&[M(words::tekken)])))),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], stages(&[M(words::gpt4o)])),
    (&["granite-embed-multi-97m"], whole_words(stages(&[M(words::gpt4o)]))),
    (&["tiny_aya", "cohere2moe"], stages(&[Threes, M(words::gpt4o)])),
    (&["youtu"], whole_words(stages(&[M(words::youtu_cjk), M(words::youtu)]))),
    (&["kimi-k2"], PreTokenizer { may_lack_merges: true, ..stages(&[M(words::kimi)]) }),
    (&["superbpe"], stages(&[Threes])),
    (&["falcon"], stages(FALCON)),
    (&["chameleon"], with_bos(stages(CHAMELEON))),
    (&["deepseek-llm"], stages(DEEPSEEK_LLM)),
    (&["deepseek-coder"], stages(DEEPSEEK_CODER)),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], stages(DEEPSEEK3)),
    (&["spark2_5"], stages(SPARK)),
    (&["afmoe"], stages(&[Threes, M(words::asian), M(words::deepseek3)])),
    (&["bloom", "gpt3-finnish", "poro-chat"], stages(&[M(words::bloom)])),
    (&["viking"], stages(&[M(words::bloom), M(words::digit)])),
    (&["gemma4", "granite-embed-multi-311m", "sarvam-moe"], PLAIN_LINES),
    (&["mmbert"], PLAIN_WORDS),
    (&["whitespace"], UNSPACED),
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
                match stage {
                    Stage::Matches(matcher) => isolate(piece, *matcher, &mut cut),
                    Stage::Threes => words::threes_from_the_right(piece, &mut cut),
                    Stage::BlankEnd => words::blank_end(piece, &mut cut),
                }
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
    fn there_are_as_many_as_llama_cpp_knows() {
        assert_eq!(KNOWN.iter().map(|(names, _)| names.len()).sum::<usize>(), 92);
    }

    #[test]
    fn numbers_go_by_three_from_the_right() {
        let superbpe = PreTokenizer::named("superbpe").unwrap();
        assert_eq!(superbpe.words("a1234567 12"), ["a", "1", "234", "567", " ", "12"]);
        let afmoe = PreTokenizer::named("afmoe").unwrap();
        assert_eq!(afmoe.words("12345 日本x"), ["12", "345", " ", "日本", "x"]);
    }

    #[test]
    fn families_differ_where_they_should() {
        let words = |name: &str, text: &'static str| PreTokenizer::named(name).unwrap().words(text);
        assert_eq!(words("kimi-k2", "abc漢字Def's"), ["abc", "漢字", "Def's"]);
        assert_eq!(words("youtu", "漢字，한국 It's 12"), ["漢字", "，", "한국", " It's", " ", "1", "2"]);
        assert_eq!(words("seed-coder", "a!\n b"), ["a", "!", "\n", " b"]);
        assert_eq!(words("qwen2", "a!\n b"), ["a", "!\n", " b"]);
        assert_eq!(words("ufakzeka", "Ali's 12"), ["Ali", "'s", " ", "1", "2"]);
        assert_eq!(words("exaone-moe", "to be or! 12"), ["to be or", "!", " ", "1", "2"]);
        assert_eq!(words("jais-2", "a       b"), ["a", "    ", "  ", " b"]);
        assert_eq!(words("laguna", "a\n\n b"), ["a", "\n\n", " b"]);
        assert_eq!(words("spark2_5", "a!\n\nb"), ["a", "!", "\n", "\n", "b"]);
        assert_eq!(
            words("chameleon", "<sentinel:7>IMGIMGABZ    x"),
            ["<", "sentinel", ":", "7", ">", "IMGIMGABZ", "    ", "x"]
        );
        assert_eq!(words("deepseek-llm", "Hi there! 12"), ["Hi", " there", "!", " ", "12"]);
        assert_eq!(words("deepseek-llm", "a   b  "), ["a", "  ", " b", "  "]);
        assert_eq!(words("gemma4", "a b\n\nc"), ["a b", "\n\n", "c"]);
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
