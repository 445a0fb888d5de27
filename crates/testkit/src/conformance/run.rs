//! Runs a case on a device: unplanned, planned, and with weights in memory of the device.

use std::sync::Arc;

use orlop_backend::{
    BufferType, Device, DeviceError, LowerOptions, MemoryLayout, Reason, Role, RunOptions, Segment, Support,
    same_type,
};
use orlop_graph::{Graph, Leaf, NodeId, TensorId};
use orlop_sched::{Error, SessionOptions};

use super::judge::{Judge, first_difference};
use super::{Case, CaseFailure, Outcome, Way};
use crate::planned::{PlannedOptions, run_planned};
use crate::{Feeds, Interpreter, Observe, UnplannedOptions, kept, run_unplanned_with};

/// Choices of a conformance run.
#[derive(Clone, Debug, Default)]
pub struct ConformanceOptions {
    /// How graphs are lowered.
    pub lower: LowerOptions,
    /// How they are run.
    pub run: RunOptions,
}

/// Runs one case on a device in every way there is, and judges the results.
pub fn run(device: &Arc<dyn Device>, case: &Case, options: &ConformanceOptions) -> Outcome {
    match judged(device, case, options) {
        Ok(outcome) => outcome,
        Err(failure) => Outcome::Failed(failure),
    }
}

fn judged(
    device: &Arc<dyn Device>,
    case: &Case,
    options: &ConformanceOptions,
) -> Result<Outcome, CaseFailure> {
    let graph = case.graph();
    let Some(arena) = device.buffer_types(Role::Arena).first() else {
        return Err(not_run(Way::Unplanned)(Error::NoArena { device: device.name().to_owned() }));
    };
    if let Err((op, reason)) = supported(device, graph, arena, arena) {
        return Ok(Outcome::Unsupported { op, reason });
    }
    let feeds = case.feeds().map_err(CaseFailure::Feeds)?;
    let reference = interpreted(graph, &feeds).map_err(CaseFailure::Reference)?;
    let judge = Judge {
        case,
        reference: &reference,
        class: device.facts().class,
        precision: options.lower.precision,
    };

    let unplanned = run_alone(device, graph, &feeds, options).map_err(not_run(Way::Unplanned))?;
    let mut worst = judge_all(&judge, Way::Unplanned, &unplanned)?;

    let mut planned_options = PlannedOptions {
        session: SessionOptions { lower: options.lower.clone(), ..SessionOptions::default() },
        run: options.run.clone(),
        weights: None,
    };
    let planned = run_planned(device, graph, &feeds, &planned_options).map_err(not_run(Way::Planned))?;
    worst = worst.max(judge_all(&judge, Way::Planned, &planned)?);
    if let Some(((tensor, a), (_, b))) = unplanned.iter().zip(&planned).find(|((_, a), (_, b))| a != b) {
        let tensor = graph.tensor(*tensor).name.clone();
        return Err(CaseFailure::PlanMatters { tensor, byte: first_difference(a, b) });
    }

    for weights in own_weight_types(device, graph, arena) {
        planned_options.weights = Some(weights);
        let repacked =
            run_planned(device, graph, &feeds, &planned_options).map_err(not_run(Way::Repacked))?;
        worst = worst.max(judge_all(&judge, Way::Repacked, &repacked)?);
    }
    Ok(Outcome::Passed { error: worst })
}

fn not_run(way: Way) -> impl Fn(Error) -> CaseFailure {
    move |source| CaseFailure::NotRun { way, source: Box::new(source) }
}

fn judge_all(judge: &Judge<'_>, way: Way, found: &Feeds) -> Result<f64, CaseFailure> {
    found.iter().try_fold(0.0, |worst, (tensor, bytes)| Ok(judge.check(way, *tensor, bytes)?.max(worst)))
}

/// The first node that a device refuses, if the graph's weights lie in one kind of memory and all else in
/// another.
fn supported(
    device: &Arc<dyn Device>,
    graph: &Graph,
    arena: &Arc<dyn BufferType>,
    weights: &Arc<dyn BufferType>,
) -> Result<(), (String, Reason)> {
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let buffer_type = |id: TensorId| match graph.root_leaf(id) {
        Some(Leaf::Weight) => Some(Arc::clone(weights)),
        _ => Some(Arc::clone(arena)),
    };
    let buffer_types: Vec<_> = graph.tensor_ids().map(buffer_type).collect();
    let escapes = vec![false; buffer_types.len()];
    let segment = Segment { graph, nodes: &nodes, buffer_types: &buffer_types, escapes: &escapes };
    for node in &nodes {
        if let Support::No(reason) = segment.support(&**device, *node) {
            return Err((graph.node(*node).op.name().to_owned(), reason));
        }
    }
    Ok(())
}

/// Kinds of memory, other than the arena's, in which the device takes the graph's weights.
fn own_weight_types(
    device: &Arc<dyn Device>,
    graph: &Graph,
    arena: &Arc<dyn BufferType>,
) -> Vec<Arc<dyn BufferType>> {
    let weights: Vec<TensorId> =
        graph.leaves().filter(|(_, leaf)| *leaf == Leaf::Weight).map(|(id, _)| id).collect();
    // A private layout takes whole tensors without gaps.
    let gapless = weights.iter().all(|id| graph.tensor(*id).desc.is_contiguous());
    let fits = |buffer_type: &&Arc<dyn BufferType>| {
        !weights.is_empty()
            && !same_type(buffer_type, arena)
            // Memory that the device did not allocate, such as a mapped file, cannot be asked for.
            && buffer_type.max_bytes() > 0
            && (gapless || buffer_type.layout() == MemoryLayout::Plain)
            && supported(device, graph, arena, buffer_type).is_ok()
    };
    device.buffer_types(Role::Weight).iter().filter(fits).cloned().collect()
}

fn interpreted(graph: &Graph, feeds: &Feeds) -> Result<Interpreter, DeviceError> {
    let mut interpreter = Interpreter::new(graph)?;
    for (leaf, bytes) in feeds {
        interpreter.set(*leaf, bytes)?;
    }
    interpreter.run()?;
    Ok(interpreter)
}

fn run_alone(
    device: &Arc<dyn Device>,
    graph: &Graph,
    feeds: &Feeds,
    options: &ConformanceOptions,
) -> Result<Feeds, Error> {
    // Only results are observed, so that both runs are lowered alike.
    let options = UnplannedOptions {
        lower: options.lower.clone(),
        run: options.run.clone(),
        observe: Observe::Results,
    };
    let outputs = run_unplanned_with(device, graph, feeds, &options)?;
    kept(graph).into_iter().map(|id| Ok((id, outputs.bytes(id)?))).collect()
}
