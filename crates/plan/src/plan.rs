//! Where everything goes, and how good that is.

use crate::{BufferId, ChunkOffset, Strategy};

/// A place for every buffer of a [`Problem`](crate::Problem). Equal problems and options give equal
/// plans.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Plan {
    /// Per buffer, where it starts.
    pub places: Vec<ChunkOffset>,
    /// Per chunk, its height: the highest end of a buffer in it.
    pub chunks: Vec<u64>,
    /// The chunks above the problem's limit, ascending. Each holds a single buffer of its own height.
    pub oversize: Vec<u32>,
    /// The sum of the chunk heights.
    pub peak: u64,
    /// What no plan can be below; see [`bound`](crate::bound).
    pub bound: u64,
    /// Whether it is proven that no plan of this problem has a smaller peak.
    pub optimal: bool,
    /// What found this plan. For a portfolio, its member that won.
    pub strategy: Strategy,
    /// Work spent in all, in the units of [`SolveOptions::effort`](crate::SolveOptions::effort).
    pub work: u64,
}

impl Plan {
    /// Where a buffer is; `None` for an id of a larger problem.
    pub fn place(&self, id: BufferId) -> Option<ChunkOffset> {
        self.places.get(id.index()).copied()
    }

    /// Bytes above the bound. Zero proves that the plan cannot be improved.
    pub fn gap(&self) -> u64 {
        self.peak.saturating_sub(self.bound)
    }
}
