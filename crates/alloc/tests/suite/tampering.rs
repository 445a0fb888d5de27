//! Changed plans are told from sound ones.

use std::sync::Arc;

use orlop_alloc::{
    ArenaId, ArenaOffset, Flaw, MemoryPlan, OverwritePair, PlanOptions, PlannedStorage, SavedMemoryPlan,
    SavedMemoryPlanError, StepView, Unread, ValueId, plan_memory,
};

use crate::support::Foreign;

/// `y` takes the place of `x`, `z` lies beside it.
fn sound() -> (MemoryPlan, [ValueId; 3]) {
    let mut g = Foreign::new(Unread::LivesOn);
    let x = g.leaf("x", 64);
    let [y, z] = ["y", "z"].map(|name| g.value(name, 64));
    g.step_with(&[x], &[y], &[0]);
    g.step(&[y], &[z]);
    let plan = plan_memory(&g.done(), &PlanOptions::default()).expect("it can be planned");
    plan.check().expect("it is sound");
    (plan, [x, y, z])
}

fn changed(change: impl FnOnce(&mut MemoryPlan)) -> Flaw {
    let (mut plan, _) = sound();
    change(&mut plan);
    plan.check().expect_err("it was changed")
}

#[test]
fn a_moved_storage_is_noticed() {
    let flaw = changed(|plan| plan.storages[0].place.offset += 32);
    assert!(matches!(flaw, Flaw::Misplaced { .. }), "{flaw}");
}

#[test]
fn a_shortened_life_is_noticed() {
    let flaw = changed(|plan| plan.storages[0].live.end -= 1);
    assert!(matches!(flaw, Flaw::Misplaced { .. }), "{flaw}");
}

#[test]
fn a_life_that_is_none_of_the_steps_is_noticed() {
    for live in [0..3, 0..usize::MAX, 1..1] {
        let flaw = changed(|plan| plan.storages[0].live = live.clone());
        assert!(matches!(flaw, Flaw::Malformed { .. }), "{live:?}: {flaw}");
    }
}

#[test]
fn a_storage_of_nothing_is_noticed() {
    let flaw = changed(|plan| {
        let place = ArenaOffset { arena: ArenaId::new(7), ..plan.storages[0].place };
        plan.storages.push(PlannedStorage { place, values: Vec::new(), ..plan.storages[0].clone() });
    });
    assert!(matches!(flaw, Flaw::Malformed { .. }), "{flaw}");
}

#[test]
fn a_lost_storage_is_noticed() {
    let flaw = changed(|plan| drop(plan.storages.pop()));
    assert!(matches!(flaw, Flaw::Misplaced { .. }), "{flaw}");
}

#[test]
fn a_cut_chunk_is_noticed() {
    let flaw = changed(|plan| {
        plan.arenas[0].chunks[0] -= 32;
        plan.arenas[0].peak -= 32;
    });
    assert!(matches!(flaw, Flaw::Outside { chunk: 96, end: 128, .. }), "{flaw}");
    let flaw = changed(|plan| plan.arenas[0].chunks[0] -= 32);
    assert!(matches!(flaw, Flaw::Malformed { .. }), "{flaw}");
}

#[test]
fn sharing_without_a_decision_is_an_overlap() {
    let flaw = changed(|plan| plan.decisions.clear());
    assert!(
        matches!(&flaw, Flaw::Overlap { first, second, step: 0 } if first == "x" && second == "y"),
        "{flaw}"
    );
}

#[test]
fn taking_what_a_later_member_of_the_group_reads_is_noticed() {
    let group = |second_reads_x: bool| {
        let mut g = Foreign::new(Unread::LivesOn);
        let x = g.leaf("x", 64);
        let [a, b] = ["a", "b"].map(|name| g.value(name, 64));
        let overwrites = [OverwritePair { write: 0, read: 0 }];
        for (read, write) in [(x, a), (if second_reads_x { x } else { a }, b)] {
            let (reads, writes) = (&[read], &[write]);
            g.0.push_step(StepView {
                arena: ArenaId::new(0),
                group: 0,
                reads,
                writes,
                overwrites: &overwrites,
            });
        }
        g.done()
    };
    let mut plan = plan_memory(&group(false), &PlanOptions::default()).unwrap();
    plan.check().unwrap();
    assert_eq!(plan.total(), 64);
    plan.usage = group(true);
    let taken = Flaw::BadShare { value: "a".to_owned(), operand: "x".to_owned() };
    assert_eq!(plan.check(), Err(taken));
}

#[test]
fn chunks_above_the_limit_must_be_marked() {
    let flaw = changed(|plan| Arc::make_mut(&mut plan.usage).arenas[0].max_chunk = 64);
    assert!(matches!(flaw, Flaw::ChunkTooLarge { bytes: 128, max: 64, .. }), "{flaw}");
}

#[test]
fn another_alignment_is_noticed() {
    let flaw = changed(|plan| Arc::make_mut(&mut plan.usage).arenas[0].alignment = 4096);
    assert!(matches!(flaw, Flaw::Misaligned { offset: 64, .. }), "{flaw}");
}

