//! Memory against added time, for `--html`.

use orlop::alloc::{PlanOptions, plan_within};
use orlop::view::TradeOff;

use crate::graph_file::GraphCase;

/// Capacities between the floor and the peak that are planned for.
const POINTS: u64 = 12;

/// Plans within capacities from `peak` down to `floor`; none for graphs of several buffers, to which no steps are added.
pub(super) fn trade_offs(case: &GraphCase, peak: u64, floor: u64) -> Vec<TradeOff> {
    let given: f64 = case.facts.seconds.iter().sum();
    if case.usage.arenas.len() != 1 || floor >= peak || given <= 0.0 {
        return Vec::new();
    }
    let capacity = |point: u64| peak - (peak - floor) / POINTS * point;
    let planned = (1..=POINTS).filter_map(|point| {
        let made = plan_within(&case.usage, capacity(point), &case.facts, &PlanOptions::default()).ok()?;
        Some(TradeOff { bytes: made.plan.total(), added_time: made.cost.seconds() / given })
    });
    std::iter::once(TradeOff { bytes: peak, added_time: 0.0 }).chain(planned).collect()
}
