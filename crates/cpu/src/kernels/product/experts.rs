//! Which rows of activations go to which expert.

use std::ops::Range;

use orlop_backend::DeviceError;
use orlop_graph::Op;

use super::activation_rows::ActivationRows;
use crate::access::{RowIndex, Src};
use crate::task::{Task, TaskInputs};

/// Rows for one expert that are gathered at a time.
const BATCH: usize = 256;

/// Rows of activations for one expert.
pub(super) struct ExpertRows<'a>(&'a [(u64, RowIndex)]);

impl ActivationRows for ExpertRows<'_> {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn get(&self, index: u64) -> (u64, RowIndex) {
        self.0[index as usize]
    }
}

/// Calls `work` for every expert that a token has chosen, with the rows that have chosen it, some at a time. Rows of
/// activations are `[each, tokens]`.
pub(super) fn for_each(task: &Task, [each, tokens]: [u64; 2], mut work: impl FnMut(u64, &ExpertRows<'_>)) {
    let (experts, used) = (task.src[0].desc.extents[2], task.dst.desc.extents[1]);
    let mut batch = [(0, [0; 3]); BATCH];
    for expert in 0..experts {
        let mut chosen = (0..tokens)
            .flat_map(|token| (0..used).map(move |slot| (slot, token)))
            .filter(|(slot, token)| of(&task.src[2], *slot, *token) == expert as i64)
            .map(|(slot, token)| (token * each + slot % each, [slot, token, 0]));
        loop {
            let count = batch.iter_mut().zip(&mut chosen).map(|(place, row)| *place = row).count();
            if count == 0 {
                break;
            }
            work(expert, &ExpertRows(&batch[..count]));
        }
    }
}

/// Sets some columns of the rows whose token has chosen no expert to zero.
pub(super) fn clear_unchosen(task: &Task, columns: Range<u64>) {
    let [_, used, tokens, _] = task.dst.desc.extents;
    let unchosen = (0..tokens)
        .flat_map(|token| (0..used).map(move |slot| [slot, token, 0]))
        .filter(|[slot, token, _]| of(&task.src[2], *slot, *token) < 0);
    for at in unchosen {
        for start in columns.clone().step_by(BATCH) {
            let count = BATCH.min((columns.end - start) as usize);
            task.dst.write_floats(start, at, &[0.0; BATCH][..count]);
        }
    }
}

fn of(choices: &Src, slot: u64, token: u64) -> i64 {
    choices.integer(slot, [token, 0, 0])
}

/// Refuses numbers that are not experts', nor -1 where an expert need not be chosen.
pub(super) fn are_in_range(task: &TaskInputs<'_>) -> Result<(), DeviceError> {
    let rows = task.src[0].desc.extents[2];
    let [_, used, tokens, _] = task.result.extents;
    if task.result.is_empty() {
        return Ok(());
    }
    for [slot, token] in (0..tokens).flat_map(|token| (0..used).map(move |slot| [slot, token])) {
        let index = of(&task.src[2], slot, token);
        let is_none = index == -1 && *task.op == Op::MulMatSome;
        if is_none || u64::try_from(index).is_ok_and(|expert| expert < rows) {
            continue;
        }
        return Err(DeviceError::BadIndex {
            op: task.op.name().to_owned(),
            tensor: task.name.to_owned(),
            index,
            rows,
        });
    }
    Ok(())
}
