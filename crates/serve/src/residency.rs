//! Which models of a server are in memory: they are loaded on demand, and unloaded when another one needs their memory.

/// A model of a server, as [`ModelMove::next`] sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelUse {
    /// Bytes that it takes of each device.
    pub bytes: Vec<u64>,
    /// Whether it is in memory.
    pub loaded: bool,
    /// Whether requests run on it, or wait for others that do.
    pub busy: bool,
    /// The number of the oldest request that it has not begun to answer. Requests are numbered as they come.
    pub waits: Option<u64>,
    /// The number of the last request that it began to answer.
    pub used: u64,
}

/// What is to be done so that a model that is waited for gets its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelMove {
    /// No model is waited for.
    Stay,
    /// A model is loaded, once some that have nothing to do are unloaded.
    Load {
        /// The model.
        model: usize,
        /// Those that are unloaded.
        unload: Vec<usize>,
    },
    /// Some models answer no requests that came later than this one until they have been unloaded.
    Drain {
        /// The models.
        models: Vec<usize>,
        /// The number of the request that waits for their memory.
        until: u64,
    },
}

impl ModelMove {
    /// The next move for models that share devices of some capacity. The oldest request is served first. Models with nothing to
    /// do leave before others, and the least recently used of them first; those without which there is room, too, stay.
    pub fn next(capacity: &[u64], models: &[ModelUse]) -> ModelMove {
        let waiting = models.iter().enumerate().filter(|(_, model)| !model.loaded);
        let Some((until, model)) = waiting.filter_map(|(index, model)| Some((model.waits?, index))).min()
        else {
            return ModelMove::Stay;
        };
        // One that has just been loaded first answers what it was loaded for.
        let busy = |index: &usize| {
            let ModelUse { busy, waits, .. } = models[*index];
            busy || waits.is_some_and(|waits| waits < until)
        };
        let mut loaded: Vec<usize> = (0..models.len()).filter(|index| models[*index].loaded).collect();
        loaded.sort_by_key(|index| (busy(index), models[*index].used));
        let fits = |leaving: &[usize]| {
            let stays = |index: &&usize| !leaving.contains(index);
            let together = |device: usize| {
                let bytes =
                    loaded.iter().filter(stays).chain([&model]).map(|index| models[*index].bytes[device]);
                bytes.fold(0, u64::saturating_add)
            };
            capacity.iter().enumerate().all(|(device, most)| together(device) <= *most)
        };
        let count = (0..loaded.len()).find(|count| fits(&loaded[..*count])).unwrap_or(loaded.len());
        let mut leaving = loaded[..count].to_vec();
        for index in loaded[..count].iter().rev() {
            let others: Vec<usize> = leaving.iter().copied().filter(|other| other != index).collect();
            if fits(&others) {
                leaving = others;
            }
        }
        match leaving.iter().any(busy) {
            true => ModelMove::Drain { models: leaving, until },
            false => ModelMove::Load { model, unload: leaving },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model(bytes: &[u64]) -> ModelUse {
        ModelUse { bytes: bytes.to_vec(), ..ModelUse::default() }
    }

    fn loaded(bytes: &[u64], used: u64) -> ModelUse {
        ModelUse { loaded: true, used, ..model(bytes) }
    }

    fn waiting(bytes: &[u64], waits: u64) -> ModelUse {
        ModelUse { waits: Some(waits), ..model(bytes) }
    }

    #[test]
    fn a_model_that_fits_beside_the_others_drives_none_out() {
        let models = [loaded(&[40], 1), waiting(&[60], 2)];
        assert_eq!(ModelMove::next(&[100], &models), ModelMove::Load { model: 1, unload: vec![] });
        assert_eq!(ModelMove::next(&[100], &models[..1]), ModelMove::Stay);
    }

    #[test]
    fn the_least_recently_used_leave_and_only_as_many_as_necessary() {
        let models = [loaded(&[30], 3), loaded(&[10], 1), loaded(&[50], 2), waiting(&[55], 4)];
        assert_eq!(ModelMove::next(&[100], &models), ModelMove::Load { model: 3, unload: vec![2] });
        let busy = ModelUse { busy: true, ..models[2].clone() };
        let models = [models[0].clone(), models[1].clone(), busy, waiting(&[45], 4)];
        assert_eq!(ModelMove::next(&[100], &models), ModelMove::Load { model: 3, unload: vec![1, 0] });
    }

    #[test]
    fn every_device_counts() {
        let models = [loaded(&[10, 90], 1), loaded(&[90, 10], 2), waiting(&[5, 20], 3)];
        assert_eq!(ModelMove::next(&[110, 110], &models), ModelMove::Load { model: 2, unload: vec![0] });
    }

    #[test]
    fn busy_models_finish_what_came_before_the_request_that_waits() {
        let busy = ModelUse { busy: true, ..loaded(&[80], 7) };
        let models = [busy, waiting(&[40], 9), waiting(&[40], 8)];
        assert_eq!(ModelMove::next(&[100], &models), ModelMove::Drain { models: vec![0], until: 8 });
        let arrived = ModelUse { waits: Some(7), ..loaded(&[80], 1) };
        let models = [arrived, models[2].clone()];
        assert_eq!(ModelMove::next(&[100], &models), ModelMove::Drain { models: vec![0], until: 8 });
    }

    /// A model in a game of requests, each of which takes some turns.
    #[derive(Clone, Debug, Default)]
    struct Player {
        held: Vec<u64>,
        running: Vec<u32>,
    }

    proptest! {
        #[test]
        fn every_request_is_answered_and_memory_is_never_exceeded(
            sizes in prop::collection::vec(1u64..=10, 1..5),
            requests in prop::collection::vec((0usize..5, 1u32..6, 0u32..4), 1..60),
        ) {
            let capacity = [10];
            let mut uses: Vec<ModelUse> = sizes.iter().map(|size| model(&[*size])).collect();
            let mut players = vec![Player::default(); sizes.len()];
            let (mut coming, mut number, mut answered, mut turns) = (requests.iter().copied(), 0, 0, 0);
            let mut pause = 0;
            while answered < requests.len() {
                turns += 1;
                prop_assert!(turns < 10_000, "a request waits for ever");
                if pause == 0 {
                    if let Some((which, _, rest)) = coming.next() {
                        players[which % sizes.len()].held.push(number);
                        (number, pause) = (number + 1, rest);
                    }
                } else {
                    pause -= 1;
                }
                for (one, player) in uses.iter_mut().zip(&players) {
                    (one.busy, one.waits) = (!player.running.is_empty(), player.held.first().copied());
                }
                let next = ModelMove::next(&capacity, &uses);
                if let ModelMove::Load { unload, .. } = &next {
                    unload.iter().for_each(|other| uses[*other].loaded = false);
                }
                let together: u64 = uses.iter().filter(|one| one.loaded).map(|one| one.bytes[0]).sum();
                prop_assert!(together <= capacity[0]);
                for (index, (one, player)) in uses.iter_mut().zip(&mut players).enumerate() {
                    if !one.loaded {
                        continue;
                    }
                    let takes = |came: &u64| match &next {
                        ModelMove::Drain { models, until } if models.contains(&index) => came < until,
                        _ => true,
                    };
                    let (taken, held): (Vec<u64>, Vec<u64>) = player.held.iter().partition(|came| takes(came));
                    one.used = taken.last().copied().unwrap_or(one.used);
                    player.held = held;
                    player.running.extend(taken.iter().map(|came| requests[*came as usize].1));
                    player.running.iter_mut().for_each(|rest| *rest -= 1);
                    answered += player.running.iter().filter(|rest| **rest == 0).count();
                    player.running.retain(|rest| *rest > 0);
                }
                // It takes its requests at the next turn.
                if let ModelMove::Load { model, .. } = next {
                    uses[model].loaded = true;
                }
            }
        }
    }
}
