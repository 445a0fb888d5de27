//! How often experts are chosen: runs count it, and placements go by it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often the tokens of some runs chose each expert. The last layer sees only tokens whose logits are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpertCounts {
    /// A count for each expert of each layer in which experts were chosen.
    pub layers: BTreeMap<usize, Vec<u64>>,
}

/// Counts the experts that runs choose. Engines whose settings share one add to the same counts.
#[derive(Debug, Default)]
pub struct ExpertCounter(Mutex<ExpertCounts>);

impl ExpertCounter {
    /// The counts so far.
    pub fn counts(&self) -> ExpertCounts {
        self.lock().clone()
    }

    /// Adds the experts that tokens chose in a layer with `count` experts.
    pub(crate) fn add(&self, layer: usize, count: usize, chosen: impl Iterator<Item = i32>) {
        let mut counts = self.lock();
        let layer = counts.layers.entry(layer).or_default();
        if layer.len() < count {
            layer.resize(count, 0);
        }
        for expert in chosen {
            if let Some(count) = usize::try_from(expert).ok().and_then(|expert| layer.get_mut(expert)) {
                *count += 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ExpertCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
