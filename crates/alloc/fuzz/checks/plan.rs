//! What must hold for any text as a saved memory plan: it is refused, or it is sound and survives being saved again. The fuzz
//! target and a bounded test share it.

use std::sync::Arc;

use orlop_alloc::{
    ArenaId, ArenaInfo, Flags, OverwritePair, SavedMemoryPlan, StepView, Unread, Usage, ValueId, ValueInfo,
};

/// A chain of three values, one in place of another, and a view.
pub(crate) fn usage() -> Arc<Usage> {
    let arena = ArenaInfo { name: "arena".to_owned(), alignment: 32, max_chunk: u64::MAX };
    let mut usage = Usage::new(vec![arena], Unread::LivesOn);
    let mut value = |name: &str, root: usize, offset: u64, bytes: u64| {
        let info = ValueInfo {
            bytes,
            root: ValueId::new(root),
            offset,
            layout: bytes as u32,
            flags: Flags::default(),
        };
        usage.push_value(name, info)
    };
    let [x, y, part, z] =
        [value("x", 0, 0, 64), value("y", 1, 0, 64), value("part", 1, 32, 32), value("z", 3, 0, 128)];
    usage.leaves.push((x, ArenaId::new(0)));
    let over = [OverwritePair { write: 0, read: 0 }];
    for (group, (reads, write, overwrites)) in [([x], y, &over[..]), ([part], z, &[])].iter().enumerate() {
        let (group, arena) = (group as u32, ArenaId::new(0));
        usage.push_step(StepView { arena, group, reads, writes: &[*write], overwrites });
    }
    Arc::new(usage)
}

/// Opens a saved plan; whether it was taken.
///
/// # Panics
/// If a plan is taken that is not sound.
pub(crate) fn open(bytes: &[u8]) -> bool {
    let Ok(saved) = serde_json::from_slice::<SavedMemoryPlan>(bytes) else { return false };
    match saved.clone().open(&usage()) {
        Ok(plan) => {
            plan.check().expect("a sound plan");
            assert_eq!(SavedMemoryPlan::new(&plan), saved);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}
