//! Pictures of the plans of models: weights, caches, and the activations of a run.

use std::sync::Arc;

use orlop_alloc::{MemoryPlan, ValueId};
use orlop_graph::{Graph, Leaf, Origin as TensorOrigin};
use orlop_llm::{Blueprint, Error, StoredKind, StoredSet};
use orlop_sched::{ArenaStep, DeviceId, Machine, Planned, ValueOrigin};
use orlop_view::{Block, Kind, Labels, Picture, Region, RegionKind};

/// A model's memory during a batch, and during a single token.
///
/// # Errors
/// What devices refuse.
pub fn pictures(blueprint: &Blueprint, name: &str) -> Result<[Picture; 2], Error> {
    pictures_with(blueprint, name, &|plan| Ok(Arc::clone(plan)))
}

/// Gives the memory plan to draw in place of another one.
pub type Replace<'a, E> = dyn Fn(&Arc<MemoryPlan>) -> Result<Arc<MemoryPlan>, E> + 'a;

/// As [`pictures`], with each memory plan replaced by another one, such as a saved plan of the same graph.
///
/// # Errors
/// What devices refuse, and what `replace` returns.
pub fn pictures_with<E: From<Error>>(
    blueprint: &Blueprint,
    name: &str,
    replace: &Replace<'_, E>,
) -> Result<[Picture; 2], E> {
    let (context, batch) = (blueprint.context(), blueprint.batch());
    let of_batch = format!("{name}, a batch of {batch} tokens, context {context}");
    let of_token = format!("{name}, one token, context {context}");
    let (graph, planned) = blueprint.planned_batch();
    let first = picture(blueprint, graph, planned, &of_batch, replace)?;
    let (graph, planned) = blueprint.planned_token();
    Ok([first, picture(blueprint, graph, planned, &of_token, replace)?])
}

fn picture<E: From<Error>>(
    blueprint: &Blueprint,
    graph: &Graph,
    planned: &Planned,
    title: &str,
    replace: &Replace<'_, E>,
) -> Result<Picture, E> {
    let machine = blueprint.machine();
    let count = planned.step_count().max(1);
    let mut picture = Picture {
        title: title.to_owned(),
        note: "weights, KV cache, and the activations of a run".to_owned(),
        steps: count as u64,
        step_names: vec![String::new(); count],
        ..Picture::default()
    };
    let mut done: Vec<Arc<MemoryPlan>> = Vec::new();
    for device in machine.indices() {
        let plan = planned.memory_plan(machine, device);
        // Devices that share memory share plans.
        if done.iter().any(|known| Arc::ptr_eq(known, plan)) {
            continue;
        }
        done.push(Arc::clone(plan));
        let arena = ArenaPicture { graph, planned, machine, device };
        arena.add(&mut picture, &*replace(plan)?);
    }
    for set in blueprint.stored()? {
        add_stored(&mut picture, machine.name(set.device), &set);
    }
    add_kept_copies(&mut picture, machine, planned);
    Ok(picture)
}

struct ArenaPicture<'a> {
    graph: &'a Graph,
    planned: &'a Planned,
    machine: &'a Machine,
    device: DeviceId,
}

