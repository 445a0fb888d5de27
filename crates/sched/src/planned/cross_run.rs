//! What a run waits for of the run before it.

use std::collections::HashMap;

use orlop_graph::{Graph, Leaf, TensorId};

use crate::planned::memory::Domains;
use crate::{DeviceId, Placement, Schedule, SplitId};

/// What a run waits for of the run before it, where both are in flight: memory that the one still reads must not be
/// written by the next. Queues keep each device's own work in order, so only the first split of a device waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrossRunWait {
    /// The split of the later run.
    pub(crate) split: SplitId,
    /// The split of the earlier one.
    pub(crate) earlier: SplitId,
    /// Whether its transfers are enough, or all of it.
    pub(crate) copies_only: bool,
}

/// Storage as two runs share it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Shared {
    /// All that lies in one arena.
    Arena(usize),
    /// A leaf that keeps its contents between runs.
    Kept(TensorId),
}

/// How a device uses a storage in one run.
#[derive(Clone, Copy)]
struct Use {
    /// The last split that touches it, and whether only its transfers do.
    last: SplitId,
    copies_only: bool,
    writes: bool,
}

pub(crate) fn cross_run_waits(
    graph: &Graph,
    domains: &Domains,
    placement: &Placement,
    schedule: &Schedule,
) -> Vec<CrossRunWait> {
    let mut uses: HashMap<(Shared, DeviceId), Use> = HashMap::new();
    let mut touch = |storage: Shared, split: SplitId, by_copy: bool, writes: bool| {
        let device = schedule[split].device;
        let known =
            uses.entry((storage, device)).or_insert(Use { last: split, copies_only: by_copy, writes: false });
        if known.last != split {
            (known.last, known.copies_only) = (split, by_copy);
        }
        known.copies_only &= by_copy;
        known.writes |= writes;
    };
    let storage = |tensor: TensorId| {
        let root = graph.tensor(tensor).storage.root;
        match graph.root_leaf(root) {
            Some(Leaf::Weight) => None,
            Some(Leaf::State | Leaf::Persistent) => Some(Shared::Kept(root)),
            Some(Leaf::Input) | None => {
                placement.home(graph, root).map(|home| Shared::Arena(domains.of(home)))
            }
        }
    };
    for (id, split) in schedule.ids().zip(&schedule.splits) {
        for transfer in
            split.transfers.iter().map(|transfer| &schedule[*transfer]).filter(|transfer| !transfer.constant)
        {
            storage(transfer.root).into_iter().for_each(|storage| touch(storage, id, true, false));
        }
        // Transfers, temporaries and results are written in the device's own arena.
        touch(Shared::Arena(domains.of(split.device)), id, false, true);
        for node in split.nodes.iter().map(|node| graph.node(*node)) {
            for input in node.inputs.iter().filter(|input| !split.reads_transfer.contains_key(input)) {
                storage(*input).into_iter().for_each(|storage| touch(storage, id, false, false));
            }
            storage(node.output).into_iter().for_each(|storage| touch(storage, id, false, true));
        }
    }
    let mut first: HashMap<DeviceId, SplitId> = HashMap::new();
    for (id, split) in schedule.ids().zip(&schedule.splits) {
        first.entry(split.device).or_insert(id);
    }
    let mut found: Vec<CrossRunWait> = Vec::new();
    for ((storage, earlier_device), earlier) in &uses {
        for (device, split) in &first {
            let Some(later) = uses.get(&(*storage, *device)).filter(|_| device != earlier_device) else {
                continue;
            };
            // What is read from another's arena was written there in the same run, or belongs to that run alone.
            let in_arena = matches!(storage, Shared::Arena(_));
            if later.writes || (earlier.writes && !in_arena) {
                let Use { last, copies_only, .. } = *earlier;
                found.push(CrossRunWait { split: *split, earlier: last, copies_only });
            }
        }
    }
    found.sort_unstable_by_key(|wait| (wait.split, wait.earlier, wait.copies_only));
    found.dedup_by_key(|wait| (wait.split, wait.earlier));
    found
}
