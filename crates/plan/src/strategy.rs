//! Planning strategies and the effort they may spend.

use std::fmt;
use std::str::FromStr;

/// A planning algorithm. Prints and parses as its lower-case name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Strategy {
    /// Online free list in step order with ggml's choice of chunks
    /// ([`ChunkRule::Ggml`](crate::ChunkRule::Ggml)).
    Ggml,
    /// Online free list in step order, best fit over all chunks
    /// ([`ChunkRule::Tightest`](crate::ChunkRule::Tightest)).
    Online,
    /// Greedy, in step order.
    Order,
    /// Greedy, largest size first.
    Size,
    /// Greedy, longest lifetime first.
    Lifetime,
    /// Greedy, largest product of size and lifetime first.
    Area,
    /// Greedy, most conflicts first.
    Conflict,
    /// Greedy, outwards from the step with the most bytes live.
    Dense,
    /// Greedy, bottom-up: next is the buffer with the lowest possible offset.
    Skyline,
    /// Squeaky-wheel optimization over the greedy orders: each round moves the buffers that rose above the
    /// bound to the front.
    Refine,
    /// Best-fit skyline packing: fills the lowest segment of the skyline, for any number of buffers.
    Valley,
    /// Local search from the smallest plan so far: moves buffers that end above a target height, and ejects
    /// those in the way.
    Repair,
    /// Exhaustive search: ends with a proof of optimality, or for a capacity, with a plan or a proof that
    /// none exists.
    Exact,
    /// All of the above while the effort lasts; the smallest peak wins.
    #[default]
    Best,
}

impl Strategy {
    /// Every strategy, in order of preference between equal peaks.
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

    /// The name that it prints and parses as.
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

/// An unknown strategy name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown strategy {name:?}; known: {}", Strategy::ALL.map(Strategy::name).join(", "))]
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

/// Options of [`solve`](crate::solve).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SolveOptions {
    /// Default: [`Strategy::Best`].
    pub strategy: Strategy,
    /// Work allowed per buffer; one unit is about one comparison with another buffer. Default:
    /// [`SolveOptions::DEFAULT_EFFORT`].
    ///
    /// The online strategies always run. The others run while the work lasts, so a problem too large for
    /// them still gets a plan. A small problem gets the work of 1024 buffers. [`SolveOptions::UNLIMITED`]
    /// continues until the plan fits the capacity, or is proven optimal.
    pub effort: u64,
    /// Threads of the exact search. The plan and its work are the same for any number. Default: 1.
    pub threads: usize,
}

impl SolveOptions {
    /// Default work per buffer: at most some ten microseconds, and less where the bound is reached.
    pub const DEFAULT_EFFORT: u64 = 4096;

    /// Work without end.
    pub const UNLIMITED: u64 = u64::MAX;

    /// `strategy` with its default effort: unlimited for [`Strategy::Exact`].
    pub const fn with(strategy: Strategy) -> Self {
        let effort = match strategy {
            Strategy::Exact => u64::MAX,
            _ => Self::DEFAULT_EFFORT,
        };
        Self { strategy, effort, threads: 1 }
    }
}

impl Default for SolveOptions {
    fn default() -> Self {
        Self::with(Strategy::Best)
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
