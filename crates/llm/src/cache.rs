//! What layers keep of the tokens that were fed: a value for each layer, and the memory that follows from it.

use crate::Config;
use crate::config::Mixer;
use crate::pages::pages_of;

/// What a layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerCache {
    /// Keys and values of each token, in pages; with a window, of the last ones. Perhaps a state beside them.
    Rows { window: Option<u32> },
    /// Nothing.
    Nothing,
    /// A state of each sequence, which cannot be rewound.
    State,
}

impl LayerCache {
    pub(crate) fn of(config: &Config, layer: usize) -> LayerCache {
        if config.layers[layer].shares.is_some() {
            return LayerCache::Nothing;
        }
        match config.layers[layer].mixer {
            Mixer::Linear | Mixer::Nothing => LayerCache::Nothing,
            Mixer::StateSpace
            | Mixer::Mamba1
            | Mixer::ShortConvolution
            | Mixer::DeltaNet
            | Mixer::TimeMix => LayerCache::State,
            Mixer::Attention | Mixer::Both | Mixer::Latent => {
                LayerCache::Rows { window: config.layers[layer].window }
            }
        }
    }
}

/// Layers that keep the same rows have one table of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheGroup {
    pub(crate) window: Option<u32>,
    /// Pages of each of its layers.
    pub(crate) pages: u64,
}

/// How many tokens a cache is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheSizes {
    /// Tokens of all sequences.
    pub(crate) context: u64,
    /// Tokens of a run, at most.
    pub(crate) batch: u64,
    /// Sequences, at most.
    pub(crate) sequences: u64,
}

impl CacheSizes {
    /// The groups of a model's layers.
    pub(crate) fn groups(&self, config: &Config) -> Vec<CacheGroup> {
        let mut windows: Vec<Option<u32>> = Vec::new();
        for layer in 0..config.layers.len() {
            if let LayerCache::Rows { window } = LayerCache::of(config, layer)
                && !windows.contains(&window)
            {
                windows.push(window);
            }
        }
        let whole = windows.contains(&None);
        windows
            .iter()
            .map(|window| CacheGroup { window: *window, pages: self.pages(*window, whole) })
            .collect()
    }

    /// Pages of a sequence, at most.
    pub(crate) fn pages_of_sequence(&self) -> u64 {
        pages_of(self.context)
    }

    /// Pages for the whole context, or for the windows of all sequences and a batch, where these are fewer. Each sequence has at
    /// least one. Without layers that keep the whole context (`whole`), each sequence may be as long as that.
    fn pages(&self, window: Option<u32>, whole: bool) -> u64 {
        let shared = pages_of(self.context).max(self.sequences);
        let Some(window) = window else { return shared };
        let all = if whole { shared } else { pages_of(self.context).saturating_mul(self.sequences) };
        // The rows that the first token of a run sees before itself, and those of the run, begin anywhere in a page.
        let before = u64::from(window).saturating_sub(1);
        let rows = (before + 62).saturating_mul(self.sequences).saturating_add(self.batch);
        all.min(rows / 64 + self.sequences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::PAGE_ROWS;

    #[test]
    fn windows_keep_their_rows_and_a_batch() {
        let sizes = CacheSizes { context: 32_768, batch: 512, sequences: 1 };
        assert_eq!(sizes.pages(None, true), 512);
        assert_eq!(sizes.pages(Some(512), true), (512 + 512) / 64 + 1);
        assert_eq!(CacheSizes { context: 600, ..sizes }.pages(Some(512), true), 10);
        let four = CacheSizes { context: 600, sequences: 4, ..sizes };
        assert_eq!([true, false].map(|whole| four.pages(Some(512), whole)), [10, 40]);
        // Wherever rows begin, they fit.
        for (window, batch, start) in
            [(512u64, 512u64, 63u64), (512, 1, 63), (1, 1, 63), (100, 7, 1), (65, 64, 63)]
        {
            let sizes = CacheSizes { batch, ..sizes };
            let rows = start + window - 1 + batch;
            assert!(sizes.pages(Some(window as u32), true) >= rows.div_ceil(PAGE_ROWS), "{window} {batch}");
        }
    }
}
