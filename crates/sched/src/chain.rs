//! Which device each part of a chain goes to, so that a pass takes least time and every device has room.
//!
//! A pass goes through all parts in order, such as the layers of a model. The search keeps partial assignments (labels) part
//! by part. Of two labels that end on one device, one that needs no more memory anywhere and no more time dominates the
//! other. [Lagrangian relaxation](https://en.wikipedia.org/wiki/Lagrangian_relaxation) of the capacities gives prices of
//! bytes, and with them a bound on what can follow a label. Labels whose bound is above a known assignment are dropped; so
//! are the worst ones where there are too many, and then the bound says how much better another assignment could be.

/// Parts in order, and the devices they may go to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainProblem {
    /// Bytes that each device has.
    pub capacity: Vec<u64>,
    /// Seconds to hand what a part gives from one device (the first index) to the next part on another (the second).
    pub hops: Vec<Vec<f64>>,
    /// What each part takes on each device; `None` where it cannot be.
    pub parts: Vec<Vec<Option<PartCost>>>,
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
}

/// Another device for one part, all else equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alternative {
    /// Position of the device.
    pub device: usize,
    /// Seconds of a pass that it would take beyond the assignment's.
    pub extra_seconds: f64,
}

/// Rounds in which prices of bytes are improved, and after how many an assignment is made of them.
const ROUNDS: usize = 120;
const TRY_EVERY: usize = 12;
/// Seconds that count as none.
const SLACK: f64 = 1e-12;

impl ChainProblem {
    /// The assignment that takes least time, as far as a search that keeps at most `width` labels a part finds it. `None` if
    /// it finds none that fits.
    pub fn solve(&self, width: usize) -> Option<ChainAssignment> {
        let mut prices = Prices::none(self);
        let mut best = prices.improve(self);
        let (mut left_out, mut labels) = (f64::INFINITY, vec![Label::start(self)]);
        let mut history: Vec<Vec<(usize, usize)>> = Vec::with_capacity(self.parts.len());
        for part in 0..self.parts.len() {
            let limit = best.as_ref().map_or(f64::INFINITY, |best| best.seconds);
            let next = labels.iter().enumerate().flat_map(|(from, label)| label.extended(self, part, from));
            let bounded = next.map(|label| (prices.bound(&label, part), label));
            // A hair below the limit, so that ties are not searched.
            let mut kept: Vec<(f64, Label)> =
                bounded.filter(|(bound, _)| *bound < limit - 1e-12 * limit.abs().min(1.0)).collect();
            kept.sort_by(|(one, a), (other, b)| {
                one.total_cmp(other).then_with(|| (a.device, a.from).cmp(&(b.device, b.from)))
            });
            labels = Vec::new();
            for (bound, label) in kept {
                if labels.iter().any(|other: &Label| other.dominates(&label)) {
                    continue;
                }
                if labels.len() == width.max(1) {
                    left_out = left_out.min(bound);
                    break;
                }
                labels.push(label);
            }
            history.push(labels.iter().map(|label| (label.from, label.device)).collect());
        }
        let end = labels.iter().enumerate().min_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
        if let Some((mut at, label)) = end
            && best.as_ref().is_none_or(|best| label.seconds < best.seconds)
        {
            let mut devices = vec![0; self.parts.len()];
            for (part, history) in history.iter().enumerate().rev() {
                (at, devices[part]) = history[at];
            }
            best = Some(ChainAssignment { devices, seconds: label.seconds, bound: 0.0 });
        }
        let best = best?;
        let bound = left_out.min(best.seconds);
        Some(ChainAssignment { bound, ..best })
    }

    /// Seconds of a pass, and bytes on each device; `None` if a part cannot be where it is put.
    pub fn cost(&self, devices: &[usize]) -> Option<(f64, Vec<u64>)> {
        let mut bytes = vec![0u64; self.capacity.len()];
        let mut seconds = 0.0;
        for (part, device) in devices.iter().enumerate() {
            let cost = self.parts.get(part)?.get(*device).copied().flatten()?;
            bytes[*device] = bytes[*device].saturating_add(cost.bytes);
            seconds += cost.seconds;
            if part > 0 {
                seconds += self.hops[devices[part - 1]][*device];
            }
        }
        Some((seconds, bytes))
    }

