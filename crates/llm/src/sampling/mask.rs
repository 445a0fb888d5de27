//! Sets of tokens that may be chosen.

/// A set of tokens: those that a grammar or a list allows.
///
/// ```
/// use orlop_llm::{Sampler, SamplingOptions, TokenMask};
///
/// let mask: TokenMask = [0, 2].into_iter().collect();
/// let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
/// assert_eq!(sampler.sample_allowed(&[0.5, 2.0, 1.0], &mask), Some(2));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    /// A bit for each token, the lowest first.
    words: Vec<u32>,
}

const BITS: usize = u32::BITS as usize;

impl TokenMask {
    /// No token.
    pub fn none() -> TokenMask {
        TokenMask::default()
    }

    /// The first `count` tokens.
    pub fn first(count: usize) -> TokenMask {
        let mut words = vec![u32::MAX; count.div_ceil(BITS)];
        if let (Some(last), rest @ 1..) = (words.last_mut(), count % BITS) {
            *last = (1 << rest) - 1;
        }
        TokenMask { words }
    }

    /// From bits, the lowest of the first word first; `words` is kept, so that nothing is allocated where it has room.
    pub fn set_words(&mut self, words: &[u32]) {
        self.words.clear();
        self.words.extend_from_slice(words);
    }

    /// Adds a token.
    pub fn allow(&mut self, token: u32) {
        let place = token as usize / BITS;
        if place >= self.words.len() {
            self.words.resize(place + 1, 0);
        }
        self.words[place] |= 1 << (token as usize % BITS);
    }

    /// Removes a token.
    pub fn forbid(&mut self, token: u32) {
        if let Some(word) = self.words.get_mut(token as usize / BITS) {
            *word &= !(1 << (token as usize % BITS));
        }
    }

    /// Whether a token is in the set.
    pub fn allows(&self, token: u32) -> bool {
        self.words.get(token as usize / BITS).is_some_and(|word| word >> (token as usize % BITS) & 1 == 1)
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The tokens, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.words.iter().zip(0u32..).flat_map(|(word, place)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(place * u32::BITS + bit)
            })
        })
    }
}

impl FromIterator<u32> for TokenMask {
    fn from_iter<I: IntoIterator<Item = u32>>(tokens: I) -> TokenMask {
        let mut mask = TokenMask::none();
        tokens.into_iter().for_each(|token| mask.allow(token));
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_holds_what_was_put_in() {
        let tokens = [0, 1, 31, 32, 63, 64, 1000];
        let mut mask: TokenMask = tokens.into_iter().collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), tokens);
        assert_eq!(
            (mask.len(), mask.is_empty(), mask.allows(999), mask.allows(5000)),
            (7, false, false, false)
        );
        mask.forbid(32);
        mask.forbid(9999);
        assert_eq!((mask.len(), mask.allows(32)), (6, false));
    }

    #[test]
    fn the_first_tokens_are_as_many_as_asked() {
        for count in [0, 1, 31, 32, 33, 64, 100] {
            let mask = TokenMask::first(count);
            assert_eq!(mask.iter().collect::<Vec<_>>(), (0..count as u32).collect::<Vec<_>>());
        }
    }
}
