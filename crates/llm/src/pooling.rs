//! What stands for a text: which of its tokens' rows, and what is made of them.

use orlop_gguf::GgufFile as File;

use crate::arch::Classifier;
use crate::{Config, Error};

/// What stands for a text, by the numbers of `pooling_type` in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The mean of all tokens.
    Mean,
    /// The first token.
    Cls,
    /// The last token.
    Last,
    /// What a classifier says, which scores pairs of texts ([`Embedder::rerank`](crate::Embedder::rerank)).
    Rank,
}

impl Pooling {
    /// All of them, by their names.
    pub const NAMES: [(&'static str, Pooling); 4] =
        [("mean", Pooling::Mean), ("cls", Pooling::Cls), ("last", Pooling::Last), ("rank", Pooling::Rank)];

    /// What a file says (`pooling_type`). Where it says nothing: a classifier if there is one, else the mean in models whose
    /// tokens see those behind them, and the last token in others.
    pub fn of(config: &Config, file: &File) -> Pooling {
        let classifies = ["cls.output.weight", "cls.weight"].iter().any(|name| file.tensor(name).is_some());
        match config.pooling {
            Some(pooling) => pooling,
            None if classifies => Pooling::Rank,
            None if config.bidirectional => Pooling::Mean,
            None => Pooling::Last,
        }
    }

    pub(crate) fn from_key(number: i64) -> Result<Option<Pooling>, &'static str> {
        match number {
            // llama.cpp writes -1, signed or unsigned, into files of models that it does not know the pooling of.
            0 | -1 | 0xffff_ffff => Ok(None),
            1 => Ok(Some(Pooling::Mean)),
            2 => Ok(Some(Pooling::Cls)),
            3 => Ok(Some(Pooling::Last)),
            4 => Ok(Some(Pooling::Rank)),
            _ => Err("0 to 4 are known: none, mean, first token, last token, classifier"),
        }
    }

    /// Whether all tokens count, and not one.
    pub(crate) fn is_mean(self, config: &Config) -> bool {
        let classifies_mean = config.architecture.facts().classifier == Classifier::Mean;
        self == Pooling::Mean || self == Pooling::Rank && classifies_mean
    }

    /// The token of a text of `tokens` that stands for it.
    pub(crate) fn token(self, config: &Config, tokens: usize) -> usize {
        match self {
            Pooling::Last => tokens - 1,
            Pooling::Rank if !config.bidirectional => tokens - 1,
            Pooling::Mean | Pooling::Cls | Pooling::Rank => 0,
        }
    }

    /// A classifier must be in the file, and be asked for where it is.
    pub(crate) fn check(self, file: &File) -> Result<(), Error> {
        let classifies = ["cls.output.weight", "cls.weight"].iter().any(|name| file.tensor(name).is_some());
        match self {
            Pooling::Rank if !classifies => Err(Error::MissingTensor("cls.output.weight".to_owned())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unset_key_is_none() {
        for number in [0, -1, i64::from(u32::MAX)] {
            assert_eq!(Pooling::from_key(number), Ok(None));
        }
        assert!(Pooling::from_key(5).is_err());
    }
}