    /// Parts moved from devices that are too full, those first whose bytes cost least elsewhere; `None` if they go nowhere.
    fn repaired(&self, mut devices: Vec<usize>) -> Option<Vec<usize>> {
        let (_, mut bytes) = self.cost(&devices)?;
        while let Some(full) = (0..bytes.len()).find(|device| bytes[*device] > self.capacity[*device]) {
            let mut best: Option<(f64, usize, usize)> = None;
            for part in (0..devices.len()).filter(|part| devices[*part] == full) {
                let Some(own) = self.parts[part][full].filter(|own| own.bytes > 0) else { continue };
                for (device, extra) in self.moves(&devices, &bytes, part) {
                    let price = extra / own.bytes as f64;
                    if best.is_none_or(|(known, ..)| price < known) {
                        best = Some((price, part, device));
                    }
                }
            }
            let (_, part, device) = best?;
            self.shift(&mut devices, &mut bytes, part, device);
        }
        Some(devices)
    }

    /// With single parts moved, and pairs exchanged, as long as that takes less time.
    fn improved(&self, mut devices: Vec<usize>) -> Option<ChainAssignment> {
        let (_, mut bytes) = self.cost(&devices)?;
        loop {
            let moves = (0..devices.len()).flat_map(|part| {
                self.moves(&devices, &bytes, part).map(move |(device, extra)| (extra, part, device))
            });
            match moves.min_by(|one, other| one.0.total_cmp(&other.0)).filter(|(extra, ..)| *extra < -SLACK) {
                Some((_, part, device)) => self.shift(&mut devices, &mut bytes, part, device),
                None => match self.exchange(&devices, &bytes) {
                    Some((one, other)) => {
                        let (to, from) = (devices[other], devices[one]);
                        self.shift(&mut devices, &mut bytes, one, to);
                        self.shift(&mut devices, &mut bytes, other, from);
                    }
                    None => break,
                },
            }
        }
        let (seconds, _) = self.cost(&devices)?;
        Some(ChainAssignment { devices, seconds, bound: 0.0 })
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
        self.parts[part].iter().enumerate().filter_map(move |(device, cost)| {
            let cost = (*cost).filter(|_| device != own)?;
            let fits = bytes[device].saturating_add(cost.bytes) <= self.capacity[device];
            fits.then(|| (device, self.around(devices, part, device) - before))
        })
    }

    /// Two parts that take less time and have room if they change places.
    fn exchange(&self, devices: &[usize], bytes: &[u64]) -> Option<(usize, usize)> {
        let apart = |one: usize, other: usize| devices[one] != devices[other] && other > one + 1;
        let pairs =
            (0..devices.len()).flat_map(|one| (one + 2..devices.len()).map(move |other| (one, other)));
        pairs.filter(|(one, other)| apart(*one, *other)).find(|(one, other)| {
            let (a, b) = (devices[*one], devices[*other]);
            let size = |part: usize, device: usize| self.parts[part][device].map(|cost| cost.bytes);
            let (Some(one_in_b), Some(other_in_a)) = (size(*one, b), size(*other, a)) else { return false };
            let left = |device: usize, part: usize| bytes[device] - size(part, device).unwrap_or(0);
            let fits = left(a, *one).saturating_add(other_in_a) <= self.capacity[a]
                && left(b, *other).saturating_add(one_in_b) <= self.capacity[b];
            let change = |part: usize, to: usize| {
                self.around(devices, part, to) - self.around(devices, part, devices[part])
            };
            fits && change(*one, b) + change(*other, a) < -SLACK
        })
    }

    /// Seconds of a part on a device, with those of getting there and away.
    fn around(&self, devices: &[usize], part: usize, device: usize) -> f64 {
        let there = if part == 0 { 0.0 } else { self.hops[devices[part - 1]][device] };
        let away = devices.get(part + 1).map_or(0.0, |next| self.hops[device][*next]);
        there + away + self.parts[part][device].map_or(f64::INFINITY, |cost| cost.seconds)
    }

    fn shift(&self, devices: &mut [usize], bytes: &mut [u64], part: usize, device: usize) {
        let size = |device: usize| self.parts[part][device].map_or(0, |cost| cost.bytes);
        bytes[devices[part]] -= size(devices[part]);
        bytes[device] += size(device);
        devices[part] = device;
    }

