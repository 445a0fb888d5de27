//! Experts one by one: those that are chosen most go to the device of the rest of their layer, as far as there is room, and the
//! others stay on the last device.

use std::collections::BTreeMap;

use super::{ATTEMPTS, Placing, WholeExperts};
use crate::blueprint::Blueprint;
use crate::speed_forecast::share;
use crate::{Error, ExpertCounts, HotExperts, LayerPlacement, ModelPart, Settings};

/// An expert that can be on the device of the rest of its layer.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    layer: usize,
    expert: u32,
    /// Position of the device.
    device: usize,
    bytes: u64,
    /// Seconds of the workload that it saves there, for each of its bytes.
    gain: f64,
}

impl Placing {
    /// The model with hot experts, if it is known which ones are hot, and a placement with all experts on the last device fits.
    pub(super) fn with_hot_experts(
        &self,
        settings: &Settings,
        at: impl Fn(LayerPlacement) -> Result<Blueprint, Error>,
    ) -> Result<Option<Blueprint>, Error> {
        let Some(counts) = settings.expert_counts.as_deref().filter(|_| !settings.importance) else {
            return Ok(None);
        };
        let capacity: Vec<u64> = self.whole.iter().map(|whole| whole.room).collect();
        let Some(solved) = self.solve(&capacity, WholeExperts::OnLast) else { return Ok(None) };
        let cold = at(solved.layout)?;
        if !cold.model.adapters().is_empty() {
            return Ok(None);
        }
        let left = |blueprint: &Blueprint| -> Result<Vec<i128>, Error> {
            let devices = blueprint.forecast()?.devices;
            Ok(devices
                .iter()
                .map(|share| i128::from(share.free.unwrap_or(u64::MAX)) - i128::from(share.total()))
                .collect())
        };
        let mut room = left(&cold)?;
        let candidates = self.candidates(&cold, counts);
        for _ in 0..ATTEMPTS {
            let divided = at(self.divided(&cold, &candidates, &room))?;
            let over = left(&divided)?;
            if over.iter().all(|left| *left >= 0) {
                return Ok(Some(divided));
            }
            room.iter_mut().zip(over).for_each(|(room, left)| *room += left.min(0));
        }
        Ok(None)
    }

    /// All experts of layers that are not on the last device, those first that save most for their bytes.
    fn candidates(&self, cold: &Blueprint, counts: &ExpertCounts) -> Vec<Candidate> {
        let Some(experts) = cold.model.config().experts else { return Vec::new() };
        let last = self.devices.len() - 1;
        let mut all: Vec<Candidate> = Vec::new();
        for layer in 0..self.layers {
            let device = cold.layout.layers[layer].index();
            let Ok(part) = self.parts.binary_search(&ModelPart::Experts(layer)) else { continue };
            if device == last {
                continue;
            }
            let [there, here] = [device, last].map(|device| self.whole[device].costs[part]);
            let bytes = there.bytes.div_ceil(experts.count.max(1));
            let saved = (here.seconds - there.seconds) / bytes.max(1) as f64;
            all.extend((0..experts.count as u32).map(|expert| {
                let gain = saved * share(Some(counts), layer, expert, experts.count);
                Candidate { layer, expert, device, bytes, gain }
            }));
        }
        all.retain(|candidate| candidate.gain > 0.0);
        all.sort_by(|one, other| {
            other
                .gain
                .total_cmp(&one.gain)
                .then_with(|| (one.layer, one.expert).cmp(&(other.layer, other.expert)))
        });
        all
    }

    /// A layout with as many of the candidates as there is room for.
    fn divided(&self, cold: &Blueprint, candidates: &[Candidate], room: &[i128]) -> LayerPlacement {
        let mut room = room.to_vec();
        let mut chosen: BTreeMap<usize, Vec<Candidate>> = BTreeMap::new();
        for candidate in candidates {
            let left = &mut room[candidate.device];
            if *left >= i128::from(candidate.bytes) {
                *left -= i128::from(candidate.bytes);
                chosen.entry(candidate.layer).or_default().push(*candidate);
            }
        }
        let count = cold.model.config().experts.map_or(0, |experts| experts.count);
        let mut layout = cold.layout.clone();
        for (layer, hot) in chosen {
            let device = self.devices[hot[0].device];
            if hot.len() as u64 == count {
                layout.experts[layer] = device;
                continue;
            }
            let mut experts: Vec<u32> = hot.iter().map(|candidate| candidate.expert).collect();
            experts.sort_unstable();
            layout.hot[layer] = Some(HotExperts { device, experts: experts.into() });
        }
        layout
    }
}
