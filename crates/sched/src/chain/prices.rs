//! Prices of bytes, by which assignments are bounded.

use super::labels::Step;
use super::{Assigned, ChainProblem, PartCost};

/// Most rounds in which prices are improved, and after how many an assignment is made of them.
const ROUNDS: u64 = 120;
const TRY_EVERY: u64 = 12;
/// Parts of which prices are made before all are looked at.
const SAMPLE: usize = 512;

/// Prices of bytes, and the least that parts cost with them.
pub(super) struct Prices {
    /// Seconds for a byte of each device.
    of_byte: Vec<f64>,
    /// For each part and device: the least that the parts behind it take, with the prices of their bytes.
    behind: Vec<f64>,
    capacity: Vec<u64>,
}

impl Prices {
    pub(super) fn none(problem: &ChainProblem) -> Prices {
        let of_byte = vec![0.0; problem.capacity.len()];
        let mut prices = Prices { of_byte, behind: Vec::new(), capacity: problem.capacity.clone() };
        prices.update(problem);
        prices
    }

    /// A bound on every assignment that begins with a label of this many bytes and a step with the part `part`.
    pub(super) fn bound(&self, step: &Step, bytes: &[u64], part: usize) -> f64 {
        let room = self.capacity.iter().zip(bytes).map(|(all, used)| all.saturating_sub(*used) as f64);
        let refund: f64 = room.zip(&self.of_byte).map(|(room, price)| room * price).sum();
        let paid = self.of_byte[step.device] * step.bytes as f64;
        step.seconds + self.behind[part * self.capacity.len() + step.device] - (refund - paid)
    }

    /// What a part takes on a device with the price of its bytes.
    fn priced(&self, cost: Option<PartCost>, device: usize) -> f64 {
        cost.map_or(f64::INFINITY, |cost| cost.seconds + self.of_byte[device] * cost.bytes as f64)
    }

    fn update(&mut self, problem: &ChainProblem) {
        let devices = problem.capacity.len();
        let mut behind = vec![0.0; problem.parts.len() * devices];
        let mut priced = vec![0.0; devices];
        for (index, part) in problem.parts.iter().enumerate().skip(1).rev() {
            let (before, after) = behind.split_at_mut(index * devices);
            for (device, priced) in priced.iter_mut().enumerate() {
                *priced = self.priced(part.costs[device], device) + after[device];
            }
            let before = &mut before[(index - 1) * devices..];
            for (before, hops) in before.iter_mut().zip(part.hops.iter()) {
                let all = hops.iter().zip(&priced).map(|(hop, priced)| hop + priced);
                *before = all.fold(f64::INFINITY, f64::min);
            }
        }
        self.behind = behind;
    }

    /// The assignment that costs least with these prices, whether it fits or not.
    fn cheapest(&self, problem: &ChainProblem) -> Option<(f64, Vec<usize>)> {
        let devices = problem.capacity.len();
        let mut chosen: Vec<usize> = Vec::with_capacity(problem.parts.len());
        let mut value = f64::INFINITY;
        for (index, part) in problem.parts.iter().enumerate() {
            let hops = chosen.last().map(|before| part.hops[*before].as_slice());
            let behind = &self.behind[index * devices..];
            let cost = |device: usize| {
                let hop = hops.map_or(0.0, |hops| hops[device]);
                hop + self.priced(part.costs[device], device) + behind[device]
            };
            let all = (0..devices).map(|device| (cost(device), device));
            let (least, device) = all.min_by(|one, other| one.0.total_cmp(&other.0))?;
            if index == 0 {
                value = least;
            }
            chosen.push(device);
        }
        value.is_finite().then_some((value, chosen))
    }

    /// Raises the prices of devices that are too full and lowers those of others, and returns the best assignment on the way
    /// that fits. The prices of the highest bound stay.
    pub(super) fn improve(
        &mut self,
        problem: &ChainProblem,
        effort: u64,
        spent: &mut u64,
    ) -> Option<Assigned> {
        let (devices, parts) = (problem.capacity.len() as u64, problem.parts.len() as u64);
        let stride = problem.parts.len() / SAMPLE;
        if stride > 1 {
            // Bytes cost about the same among some of the parts as among all.
            let sample = problem.sampled(stride);
            let mut prices = Prices::none(&sample);
            prices.improve(&sample, effort / 4, spent);
            self.of_byte = prices.of_byte;
        }
        // As much for prices as for what is made of them.
        let pass = (parts * devices * devices).max(1);
        let rounds = (effort / 2 / pass).clamp(TRY_EVERY, ROUNDS);
        let local = effort / 2 / rounds.div_ceil(TRY_EVERY);
        let (mut best, mut highest): (Option<Assigned>, Option<(f64, Vec<f64>)>) = (None, None);
        let mut scale = 1.0;
        for round in 0..rounds {
            self.update(problem);
            *spent += pass;
            let Some((value, devices)) = self.cheapest(problem) else { break };
            let (seconds, bytes) = problem.cost(&devices)?;
            let paid: f64 =
                self.of_byte.iter().zip(&problem.capacity).map(|(price, all)| price * *all as f64).sum();
            let bound = value - paid;
            if highest.as_ref().is_none_or(|(known, _)| bound > *known) {
                highest = Some((bound, self.of_byte.clone()));
            } else {
                scale *= 0.9;
            }
            let over: Vec<f64> =
                bytes.iter().zip(&problem.capacity).map(|(used, all)| *used as f64 - *all as f64).collect();
            let fits = over.iter().all(|over| *over <= 0.0);
            let tried = match round % TRY_EVERY == 0 {
                true => problem
                    .repaired(devices.clone(), spent)
                    .and_then(|fitting| problem.improved(fitting, local, spent)),
                false => None,
            };
            let found = tried.or_else(|| fits.then_some(Assigned { devices, seconds }));
            if let Some(found) = found
                && best.as_ref().is_none_or(|best| found.seconds < best.seconds)
            {
                best = Some(found);
            }
            // A device with room and without a price asks for nothing.
            let slope = |(over, price): (&f64, &f64)| if *price == 0.0 { over.max(0.0) } else { *over };
            let slopes: Vec<f64> = over.iter().zip(&self.of_byte).map(slope).collect();
            let square: f64 = slopes.iter().map(|slope| slope * slope).sum();
            if square == 0.0 {
                best = best.and_then(|best| problem.improved(best.devices, local, spent));
                break;
            }
            let goal = best.as_ref().map_or(bound.abs() * 1.5 + 1e-9, |best| best.seconds);
            let step = scale * (goal - bound).max(1e-12) / square;
            for (price, slope) in self.of_byte.iter_mut().zip(&slopes) {
                *price = (*price + step * slope).max(0.0);
            }
        }
        if let Some((_, of_byte)) = highest {
            self.of_byte = of_byte;
        }
        self.update(problem);
        best
    }
}