    /// For each part, the best other device for it alone that has room.
    pub fn alternatives(&self, assignment: &ChainAssignment) -> Vec<Option<Alternative>> {
        let fits =
            |bytes: &[u64]| bytes.iter().zip(&self.capacity).all(|(bytes, capacity)| bytes <= capacity);
        let mut devices = assignment.devices.clone();
        let other = |part: usize| {
            let own = devices[part];
            let tried = (0..self.capacity.len()).filter(|device| *device != own).filter_map(|device| {
                devices[part] = device;
                let (seconds, bytes) = self.cost(&devices)?;
                let extra_seconds = seconds - assignment.seconds;
                fits(&bytes).then_some(Alternative { device, extra_seconds })
            });
            let best = tried.min_by(|one, other| one.extra_seconds.total_cmp(&other.extra_seconds));
            devices[part] = own;
            best
        };
        (0..self.parts.len()).map(other).collect()
    }
}

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
    ) -> impl Iterator<Item = Label> + 'a {
        problem.parts[part].iter().enumerate().filter_map(move |(device, cost)| {
            let cost = (*cost)?;
            let used = self.bytes[device].checked_add(cost.bytes)?;
            if used > problem.capacity[device] {
                return None;
            }
            let hop = if part == 0 { 0.0 } else { problem.hops[self.device][device] };
            let mut bytes = self.bytes.clone();
            bytes[device] = used;
            Some(Label { device, seconds: self.seconds + hop + cost.seconds, bytes, from })
        })
    }

    fn dominates(&self, other: &Label) -> bool {
        self.device == other.device
            && self.seconds <= other.seconds
            && self.bytes.iter().zip(&other.bytes).all(|(own, other)| own <= other)
    }
}

/// Prices of bytes, and the least that parts cost with them.
struct Prices {
    /// Seconds for a byte of each device.
    of_byte: Vec<f64>,
    /// For each part and device: the least that the parts behind it take, with the prices of their bytes.
    behind: Vec<Vec<f64>>,
    capacity: Vec<u64>,
}

impl Prices {
    fn none(problem: &ChainProblem) -> Prices {
        let of_byte = vec![0.0; problem.capacity.len()];
        let mut prices = Prices { of_byte, behind: Vec::new(), capacity: problem.capacity.clone() };
        prices.update(problem);
        prices
    }

    /// A bound on every assignment that begins with a label whose last part is `part`.
    fn bound(&self, label: &Label, part: usize) -> f64 {
        let room = self.capacity.iter().zip(&label.bytes).map(|(all, used)| all.saturating_sub(*used) as f64);
        let refund: f64 = room.zip(&self.of_byte).map(|(room, price)| room * price).sum();
        label.seconds + self.behind[part][label.device] - refund
    }

    /// What a part takes on a device with the price of its bytes.
    fn priced(&self, cost: Option<PartCost>, device: usize) -> f64 {
        cost.map_or(f64::INFINITY, |cost| cost.seconds + self.of_byte[device] * cost.bytes as f64)
    }

    fn update(&mut self, problem: &ChainProblem) {
        let devices = problem.capacity.len();
        let mut behind = vec![vec![0.0; devices]; problem.parts.len()];
        for part in (1..problem.parts.len()).rev() {
            for before in 0..devices {
                let least = (0..devices).map(|device| {
                    problem.hops[before][device]
                        + self.priced(problem.parts[part][device], device)
                        + behind[part][device]
                });
                behind[part - 1][before] = least.fold(f64::INFINITY, f64::min);
            }
        }
        self.behind = behind;
    }

    /// The assignment that costs least with these prices, whether it fits or not.
    fn cheapest(&self, problem: &ChainProblem) -> Option<(f64, Vec<usize>)> {
        let devices = 0..problem.capacity.len();
        let mut chosen: Vec<usize> = Vec::with_capacity(problem.parts.len());
        let mut value = f64::INFINITY;
        for (part, costs) in problem.parts.iter().enumerate() {
            let cost = |device: usize| {
                let hop = chosen.last().map_or(0.0, |before| problem.hops[*before][device]);
                hop + self.priced(costs[device], device) + self.behind[part][device]
            };
            let (least, device) = devices
                .clone()
                .map(|device| (cost(device), device))
                .min_by(|one, other| one.0.total_cmp(&other.0))?;
            if part == 0 {
                value = least;
            }
            chosen.push(device);
        }
        value.is_finite().then_some((value, chosen))
    }