#[test]
fn a_plan_of_something_else_is_no_plan() {
    for change in [
        (|plan| plan.arenas.clear()) as fn(&mut MemoryPlan),
        |plan| Arc::make_mut(&mut plan.usage).arenas.clear(),
        |plan| plan.decisions[0].step = 99,
        |plan| plan.decisions[0].operand = ValueId::new(99),
        |plan| plan.storages[0].values.push(ValueId::new(99)),
        |plan| plan.usage = Arc::default(),
    ] {
        let flaw = changed(change);
        assert!(matches!(flaw, Flaw::Malformed { .. }), "{flaw}");
    }
}

#[cfg(feature = "serde")]
mod json {
    use super::*;
    use serde_json::{Value, json};

    fn read(change: impl FnOnce(&mut Value)) -> Result<(), Flaw> {
        let mut json = serde_json::to_value(sound().0).expect("it is plain data");
        change(&mut json);
        serde_json::from_value::<MemoryPlan>(json).expect("it has the right shape").check()
    }

    #[test]
    fn a_plan_survives_being_written_and_read() {
        let (plan, _) = sound();
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<MemoryPlan>(&text).unwrap(), plan);
    }

    #[test]
    fn a_value_moved_onto_another_is_noticed() {
        let overlap = read(|json| {
            json["places"][2]["offset"] = json!(0);
            for storage in json["storages"].as_array_mut().unwrap() {
                if storage["values"] == json!([2]) {
                    storage["place"]["offset"] = json!(0);
                }
            }
        });
        assert!(matches!(overlap, Err(Flaw::Overlap { step: 1, .. })), "{overlap:?}");
    }

    #[test]
    fn a_place_that_is_nowhere_is_noticed() {
        let lost = read(|json| json["places"][2] = Value::Null);
        assert!(matches!(lost, Err(Flaw::Misplaced { .. })), "{lost:?}");
        let nowhere = read(|json| json["places"][2]["arena"] = json!(7));
        assert!(matches!(nowhere, Err(Flaw::Malformed { .. })), "{nowhere:?}");
        let beyond = read(|json| {
            json["places"][2]["offset"] = json!(u64::MAX - 31);
            for storage in json["storages"].as_array_mut().unwrap() {
                if storage["values"] == json!([2]) {
                    storage["place"]["offset"] = json!(u64::MAX - 31);
                }
            }
        });
        assert!(matches!(beyond, Err(Flaw::Outside { end: u64::MAX, .. })), "{beyond:?}");
    }

    #[test]
    fn lists_that_do_not_belong_together_are_no_usage() {
        for (list, end) in
            [("reads", "reads_end"), ("writes", "writes_end"), ("overwrites", "overwrites_end")]
        {
            let short = read(|json| json["usage"][list] = json!([]));
            assert!(matches!(short, Err(Flaw::Malformed { .. })), "{short:?}");
            let back = read(|json| json["usage"]["steps"][0][end] = json!(1000));
            assert!(matches!(back, Err(Flaw::Malformed { .. })), "{back:?}");
        }
        let nameless = read(|json| json["usage"]["names"] = json!([]));
        assert!(matches!(nameless, Err(Flaw::Malformed { .. })), "{nameless:?}");
    }
}

#[test]
fn a_saved_plan_opens_for_its_own_graph_only() {
    let (plan, _) = sound();
    let saved = SavedMemoryPlan::new(&plan);
    assert_eq!(saved.clone().open(&plan.usage).expect("it is the same graph"), plan);
    let mut g = Foreign::new(Unread::LivesOn);
    let x = g.leaf("x", 64);
    let [y, z] = ["y", "z"].map(|name| g.value(name, 64));
    g.step(&[x], &[y]);
    g.step(&[y], &[z]);
    let other = g.done();
    let refused = saved.clone().open(&other).expect_err("nothing may be done in place there");
    let (planned, given) = (plan.usage.signature(), other.signature());
    assert_eq!(refused, SavedMemoryPlanError::Other { planned, given });
    let cut = SavedMemoryPlan { places: saved.places[..2].to_vec(), ..saved.clone() };
    assert!(matches!(
        cut.open(&plan.usage),
        Err(SavedMemoryPlanError::Incomplete { found: 2, expected: 3, .. })
    ));
    for edit in [
        |saved: &mut SavedMemoryPlan| saved.storages[0].live.end = 99,
        |saved: &mut SavedMemoryPlan| saved.storages[0].values.clear(),
    ] {
        let mut edited = saved.clone();
        edit(&mut edited);
        assert!(matches!(
            edited.open(&plan.usage),
            Err(SavedMemoryPlanError::Damaged(Flaw::Malformed { .. }))
        ));
    }
    let mut moved = saved;
    moved.storages[0].place.offset += 32;
    assert!(matches!(moved.open(&plan.usage), Err(SavedMemoryPlanError::Damaged(Flaw::Misplaced { .. }))));
}
