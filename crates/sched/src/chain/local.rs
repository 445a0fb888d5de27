//! Assignments made to fit, and improved by moving and exchanging parts.

use super::{Assigned, ChainProblem};

/// Seconds that count as none.
const SLACK: f64 = 1e-12;
/// Parts of each device, those first that lose least, that are looked at for an exchange with another device.
const EXCHANGED: usize = 32;

impl ChainProblem {
    /// Parts moved from devices that are too full, those first whose bytes cost least elsewhere; `None` if they go nowhere.
    pub(super) fn repaired(&self, mut devices: Vec<usize>, spent: &mut u64) -> Option<Vec<usize>> {
        let (_, mut bytes) = self.cost(&devices)?;
        while let Some(full) = (0..bytes.len()).find(|device| bytes[*device] > self.capacity[*device]) {
            let mut priced: Vec<(f64, usize, usize)> = Vec::new();
            for part in (0..devices.len()).filter(|part| devices[*part] == full) {
                let Some(own) = self.parts[part].costs[full].filter(|own| own.bytes > 0) else { continue };
                let moves = self.moves(&devices, &bytes, part);
                priced.extend(moves.map(|(device, extra)| (extra / own.bytes as f64, part, device)));
            }
            *spent += (devices.len() * bytes.len()) as u64;
            priced.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
            let mut moved = false;
            for (_, part, device) in priced {
                if bytes[full] <= self.capacity[full] {
                    break;
                }
                let has_room = |cost: u64| bytes[device].saturating_add(cost) <= self.capacity[device];
                let cost = self.parts[part].costs[device].map(|cost| cost.bytes);
                if devices[part] == full && cost.is_some_and(has_room) {
                    self.shift(&mut devices, &mut bytes, part, device);
                    moved = true;
                }
            }
            if !moved {
                return None;
            }
        }
        Some(devices)
    }

    /// With single parts moved, and pairs exchanged, as long as that takes less time and the effort is not spent.
    pub(super) fn improved(&self, mut devices: Vec<usize>, effort: u64, spent: &mut u64) -> Option<Assigned> {
        let (_, mut bytes) = self.cost(&devices)?;
        let pass = (devices.len() * bytes.len()) as u64;
        let mut left = effort;
        while left >= pass {
            left -= pass;
            *spent += pass;
            let mut moved = false;
            for part in 0..devices.len() {
                let best = self.moves(&devices, &bytes, part).min_by(|one, other| one.1.total_cmp(&other.1));
                if let Some((device, _)) = best.filter(|(_, extra)| *extra < -SLACK) {
                    self.shift(&mut devices, &mut bytes, part, device);
                    moved = true;
                }
            }
            if moved {
                continue;
            }
            let Some((one, other)) = self.exchange(&devices, &bytes) else { break };
            let (to, from) = (devices[other], devices[one]);
            self.shift(&mut devices, &mut bytes, one, to);
            self.shift(&mut devices, &mut bytes, other, from);
        }
        let (seconds, _) = self.cost(&devices)?;
        Some(Assigned { devices, seconds })
    }

    /// Two parts that take less time and have room if they change places.
    fn exchange(&self, devices: &[usize], bytes: &[u64]) -> Option<(usize, usize)> {
        let size = |part: usize, device: usize| self.parts[part].costs[device].map(|cost| cost.bytes);
        let count = self.capacity.len();
        let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        pairs
            .filter_map(|(a, b)| {
                let (ours, theirs) = (self.losing_least(devices, a, b), self.losing_least(devices, b, a));
                let all = ours.iter().flat_map(|one| theirs.iter().map(move |other| (*one, *other)));
                all.filter(|((one, _), (other, _))| one.abs_diff(*other) > 1).find(
                    |((one, lost), (other, won))| {
                        let (Some(one_in_b), Some(other_in_a)) = (size(*one, b), size(*other, a)) else {
                            return false;
                        };
                        let left =
                            |device: usize, part: usize| bytes[device] - size(part, device).unwrap_or(0);
                        lost + won < -SLACK
                            && left(a, *one).saturating_add(other_in_a) <= self.capacity[a]
                            && left(b, *other).saturating_add(one_in_b) <= self.capacity[b]
                    },
                )
            })
            .map(|((one, _), (other, _))| (one, other))
            .next()
    }

    /// Parts of a device that would lose least on another one, and the seconds that they would take more there.
    fn losing_least(&self, devices: &[usize], from: usize, to: usize) -> Vec<(usize, f64)> {
        let own = (0..devices.len()).filter(|part| devices[*part] == from);
        let change = |part| self.around(devices, part, to) - self.around(devices, part, from);
        let mut changes: Vec<(usize, f64)> = own.map(|part| (part, change(part))).collect();
        changes.sort_by(|one, other| one.1.total_cmp(&other.1));
        changes.truncate(EXCHANGED);
        changes
    }

    fn shift(&self, devices: &mut [usize], bytes: &mut [u64], part: usize, device: usize) {
        let size = |device: usize| self.parts[part].costs[device].map_or(0, |cost| cost.bytes);
        bytes[devices[part]] -= size(devices[part]);
        bytes[device] += size(device);
        devices[part] = device;
    }
}
