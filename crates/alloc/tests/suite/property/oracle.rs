//! The plainest check of a plan: every pair of values, every step.

use orlop_alloc::{MemoryPlan, Unread, Usage, ValueId};

/// Steps at which a root must be in memory, the last included.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Life {
    first: usize,
    last: usize,
}

fn ids(usage: &Usage) -> impl Iterator<Item = ValueId> {
    (0..usage.values().len()).map(ValueId::new)
}

fn touches(usage: &Usage, step: usize, root: ValueId) -> bool {
    reads(usage, step, root) || writes(usage, step, root)
}

/// A marker is written without touching anything.
fn writes(usage: &Usage, step: usize, root: ValueId) -> bool {
    let has_contents = |id: ValueId| id == root || !usage.value(id).flags.marker;
    usage.step(step).writes.iter().any(|id| usage.value(*id).root == root && has_contents(*id))
}

fn reads(usage: &Usage, step: usize, root: ValueId) -> bool {
    usage.step(step).reads.iter().any(|id| usage.value(*id).root == root)
}

fn last_of_group(usage: &Usage, step: usize) -> usize {
    let group = usage.groups().find(|group| group.contains(&step)).expect("every step is in a group");
    group.end - 1
}

fn life(usage: &Usage, root: ValueId) -> Option<Life> {
    let steps = usage.step_count();
    let end = steps.max(1) - 1;
    let leaf = usage.leaves.iter().any(|(id, _)| *id == root);
    let touched: Vec<usize> = (0..steps).filter(|step| touches(usage, *step, root)).collect();
    if touched.is_empty() && !leaf {
        return None;
    }
    let flags = usage.value(root).flags;
    let first = if leaf || flags.input { 0 } else { touched[0] };
    let last = match touched.last() {
        Some(last) => last_of_group(usage, *last),
        None if steps > 0 => last_of_group(usage, 0),
        None => 0,
    };
    let ever_read = (0..steps).any(|step| reads(usage, step, root));
    let unread_view = ids(usage).any(|id| {
        let value = usage.value(id);
        value.root == root
            && id != root
            && !value.flags.marker
            && usage.steps().any(|step| step.writes.contains(&id))
            && !usage.steps().any(|step| step.reads.contains(&id))
    });
    let kept = flags.output || (usage.unread == Unread::LivesOn && (!ever_read || unread_view));
    Some(Life { first, last: if kept { end } else { last } })
}

/// Whether `new` may take over from `old`, and at which step it does.
fn handed_over(usage: &Usage, old: ValueId, new: ValueId) -> Result<usize, String> {
    let step = (0..usage.step_count())
        .find(|step| usage.step(*step).writes.contains(&new))
        .ok_or_else(|| format!("{new:?} is never written"))?;
    let flags = usage.value(old).flags;
    let natural = life(usage, old).ok_or("what was never there cannot be taken")?;
    let later = (step + 1..usage.step_count()).any(|later| touches(usage, later, old));
    if flags.output || flags.external || later || natural.last != last_of_group(usage, step) {
        return Err(format!("{old:?} is needed after step {step}"));
    }
    let at = usage.step(step);
    if writes(usage, step, old) {
        return Err(format!("step {step} writes {old:?}"));
    }
    let slots = at.reads.iter().enumerate().filter(|(_, id)| usage.value(**id).root == old);
    let mut any = false;
    for (slot, id) in slots {
        let offered = at
            .overwrites
            .iter()
            .any(|pair| pair.read as usize == slot && at.writes[pair.write as usize] == new);
        let read = usage.value(*id);
        if !offered || read.offset != 0 || read.layout != usage.value(new).layout {
            return Err(format!("{new:?} may not overwrite {id:?}"));
        }
        any = true;
    }
    if any { Ok(step) } else { Err(format!("step {step} does not read {old:?}")) }
}

