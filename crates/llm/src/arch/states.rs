//! Models that keep a state of each sequence in some or all layers.

use super::facts::{Facts, Mixers};

/// <https://arxiv.org/abs/2405.21060>
pub(super) const MAMBA2: Facts = Facts {
    name: "mamba2",
    models: "Mamba 2",
    mixers: Mixers::StateSpace,
    scales_feed_forward: false,
    ..Facts::PLAIN
};
