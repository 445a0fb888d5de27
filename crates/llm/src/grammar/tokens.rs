//! A tokenizer as grammars see it: the bytes of all tokens in a prefix tree, and tokens of text that is certain to come.

use std::sync::Arc;

use toktrie::{INVALID_TOKEN, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::GrammarError;
use crate::Tokenizer;

/// Longer tokens are in no grammar; the tree keeps depths in ten bits.
const LONGEST_TOKEN: usize = 1 << 10;
/// The tree keeps sizes in 22 bits.
const MAX_NODES: usize = (1 << 22) - 2;

/// The tokens of a model.
pub(super) struct TokenTree {
    pub(super) tokenizer: Arc<Tokenizer>,
    tree: TokTrie,
    /// Whether every byte of texts has a token, so that text that is certain to come can be written in tokens.
    pub(super) has_every_byte: bool,
}

impl TokenTree {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Result<TokenTree, GrammarError> {
        let count = tokenizer.vocabulary_size() as u32;
        let mut words: Vec<Vec<u8>> = (0..count).map(|id| word(&tokenizer, id)).collect();
        // A byte that is a piece of text, too, is always written as that.
        let is_piece = |id: &u32| !tokenizer.is_byte(*id) && words[*id as usize].len() == 1;
        let pieces: Vec<Vec<u8>> = (0..count).filter(is_piece).map(|id| words[id as usize].clone()).collect();
        for id in (0..count).filter(|id| tokenizer.is_byte(*id)) {
            let word = &mut words[id as usize];
            if pieces.contains(word) {
                word.clear();
            }
        }
        let found = nodes(&words);
        if found > MAX_NODES {
            return Err(GrammarError::Vocabulary { found, limit: MAX_NODES });
        }
        let ends: Vec<u32> = (0..count).filter(|id| tokenizer.is_end(*id)).collect();
        let first = ends.first().copied().unwrap_or(INVALID_TOKEN);
        let mut tree = TokTrie::from(&TokRxInfo::new(count, first), &words);
        if !ends.is_empty() {
            tree = tree.with_eos_tokens(&ends);
        }
        // Bytes from 0xf5 on are in no text.
        let has_every_byte = (0..0xf5u8).all(|byte| tree.token_id_at_bytes(&[byte]).is_some());
        Ok(TokenTree { tokenizer, tree, has_every_byte })
    }

    /// The tokens that end an answer.
    pub(super) fn ends(&self) -> impl Iterator<Item = u32> {
        self.tree.eos_tokens().iter().copied().filter(|token| *token != INVALID_TOKEN)
    }
}

/// The bytes of a token in the tree: control tokens are marked, and what cannot be in a text is left out.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let marked = tokenizer.is_control(id);
    let bytes = tokenizer.decode_special(id);
    if bytes.is_empty() || bytes.len() >= LONGEST_TOKEN || bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
        return Vec::new();
    }
    let mark = marked.then_some(TokTrie::SPECIAL_TOKEN_MARKER);
    mark.into_iter().chain(bytes.iter().copied()).collect()
}

/// How many nodes the tree has.
fn nodes(words: &[Vec<u8>]) -> usize {
    let mut sorted: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    sorted.sort_unstable();
    let shared = |pair: &[&[u8]]| {
        let same = pair[0].iter().zip(pair[1]).take_while(|(a, b)| a == b).count();
        // Tokens with the same bytes have a node each.
        same.min(pair[1].len().saturating_sub(1))
    };
    let all: usize = sorted.iter().map(|word| word.len()).sum();
    1 + all - sorted.windows(2).map(shared).sum::<usize>()
}

impl TokenizerEnv for TokenTree {
    fn tok_trie(&self) -> &TokTrie {
        &self.tree
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let ids = std::str::from_utf8(bytes).map(|text| self.tokenizer.encode_inside(text));
        let spells = |ids: &Vec<u32>| ids.iter().flat_map(|id| self.tree.token(*id)).eq(bytes);
        ids.ok().filter(spells).unwrap_or_else(|| self.tree.greedy_tokenize(bytes))
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.has_every_byte
    }
}
