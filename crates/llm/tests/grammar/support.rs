//! A vocabulary, and answers at random.

use std::sync::Arc;

use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_gguf::{GgufFile, GgufPart};
use orlop_llm::{Grammar, GrammarCompiler, GrammarError, GrammarMatcher, Model, Synth, Tokenizer};
use orlop_sched::Machine;
use orlop_testkit::Random;

/// A model with random weights.
pub(crate) fn model() -> Model {
    let synth = Synth { vocabulary: 1200, context: 600, layers: 1, ..Synth::default() };
    let file = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    Model::from_file(GgufFile::from_file(file)).unwrap()
}

/// Three special tokens, every byte, printable ASCII characters and words of small letters.
pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    let synth = Synth { vocabulary: 1200, ..Synth::default() };
    let file = GgufFile::from_file(GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap());
    Arc::new(Tokenizer::from_metadata(file.metadata()).unwrap())
}

pub(crate) fn compiler() -> GrammarCompiler {
    GrammarCompiler::new(tokenizer()).unwrap()
}

pub(crate) const END: u32 = 2;

pub(crate) fn one_cpu() -> Machine {
    Machine::new(vec![CpuDevice::new(ThreadPool::new(1).unwrap()) as _]).unwrap()
}

/// Whether an answer is one that the grammar allows.
pub(crate) fn matches(compiler: &GrammarCompiler, grammar: &Grammar, answer: &str) -> bool {
    let mut matcher = compiler.compile(grammar).unwrap();
    follow(compiler, &mut matcher, answer).is_ok() && matcher.may_end().unwrap()
}

/// Accepts a text byte by byte, which any tokenizer could do.
pub(crate) fn follow(
    compiler: &GrammarCompiler,
    matcher: &mut GrammarMatcher,
    answer: &str,
) -> Result<(), GrammarError> {
    answer.bytes().try_for_each(|byte| matcher.accept(byte_token(compiler, byte)))
}

/// The token of a byte: pieces of text come behind the tokens of bytes.
pub(crate) fn byte_token(compiler: &GrammarCompiler, byte: u8) -> u32 {
    let tokenizer = compiler.tokenizer();
    (3..tokenizer.vocabulary_size() as u32).rfind(|id| tokenizer.decode(*id) == [byte]).unwrap()
}

/// An item of a list.
pub(crate) fn one_of<'a, T>(random: &mut Random, items: &'a [T]) -> &'a T {
    &items[random.index(items.len())]
}

/// An answer of random tokens that are allowed, forced ones together; `None` if it is longer than `most` tokens. It
/// prefers to end.
pub(crate) fn walk(
    compiler: &GrammarCompiler,
    matcher: &mut GrammarMatcher,
    random: &mut Random,
    most: usize,
) -> Option<Vec<u32>> {
    let ends = |token: &u32| compiler.tokenizer().is_end(*token);
    let mut answer = Vec::new();
    while answer.len() < most {
        if matcher.is_complete() {
            return Some(answer);
        }
        for token in matcher.forced() {
            let mask = matcher.mask().unwrap().unwrap();
            assert_eq!(mask.iter().collect::<Vec<_>>(), [token]);
            matcher.accept(token).unwrap();
            answer.push(token);
        }
        if matcher.is_complete() {
            return Some(answer);
        }
        let mask = matcher.mask().unwrap().unwrap();
        if mask.allows(END) && random.index(2) == 0 {
            matcher.accept(END).unwrap();
            return Some(answer);
        }
        let tokens: Vec<u32> = mask.iter().filter(|token| !ends(token)).collect();
        let token = if tokens.is_empty() { END } else { *one_of(random, &tokens) };
        matcher.accept(token).unwrap();
        if token == END {
            return Some(answer);
        }
        answer.push(token);
    }
    None
}

pub(crate) fn text(compiler: &GrammarCompiler, answer: &[u32]) -> String {
    let bytes = answer.iter().flat_map(|token| compiler.tokenizer().decode(*token)).copied().collect();
    String::from_utf8(bytes).unwrap()
}