impl ArenaPicture<'_> {
    fn add(&self, picture: &mut Picture, plan: &MemoryPlan) {
        let ArenaPicture { graph, planned, machine, device } = *self;
        let steps = planned.arena_steps(machine, device);
        for step in &steps {
            picture.step_names[step.at] = self.step_name(step);
        }
        let at: Vec<u64> = steps.iter().map(|step| step.at as u64).collect();
        let origins = planned.origins(machine, device);
        let origin = |value: ValueId| origins.get(value.index()).copied().flatten();
        let tensor = |index: usize| graph.tensors().get(index);
        let kind = |value| match origin(value) {
            Some(ValueOrigin::Transfer(_)) => Kind::Copy,
            Some(ValueOrigin::Temporary { .. }) => Kind::Scratch,
            Some(ValueOrigin::Tensor { index }) => match tensor(index).map(|tensor| &tensor.origin) {
                Some(TensorOrigin::Leaf(Leaf::Input)) => Kind::Input,
                _ => Kind::Activation,
            },
            None => Kind::Activation,
        };
        let why = |value| match origin(value)? {
            ValueOrigin::Tensor { index } => match tensor(index)?.origin {
                TensorOrigin::Node(node) => {
                    let placed = planned.placement().node(node);
                    let name = machine.name(placed.device);
                    Some(format!("on {name}: {}", placed.why.text(graph, machine)))
                }
                _ => None,
            },
            ValueOrigin::Transfer(copy) => {
                Some(format!("copied to {}, which reads it", machine.name(planned.schedule()[copy].to)))
            }
            ValueOrigin::Temporary { .. } => Some("scratch memory of a kernel".to_owned()),
        };
        picture.add_plan(
            plan,
            &Labels {
                kind: &kind,
                step: &|_| String::new(),
                device: &why,
                arena: &|_| machine.name(device).to_owned(),
                at: &at,
            },
        );
    }

    fn step_name(&self, step: &ArenaStep) -> String {
        match (step.transfer, &step.nodes[..]) {
            (Some(copy), _) => format!("copy {}", self.planned.schedule()[copy].name),
            (None, []) => String::new(),
            (None, nodes @ [.., last]) => {
                let ops: Vec<&str> = nodes.iter().map(|node| self.graph.node(*node).op.name()).collect();
                let result = &self.graph.tensor(self.graph.node(*last).output).name;
                format!("{} {result}", ops.join(" + "))
            }
        }
    }
}

/// Memory that persists between runs.
fn add_stored(picture: &mut Picture, device: &str, set: &StoredSet) {
    let (region, kind, reason) = match set.kind {
        StoredKind::Weights => (RegionKind::Weights, Kind::Weight, "in the file's layout"),
        StoredKind::Repacked => (RegionKind::Repacked, Kind::Weight, "repacked for the device's kernels"),
        StoredKind::Cache => (RegionKind::Cache, Kind::Cache, "kept for all tokens of the context"),
    };
    let tensors =
        set.tensors.iter().map(|place| (place.name.as_str(), place.buffer, place.offset, place.bytes));
    add_region(picture, device, (region, kind, reason), tensors);
}

/// Copies of other devices' weights that stay on a device.
fn add_kept_copies(picture: &mut Picture, machine: &Machine, planned: &Planned) {
    for device in machine.indices() {
        let mut next = 0;
        let kept = planned.schedule().transfers.iter().filter(|copy| copy.resident && copy.to == device);
        let mut tensors = kept
            .map(|copy| {
                let offset = next;
                next += copy.room;
                (copy.name.as_str(), 0, offset, copy.room)
            })
            .peekable();
        if tensors.peek().is_some() {
            let reason = "a copy of another device's weight, kept within the budget";
            let what = (RegionKind::Weights, Kind::Copy, reason);
            add_region(picture, machine.name(device), what, tensors);
        }
    }
}

fn add_region<'a>(
    picture: &mut Picture,
    device: &str,
    (region, kind, reason): (RegionKind, Kind, &str),
    tensors: impl Iterator<Item = (&'a str, usize, u64, u64)>,
) {
    let mut chunks: Vec<u64> = Vec::new();
    for (name, chunk, offset, bytes) in tensors {
        chunks.resize(chunks.len().max(chunk + 1), 0);
        chunks[chunk] = chunks[chunk].max(offset + bytes);
        picture.blocks.push(Block {
            name: name.to_owned(),
            kind,
            region: picture.regions.len(),
            chunk,
            offset,
            bytes,
            live: 0..picture.steps,
            producer: None,
            consumers: Vec::new(),
            reason: reason.to_owned(),
            replaces: None,
            above: None,
        });
    }
    picture.regions.push(Region { device: device.to_owned(), kind: region, chunks, bound: None });
    picture.stack();
}