/// Lives, cut short where a result took over.
fn lives(plan: &MemoryPlan) -> Result<Vec<Option<(usize, usize)>>, String> {
    let usage = &*plan.usage;
    let mut lives: Vec<Option<(usize, usize)>> = ids(usage)
        .map(|id| {
            let root = usage.value(id).root == id;
            life(usage, id).filter(|_| root).map(|life| (life.first, life.last + 1))
        })
        .collect();
    for storage in &plan.storages {
        for pair in storage.values.windows(2) {
            let step = handed_over(usage, pair[0], pair[1])?;
            if let Some((_, end)) = &mut lives[pair[0].index()] {
                *end = step;
            }
        }
    }
    Ok(lives)
}

/// No two values meet, and each lies in its chunk.
pub(crate) fn naive_overlaps(plan: &MemoryPlan) -> Result<(), String> {
    let usage = &*plan.usage;
    let lives = lives(plan)?;
    for a in ids(usage).filter(|id| usage.value(*id).root == *id) {
        let (Some(place), bytes) = (plan.place(a), usage.value(a).bytes) else { continue };
        let chunk = plan.arenas[place.arena.index()].chunks.get(place.chunk as usize).copied().unwrap_or(0);
        if bytes > 0 && place.offset + bytes > chunk {
            return Err(format!("{a:?} ends outside its chunk"));
        }
        for b in (a.index() + 1..usage.values().len()).map(ValueId::new) {
            if usage.value(b).root != b {
                continue;
            }
            let (Some(other), more) = (plan.place(b), usage.value(b).bytes) else { continue };
            let (Some(one), Some(two)) = (lives[a.index()], lives[b.index()]) else { continue };
            let together = one.0.max(two.0) < one.1.min(two.1);
            let same_chunk = (place.arena, place.chunk) == (other.arena, other.chunk);
            let meet = place.offset.max(other.offset) < (place.offset + bytes).min(other.offset + more);
            if together && same_chunk && meet {
                return Err(format!("{a:?} and {b:?} meet"));
            }
        }
    }
    Ok(())
}

/// All that can be said of a plan by looking at everything.
pub(crate) fn naive_check(plan: &MemoryPlan) -> Result<(), String> {
    let usage = &*plan.usage;
    for id in ids(usage) {
        let value = usage.value(id);
        if value.root != id {
            let root = plan.place(value.root);
            let expected = root.map(|root| (root.arena, root.chunk, root.offset + value.offset));
            if plan.place(id).map(|place| (place.arena, place.chunk, place.offset)) != expected {
                return Err(format!("{id:?} does not lie in its root"));
            }
            continue;
        }
        let needs = life(usage, id).is_some() && !value.flags.external;
        match plan.place(id) {
            None if needs => return Err(format!("{id:?} has no place")),
            Some(_) if value.flags.external => return Err(format!("{id:?} is external")),
            Some(place) => {
                let alignment = usage.arenas[place.arena.index()].alignment;
                if !place.offset.is_multiple_of(alignment) {
                    return Err(format!("{id:?} is not aligned"));
                }
                let homes: Vec<_> =
                    plan.storages.iter().filter(|storage| storage.values.contains(&id)).collect();
                let [home] = homes[..] else {
                    return Err(format!("{id:?} lies in {} storages", homes.len()));
                };
                let life = life(usage, id).unwrap_or(Life { first: home.live.start, last: home.live.start });
                if home.place != place || home.live.start > life.first || home.live.end <= life.last {
                    return Err(format!("the storage of {id:?} is not its own"));
                }
            }
            None => {}
        }
    }
    for (info, arena) in usage.arenas.iter().zip(&plan.arenas) {
        for (chunk, bytes) in arena.chunks.iter().enumerate() {
            if *bytes > info.max_chunk && !arena.oversize.contains(&(chunk as u32)) {
                return Err(format!("chunk {chunk} of {} is too large", info.name));
            }
        }
    }
    naive_overlaps(plan)
}
