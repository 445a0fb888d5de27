//! The result of planning: an offset per buffer, and the quality of the plan.

use crate::{BufferId, ChunkOffset, Strategy};

/// An offset for every buffer of a [`Problem`](crate::Problem). Equal problems and options give equal plans.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Plan {
    /// Per buffer, where it starts.
    pub places: Vec<ChunkOffset>,
    /// Per chunk, its height: the highest end of a buffer in it.
    pub chunks: Vec<u64>,
    /// The chunks above the problem's limit, ascending. Each is as high as its largest buffer.
    pub oversize: Vec<u32>,
    /// The sum of the chunk heights.
    pub peak: u64,
    /// A lower bound on the peak of every plan; see [`bound`](crate::bound).
    pub bound: u64,
    /// Whether the peak is proven minimal.
    pub optimal: bool,
    /// The strategy that found this plan. For a portfolio, the member that won.
    pub strategy: Strategy,
    /// Total work spent, in the units of [`SolveOptions::effort`](crate::SolveOptions::effort).
    pub work: u64,
}

impl Plan {
    /// A buffer's offset; `None` for an id of a larger problem.
    pub fn place(&self, id: BufferId) -> Option<ChunkOffset> {
        self.places.get(id.index()).copied()
    }

    /// Bytes above the bound. Zero proves that the plan is optimal.
    pub fn gap(&self) -> u64 {
        self.peak.saturating_sub(self.bound)
    }
}
