//! Copies of expert matrices: only those that a batch uses travel.

use std::ops::RangeInclusive;

use super::copies::CopiedTensor;
use super::devices::Devices;
use super::graph::ScheduledGraph;
use super::place::OpKind;
use super::split::GraphSplit;
use crate::raw::{RawGraphView, TensorRef};

/// Bytes after a matrix that some kernels read, which must not be NaN.
const PADDING: usize = 512;

/// Copies the matrices that the first node of a split uses; `false` if that does not apply.
pub(crate) fn copy_experts(
    devices: &Devices,
    graph: &ScheduledGraph,
    split: &GraphSplit,
    view: &RawGraphView,
    copied: &CopiedTensor,
) -> bool {
    if view.n_nodes == 0 || !graph.is_host_weight(copied.original) {
        return false;
    }
    // SAFETY: the read asks for an entry of the list: a view has `n_nodes`.
    let node = unsafe { view.nodes.read() };
    // SAFETY: `TensorRef::new` asks for null or a tensor of the graph that runs: nodes are.
    let Some(node) = (unsafe { TensorRef::new(node) }) else { return false };
    let [matrices, _, ids, ..] = node.sources();
    let (Some(matrices), Some(ids)) = (matrices, ids) else { return false };
    if matrices != copied.copy || devices.kind_of(node.op()) != OpKind::Experts {
        return false;
    }
    // If the ids are copied, too, the copy may come later.
    let of_copy = graph.copies.copies[split.copies.clone()].iter().find(|other| other.copy == ids);
    let ids = of_copy.map_or(ids, |other| other.original);
    let Some(used) = used_experts(devices, graph, split, ids, copied.original) else { return false };
    let (_, ne, nb) = copied.original.layout();
    let (count, bytes) = (ne[2] as usize, nb[2]);
    for experts in runs(&used) {
        let (start, end) = (experts.start() * bytes, (experts.end() + 1) * bytes);
        let padding = if experts.end() + 1 < count { bytes.min(PADDING) } else { 0 };
        let from = copied.original.data().wrapping_byte_add(start).cast_const();
        let backend = devices.backends[split.backend];
        devices.functions.tensor_set_async(backend, copied.copy.as_ptr(), from, start, end - start + padding);
    }
    true
}

/// Which matrices are named; `None` if a number is none of theirs.
fn used_experts(
    devices: &Devices,
    graph: &ScheduledGraph,
    split: &GraphSplit,
    ids: TensorRef,
    matrices: TensorRef,
) -> Option<Vec<bool>> {
    let functions = devices.functions;
    let home = |tensor: TensorRef| devices.backends[graph.home(tensor).unwrap_or(split.backend)];
    functions.synchronize(home(matrices));
    let (_, [columns, rows, ..], [step, row, ..]) = ids.layout();
    let (columns, rows) = (usize::try_from(columns).ok()?, usize::try_from(rows).ok()?);
    let bytes = graph.bytes(ids);
    let mut numbers = vec![0i32; bytes.div_ceil(size_of::<i32>())];
    functions.tensor_get_async(home(ids), ids.as_ptr(), numbers.as_mut_ptr().cast(), 0, bytes);
    functions.synchronize(home(ids));
    let mut used = vec![false; usize::try_from(matrices.layout().1[2]).ok()?];
    for (row_index, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let at = (row_index * row + column * step) / size_of::<i32>();
        let expert = usize::try_from(*numbers.get(at)?).ok()?;
        *used.get_mut(expert)? = true;
    }
    Some(used)
}

/// Runs of neighbours that are used.
fn runs(used: &[bool]) -> Vec<RangeInclusive<usize>> {
    let mut runs: Vec<RangeInclusive<usize>> = Vec::new();
    for expert in (0..used.len()).filter(|expert| used[*expert]) {
        match runs.last_mut() {
            Some(run) if *run.end() + 1 == expert => *run = *run.start()..=expert,
            _ => runs.push(expert..=expert),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn neighbours_are_copied_together() {
        assert_eq!(runs(&[true, true, false, true]), [0..=1, 3..=3]);
        assert_eq!(runs(&[false, false]), []);
    }
}