    /// Raises the prices of devices that are too full and lowers those of others, and returns the best assignment on the way
    /// that fits. The prices of the highest bound stay.
    fn improve(&mut self, problem: &ChainProblem) -> Option<ChainAssignment> {
        let (mut best, mut highest): (Option<ChainAssignment>, Option<(f64, Vec<f64>)>) = (None, None);
        let mut scale = 1.0;
        for round in 0..ROUNDS {
            self.update(problem);
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
            let close = round % TRY_EVERY == TRY_EVERY - 1;
            let tried = if close {
                problem.repaired(devices.clone()).and_then(|fitting| problem.improved(fitting))
            } else {
                None
            };
            let found = tried.or_else(|| fits.then_some(ChainAssignment { devices, seconds, bound }));
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
                best = best.and_then(|best| problem.improved(best.devices));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A number below a limit that follows from a seed.
    fn random(seed: &mut u64, limit: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % limit
    }

    fn problem(seed: &mut u64) -> ChainProblem {
        let devices = 1 + random(seed, 3) as usize;
        let parts = 1 + random(seed, 6) as usize;
        let mut number = |limit| random(seed, limit);
        // Some chains have equal parts, as models do.
        let kinds = 1 + number(parts as u64) as usize;
        let kind: Vec<Vec<Option<PartCost>>> = (0..kinds)
            .map(|_| {
                let cost = |number: &mut dyn FnMut(u64) -> u64| PartCost {
                    bytes: number(20),
                    seconds: number(50) as f64,
                };
                (0..devices).map(|_| (number(9) > 0).then(|| cost(&mut number))).collect()
            })
            .collect();
        let hop = |from: usize, to: usize, number: &mut dyn FnMut(u64) -> u64| {
            if from == to { 0.0 } else { number(20) as f64 }
        };
        ChainProblem {
            capacity: (0..devices).map(|_| number(60)).collect(),
            hops: (0..devices)
                .map(|from| (0..devices).map(|to| hop(from, to, &mut number)).collect())
                .collect(),
            parts: (0..parts).map(|_| kind[number(kinds as u64) as usize].clone()).collect(),
        }
    }

    /// The least seconds of all assignments that fit.
    fn brute_force(problem: &ChainProblem) -> Option<f64> {
        let (devices, parts) = (problem.capacity.len(), problem.parts.len());
        let all = (0..devices.pow(parts as u32)).filter_map(|number| {
            let chosen: Vec<usize> =
                (0..parts).map(|part| number / devices.pow(part as u32) % devices).collect();
            let (seconds, bytes) = problem.cost(&chosen)?;
            bytes.iter().zip(&problem.capacity).all(|(used, all)| used <= all).then_some(seconds)
        });
        all.reduce(f64::min)
    }

    #[test]
    fn small_chains_are_solved_exactly() {
        let mut seed = 1;
        let mut solved = 0;
        for round in 0..3000 {
            let problem = problem(&mut seed);
            let (expected, found) = (brute_force(&problem), problem.solve(10_000));
            match (expected, &found) {
                (Some(expected), Some(found)) => {
                    let (seconds, bytes) = problem.cost(&found.devices).unwrap();
                    assert!((seconds - expected).abs() < 1e-6, "{round}: {found:?}, {expected} is possible");
                    assert!((found.seconds - seconds).abs() < 1e-9 && found.bound == found.seconds);
                    assert!(bytes.iter().zip(&problem.capacity).all(|(used, all)| used <= all));
                    solved += 1;
                }
                (None, None) => {}
                _ => panic!("{round}: {found:?} for {expected:?}"),
            }
        }
        assert!(solved > 1000, "{solved}");
    }

    #[test]
    fn a_narrow_search_tells_how_much_better_others_could_be() {
        let mut seed = 2;
        let mut inexact = 0;
        for _ in 0..2000 {
            let problem = problem(&mut seed);
            let Some(found) = problem.solve(1) else { continue };
            let expected = brute_force(&problem).unwrap();
            assert!(
                found.bound <= expected + 1e-6 && expected <= found.seconds + 1e-6,
                "{found:?}: {expected}"
            );
            inexact += usize::from(found.bound < found.seconds);
        }
        assert!(inexact > 20, "{inexact}");
    }

    #[test]
    fn alternatives_are_the_best_other_places_of_one_part() {
        let cost = |seconds| Some(PartCost { bytes: 10, seconds });
        let problem = ChainProblem {
            capacity: vec![20, 100],
            hops: vec![vec![0.0, 1.0], vec![1.0, 0.0]],
            parts: vec![vec![cost(1.0), cost(5.0)]; 3],
        };
        let found = problem.solve(100).unwrap();
        assert_eq!(found.seconds, 8.0);
        let slow = found.devices.iter().position(|device| *device == 1).unwrap();
        let others = problem.alternatives(&found);
        for (part, other) in others.iter().enumerate() {
            match part == slow {
                // The fast device is full.
                true => assert_eq!(*other, None),
                false => assert!(other.unwrap().device == 1 && other.unwrap().extra_seconds >= 4.0 - 1.0),
            }
        }
    }
}
