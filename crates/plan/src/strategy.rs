//! How a plan is looked for, and how hard.

use std::fmt;
use std::str::FromStr;

/// A way to look for a plan. Prints and parses as its lower-case name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Strategy {
    /// The free list in the order of steps, chunks chosen as ggml does
    /// ([`ChunkRule::Ggml`](crate::ChunkRule::Ggml)).
    Ggml,
    /// The free list in the order of steps, the tightest hole of all chunks
    /// ([`ChunkRule::Tightest`](crate::ChunkRule::Tightest)).
    Online,
    /// Greedy, in the order of steps.
    Order,
    /// Greedy, largest first.
    Size,
    /// Greedy, longest lived first.
    Lifetime,
    /// Greedy, largest product of size and lifetime first.
    Area,
    /// Greedy, first what shares its steps with most others.
    Conflict,
    /// Greedy, from the densest step outwards.
    Dense,
    /// Greedy, from the bottom up: next is what can lie lowest.
    Skyline,
    /// Greedy rounds from all of the orders above, each of which moves what did not fit below the bound to
    /// the front.
    Refine,
    /// From the bottom up into the lowest valley of what is placed, whatever the number of buffers.
    Valley,
    /// From the smallest of the plans so far: what rises above a height goes elsewhere, and what is in its way makes
    /// room.
    Repair,
    /// Searches until a plan is proven to be the smallest, or for a capacity until one fits or none can.
    Exact,
    /// All of the above for as long as the effort lasts; the smallest peak wins.
    #[default]
    Best,
}

impl Strategy {
    /// Every strategy, in the order that decides between equal peaks.
    pub const ALL: [Self; 14] = [
        Self::Ggml,
        Self::Online,
        Self::Order,
        Self::Size,
        Self::Lifetime,
        Self::Area,
        Self::Conflict,
        Self::Dense,
        Self::Skyline,
        Self::Refine,
        Self::Valley,
        Self::Repair,
        Self::Exact,
        Self::Best,
    ];

    /// The name it prints and parses as.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ggml => "ggml",
            Self::Online => "online",
            Self::Order => "order",
            Self::Size => "size",
            Self::Lifetime => "lifetime",
            Self::Area => "area",
            Self::Conflict => "conflict",
            Self::Dense => "dense",
            Self::Skyline => "skyline",
            Self::Refine => "refine",
            Self::Valley => "valley",
            Self::Repair => "repair",
            Self::Exact => "exact",
            Self::Best => "best",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no [`Strategy`] has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no strategy is named {name:?}; there are {}", Strategy::ALL.map(Strategy::name).join(", "))]
pub struct UnknownStrategy {
    /// The name given.
    pub name: String,
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::ALL.into_iter().find(|strategy| strategy.name() == name);
        found.ok_or_else(|| UnknownStrategy { name: name.to_owned() })
    }
}

/// What to look for a plan with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SolveOptions {
    /// Default: [`Strategy::Best`].
    pub strategy: Strategy,
    /// Work allowed per buffer, in units of about one look at another buffer. Default:
    /// [`SolveOptions::DEFAULT_EFFORT`].
    ///
    /// The online strategies always run. The others run while the work lasts, so a problem too large for
    /// them is still planned. A problem of few buffers is given the work of a thousand.
    pub effort: u64,
}

impl SolveOptions {
    /// Work allowed per buffer unless told otherwise: a few microseconds.
    pub const DEFAULT_EFFORT: u64 = 1024;

    /// `strategy` with its own effort: the default one, and no limit for [`Strategy::Exact`].
    pub fn with(strategy: Strategy) -> Self {
        let effort = if strategy == Strategy::Exact { u64::MAX } else { Self::DEFAULT_EFFORT };
        Self { strategy, effort }
    }
}

impl Default for SolveOptions {
    fn default() -> Self {
        Self { strategy: Strategy::Best, effort: Self::DEFAULT_EFFORT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_to_its_strategy() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let err = "Size".parse::<Strategy>().unwrap_err();
        assert!(err.to_string().contains("\"Size\"") && err.to_string().contains("lifetime, area"));
    }
}
