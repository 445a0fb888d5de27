//! Which device each part of a chain goes to, so that a pass takes least time and every device has room.
//!
//! A pass goes through all parts in order, such as the layers of a model. The search keeps partial assignments (labels) part
//! by part. Of two labels that end on one device, one that needs no more memory anywhere and no more time dominates the
//! other. [Lagrangian relaxation](https://en.wikipedia.org/wiki/Lagrangian_relaxation) of the capacities gives prices of
//! bytes, and with them a bound on what can follow a label. Labels whose bound is above a known assignment are dropped; so
//! are the worst ones where there are too many, and then the bound says how much better another assignment could be.

use std::sync::Arc;

mod labels;
mod local;
mod prices;

use prices::Prices;

/// Parts in order, and the devices they may go to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainProblem {
    /// Bytes that each device has.
    pub capacity: Vec<u64>,
    /// What is placed, in the order of a pass.
    pub parts: Vec<ChainPart>,
}

/// A part of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainPart {
    /// What it takes on each device; `None` where it cannot be.
    pub costs: Vec<Option<PartCost>>,
    /// Seconds to hand what the part before gives from one device (the first index) to this part on another (the second).
    /// Nothing comes before the first part.
    pub hops: Arc<[Vec<f64>]>,
}

/// What a part takes on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartCost {
    /// Bytes that stay there.
    pub bytes: u64,
    /// Seconds of a pass.
    pub seconds: f64,
}

/// A device for each part.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainAssignment {
    /// Position of each part's device.
    pub devices: Vec<usize>,
    /// Seconds of a pass.
    pub seconds: f64,
    /// No assignment takes less; equal to `seconds` where the search was exact.
    pub bound: f64,
    /// Hops and labels that the search looked at.
    pub effort: u64,
}

/// Another device for one part, all else equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alternative {
    /// Position of the device.
    pub device: usize,
    /// Seconds of a pass that it would take beyond the assignment's.
    pub extra_seconds: f64,
}

/// Devices of all parts, with what they take.
#[derive(Clone, Debug)]
struct Assigned {
    devices: Vec<usize>,
    seconds: f64,
}

impl ChainProblem {
    /// Effort that solves models' chains in some milliseconds.
    pub const EFFORT: u64 = 1 << 22;

    /// The assignment that takes least time, as far as a search that looks at about `effort` hops and labels finds it; a pass
    /// over all parts is made in any case. `None` if it finds none that fits.
    pub fn solve(&self, effort: u64) -> Option<ChainAssignment> {
        let mut spent = 0;
        let mut prices = Prices::none(self);
        let relaxed = prices.improve(self, effort / 2, &mut spent);
        let (best, left_out) = self.search(&prices, relaxed, effort / 2, &mut spent);
        let Assigned { devices, seconds } = best?;
        Some(ChainAssignment { devices, seconds, bound: left_out.min(seconds), effort: spent })
    }

    /// Seconds of a pass, and bytes on each device; `None` if a part cannot be where it is put.
    pub fn cost(&self, devices: &[usize]) -> Option<(f64, Vec<u64>)> {
        let mut bytes = vec![0u64; self.capacity.len()];
        let mut seconds = 0.0;
        for (part, device) in devices.iter().enumerate() {
            let cost = self.parts.get(part)?.costs.get(*device).copied().flatten()?;
            bytes[*device] = bytes[*device].saturating_add(cost.bytes);
            seconds += cost.seconds;
            if part > 0 {
                seconds += self.parts[part].hops[devices[part - 1]][*device];
            }
        }
        Some((seconds, bytes))
    }

    /// Every `stride`-th of the parts, with as much less room.
    fn sampled(&self, stride: usize) -> ChainProblem {
        ChainProblem {
            capacity: self.capacity.iter().map(|bytes| bytes / stride as u64).collect(),
            parts: self.parts.iter().step_by(stride).cloned().collect(),
        }
    }

    /// For each part, the best other device for it alone that has room.
    pub fn alternatives(&self, devices: &[usize]) -> Vec<Option<Alternative>> {
        let Some((_, bytes)) = self.cost(devices) else { return vec![None; self.parts.len()] };
        let other = |part: usize| {
            let tried = self.moves(devices, &bytes, part);
            let best = tried.min_by(|one, other| one.1.total_cmp(&other.1));
            best.map(|(device, extra_seconds)| Alternative { device, extra_seconds })
        };
        (0..self.parts.len()).map(other).collect()
    }

    /// Other devices that have room for a part, and the seconds that it would take more there.
    fn moves<'a>(
        &'a self,
        devices: &'a [usize],
        bytes: &'a [u64],
        part: usize,
    ) -> impl Iterator<Item = (usize, f64)> + 'a {
        let own = devices[part];
        let before = self.around(devices, part, own);
        self.parts[part].costs.iter().enumerate().filter_map(move |(device, cost)| {
            let cost = (*cost).filter(|_| device != own)?;
            let fits = bytes[device].saturating_add(cost.bytes) <= self.capacity[device];
            fits.then(|| (device, self.around(devices, part, device) - before))
        })
    }

    /// Seconds of a part on a device, with those of getting there and away.
    fn around(&self, devices: &[usize], part: usize, device: usize) -> f64 {
        let there = if part == 0 { 0.0 } else { self.parts[part].hops[devices[part - 1]][device] };
        let away = devices.get(part + 1).map_or(0.0, |next| self.parts[part + 1].hops[device][*next]);
        there + away + self.parts[part].costs[device].map_or(f64::INFINITY, |cost| cost.seconds)
    }
}

#[cfg(test)]
mod tests;
