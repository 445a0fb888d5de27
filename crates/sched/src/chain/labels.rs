//! The search through partial assignments, part by part.

use super::prices::Prices;
use super::{Assigned, ChainProblem, PartCost};

/// An assignment of the first parts.
#[derive(Clone, Debug)]
struct Label {
    /// Of the last part; nothing before the first.
    device: usize,
    seconds: f64,
    /// Bytes on each device.
    bytes: Vec<u64>,
    /// The label of the part before that it continues.
    from: usize,
}

impl ChainProblem {
    /// The best assignment, and a bound on those that the search left out: infinite if it left out none that could be better.
    pub(super) fn search(
        &self,
        prices: &Prices,
        mut best: Option<Assigned>,
        effort: u64,
        spent: &mut u64,
    ) -> (Option<Assigned>, f64) {
        let limit = best.as_ref().map_or(f64::INFINITY, |best| best.seconds);
        // A hair below the limit, so that ties are not searched.
        let limit = limit - 1e-12 * limit.abs().min(1.0);
        let share = effort / self.parts.len().max(1) as u64;
        let (mut left_out, mut labels) = (f64::INFINITY, vec![Label::start(self)]);
        let mut history: Vec<Vec<(usize, usize)>> = Vec::with_capacity(self.parts.len());
        for part in 0..self.parts.len() {
            let next = labels.iter().enumerate().flat_map(|(from, label)| label.extended(self, part, from));
            let bounded = next.map(|step| (prices.bound(&step, &labels[step.from].bytes, part), step));
            let mut kept: Vec<(f64, Step)> = bounded.filter(|(bound, _)| *bound < limit).collect();
            kept.sort_by(|(one, a), (other, b)| {
                one.total_cmp(other).then_with(|| (a.device, a.from).cmp(&(b.device, b.from)))
            });
            let mut reached: Vec<Label> = Vec::new();
            let mut compared = 0;
            for (bound, step) in kept {
                if compared > share {
                    left_out = left_out.min(bound);
                    break;
                }
                compared += 1 + reached.len() as u64;
                let bytes = &labels[step.from].bytes;
                if !reached.iter().any(|label| label.dominates(&step, bytes)) {
                    reached.push(step.label(bytes));
                }
            }
            *spent += compared;
            history.push(reached.iter().map(|label| (label.from, label.device)).collect());
            labels = reached;
        }
        let end = labels.iter().enumerate().min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
        if let Some((mut at, label)) = end
            && best.as_ref().is_none_or(|best| label.seconds < best.seconds)
        {
            let mut devices = vec![0; self.parts.len()];
            for (part, history) in history.iter().enumerate().rev() {
                (at, devices[part]) = history[at];
            }
            best = Some(Assigned { devices, seconds: label.seconds });
        }
        (best, left_out)
    }
}

impl Label {
    fn start(problem: &ChainProblem) -> Label {
        Label { device: usize::MAX, seconds: 0.0, bytes: vec![0; problem.capacity.len()], from: 0 }
    }

    /// With the next part on each device that has room.
    fn extended<'a>(
        &'a self,
        problem: &'a ChainProblem,
        part: usize,
        from: usize,
    ) -> impl Iterator<Item = Step> + 'a {
        let next = &problem.parts[part];
        next.costs.iter().enumerate().filter_map(move |(device, cost)| {
            let PartCost { bytes, seconds } = (*cost)?;
            if self.bytes[device].checked_add(bytes)? > problem.capacity[device] {
                return None;
            }
            let hop = if part == 0 { 0.0 } else { next.hops[self.device][device] };
            Some(Step { device, bytes, seconds: self.seconds + hop + seconds, from })
        })
    }

    /// Whether it is no worse than a label with one more step.
    fn dominates(&self, step: &Step, bytes: &[u64]) -> bool {
        let added = |device: usize| if device == step.device { step.bytes } else { 0 };
        self.device == step.device
            && self.seconds <= step.seconds
            && self
                .bytes
                .iter()
                .zip(bytes)
                .enumerate()
                .all(|(device, (own, other))| *own <= other + added(device))
    }
}

/// The next part of a label on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) device: usize,
    /// Bytes that it adds there.
    pub(super) bytes: u64,
    /// Seconds up to its end.
    pub(super) seconds: f64,
    from: usize,
}

impl Step {
    fn label(self, bytes: &[u64]) -> Label {
        let Step { device, seconds, from, .. } = self;
        let mut bytes = bytes.to_vec();
        bytes[device] += self.bytes;
        Label { device, seconds, bytes, from }
    }
}
