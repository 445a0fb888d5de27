//! The device of each part of a model by predicted time, instead of as many layers as fit.
//!
//! A model planned whole on each device says what its parts take there: bytes of weights and caches, and seconds of steps.
//! [`ChainProblem::solve`] chooses, the model is planned so, and what does not fit to the byte is solved again with less
//! room.

use orlop_sched::{Alternative, ChainProblem, DeviceId, Expense, Machine, PartCost};

use crate::blueprint::Blueprint;
use crate::draft::ModelGraph;
use crate::{Error, LayerChoice, LayerPlacement, Model, ModelPart, Settings};

/// What a placement should be fast for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Tokens of a prompt. Default 512.
    pub prompt: u64,
    /// Tokens that are generated behind it. Default 128.
    pub generated: u64,
    /// Tokens in the context before. Default 0.
    pub depth: u64,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload { prompt: 512, generated: 128, depth: 0 }
    }
}

/// A device for a part of a model, and the next best one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartDecision {
    /// The part.
    pub part: ModelPart,
    /// Its device.
    pub device: DeviceId,
    /// The best other device that has room, and seconds of the workload that it would take more; all else equal.
    pub next_best: Option<(DeviceId, f64)>,
}

/// Why a model's parts are where they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementDecisions {
    /// Every part, in the model's order.
    pub parts: Vec<PartDecision>,
    /// Predicted seconds of the workload in the parts.
    pub seconds: f64,
    /// No placement of these parts takes less.
    pub bound: f64,
}

/// Labels that the search keeps for each part.
const WIDTH: usize = 64;
/// Plans until a placement fits to the byte.
const ATTEMPTS: usize = 4;

/// The parts of a model in order: experts are apart from the rest of their layer.
fn parts(model: &Model) -> Vec<ModelPart> {
    let layers = (0..model.config().layers.len())
        .flat_map(|layer| [ModelPart::Layer(layer), ModelPart::Experts(layer)]);
    [ModelPart::Input].into_iter().chain(layers).chain([ModelPart::Output]).collect()
}

/// Position among the parts.
fn position(part: ModelPart, parts: &[ModelPart]) -> usize {
    parts.binary_search(&part).unwrap_or(parts.len() - 1)
}

/// What a model takes whole on one device.
struct Whole {
    /// Of each part.
    costs: Vec<PartCost>,
    /// Bytes of the embedding table, if it is the output matrix, too.
    table: u64,
    /// The arena of runs.
    compute: u64,
    free: u64,
}

impl Whole {
    fn of(
        blueprint: &Blueprint,
        device: DeviceId,
        parts: &[ModelPart],
        work: &Workload,
    ) -> Result<Whole, Error> {
        let mut costs = vec![PartCost::default(); parts.len()];
        let mut table = 0;
        let tied = blueprint.model.file().tensor("output.weight").is_none();
        for (used, place) in blueprint.decode.graph.weights.iter().zip(&blueprint.weights) {
            let bytes = place.stored_bytes();
            costs[position(used.part, parts)].bytes += bytes;
            if tied && used.source == "token_embd.weight" {
                table = bytes;
            }
        }
        let graph = &blueprint.decode.graph;
        for cache in &graph.caches {
            let bytes = graph.graph.tensor(cache.tensor).desc.bytes();
            costs[position(ModelPart::Layer(cache.layer), parts)].bytes += bytes;
        }
        let (batch, runs) = (blueprint.batch(), work.prompt.div_ceil(blueprint.batch()));
        let planned = [
            (&blueprint.decode, work.generated as f64, work.depth + work.generated.div_ceil(2)),
            (&blueprint.prompt, runs as f64, work.depth + work.prompt.min(batch).div_ceil(2)),
        ];
        for (graph, times, seen) in planned {
            let of_tensors = parts_of_tensors(&graph.graph, parts);
            let mut spent = vec![(0.0f64, 0.0f64); parts.len()];
            for expense in graph.planned.expenses(&blueprint.machine, Some(seen)) {
                match expense {
                    Expense::Step { node, seconds } => {
                        let output = graph.graph.graph.node(node).output;
                        spent[of_tensors[output.index()]].0 += seconds;
                    }
                    Expense::Weight { leaf, seconds } => spent[of_tensors[leaf.index()]].1 += seconds,
                }
            }
            for (cost, (steps, weights)) in costs.iter_mut().zip(spent) {
                // Weights are brought while the part before computes.
                cost.seconds += times * f64::max(steps, weights);
            }
        }
        let share = blueprint.forecast()?.devices.swap_remove(device.index());
        Ok(Whole { costs, table, compute: share.compute, free: share.free.unwrap_or(u64::MAX) })
    }
}

/// The part of each tensor of a graph: that of its weight, or the last among its operands'.
fn parts_of_tensors(graph: &ModelGraph, parts: &[ModelPart]) -> Vec<usize> {
    let mut of = vec![0; graph.graph.tensors().len()];
    for weight in &graph.weights {
        of[weight.leaf.index()] = position(weight.part, parts);
    }
    for node in graph.graph.nodes() {
        let last = node.inputs.iter().map(|input| of[input.index()]).max();
        of[node.output.index()] = last.unwrap_or(0);
    }
    of
}

impl Blueprint {
    /// With the parts where a workload takes least time by the machine's speeds, as far as they fit.
    pub(crate) fn fastest(
        model: &Model,
        machine: &Machine,
        settings: &Settings,
        context: u64,
        work: &Workload,
    ) -> Result<Blueprint, Error> {
        let layers = model.config().layers.len();
        let at = |layout| Blueprint::at(model, machine, settings, layout, context);
        let devices: Vec<DeviceId> = machine.indices().collect();
        if let [device] = devices[..] {
            return at(LayerPlacement::all_on(device, layers));
        }
        let parts = parts(model);
        let whole = devices
            .iter()
            .map(|device| Whole::of(&at(LayerPlacement::all_on(*device, layers))?, *device, &parts, work));
        let whole: Vec<Whole> = whole.collect::<Result<_, Error>>()?;
        let batch = settings.batch.min(context);
        let hops = hops(machine, &devices, model.config().width, batch, work);
        let mut capacity: Vec<u64> =
            whole.iter().map(|whole| whole.free.saturating_sub(whole.compute)).collect();
        let mut best: Option<Blueprint> = None;
        for _ in 0..ATTEMPTS {
            let Some((layout, decisions)) = solved(&whole, &hops, &capacity, &parts, &devices) else { break };
            let blueprint = Blueprint { decisions, ..at(layout)? };
            let forecast = blueprint.forecast()?;
            if forecast.fits() {
                best = Some(blueprint);
                break;
            }
            for (capacity, share) in capacity.iter_mut().zip(&forecast.devices) {
                let over = share.total().saturating_sub(share.free.unwrap_or(u64::MAX));
                *capacity = capacity.saturating_sub(over);
            }
        }
        // As many layers as fit: never worse than that by the same prediction.
        let plain = Blueprint::with_most_layers(model, machine, settings, context)?;
        let Some(best) = best else { return Ok(plain) };
        if !plain.forecast()?.fits() || best.workload_seconds(work)? <= plain.workload_seconds(work)? {
            return Ok(best);
        }
        Ok(plain)
    }

    /// Predicted seconds of a workload.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn workload_seconds(&self, work: &Workload) -> Result<f64, Error> {
        let speeds = self.speed_forecast(work.prompt, work.depth)?;
        let prompt = work.prompt as f64 / speeds.prompt_tokens_per_second;
        Ok(prompt + work.generated as f64 / speeds.generation_tokens_per_second)
    }

    /// Why the parts are where they are, if predicted time decided ([`LayerChoice::Fastest`]).
    pub fn decisions(&self) -> &PlacementDecisions {
        &self.decisions
    }
}

/// Seconds to hand the activations of a workload from one device to another.
fn hops(machine: &Machine, devices: &[DeviceId], width: u64, batch: u64, work: &Workload) -> Vec<Vec<f64>> {
    let hop = |from: DeviceId, to: DeviceId, tokens: u64| {
        let bytes = 4 * width * tokens;
        machine.speeds(from).return_seconds(bytes).max(machine.speeds(to).transfer_seconds(bytes))
    };
    let both = |from: DeviceId, to: DeviceId| {
        if from == to {
            return 0.0;
        }
        let runs = work.prompt.div_ceil(batch.max(1)) as f64;
        work.generated as f64 * hop(from, to, 1) + runs * hop(from, to, batch)
    };
    devices.iter().map(|from| devices.iter().map(|to| both(*from, *to)).collect()).collect()
}

/// The best placement; with an embedding table that is the output matrix, too, one for each device of the table.
fn solved(
    whole: &[Whole],
    hops: &[Vec<f64>],
    capacity: &[u64],
    parts: &[ModelPart],
    devices: &[DeviceId],
) -> Option<(LayerPlacement, PlacementDecisions)> {
    let of_part = |part: usize| -> Vec<Option<PartCost>> {
        whole.iter().map(|whole| Some(whole.costs[part])).collect()
    };
    let plain = ChainProblem {
        capacity: capacity.to_vec(),
        hops: hops.to_vec(),
        parts: (0..parts.len()).map(of_part).collect(),
    };
    let tied = whole.iter().any(|whole| whole.table > 0);
    let inputs = if tied { 0..devices.len() } else { 0..1 };
    let tried = inputs.filter_map(|input| {
        let mut problem = plain.clone();
        if tied {
            for (device, whole) in whole.iter().enumerate() {
                // On the table's device, the output needs no other.
                if device == input {
                    continue;
                }
                problem.parts[0][device] = None;
                if let Some(Some(output)) = problem.parts.last_mut().map(|output| &mut output[device]) {
                    output.bytes = output.bytes.saturating_add(whole.table);
                }
            }
        }
        let solution = problem.solve(WIDTH)?;
        Some((solution, problem))
    });
    let (solution, problem) = tried.min_by(|(one, _), (other, _)| one.seconds.total_cmp(&other.seconds))?;
    let next_best = problem.alternatives(&solution);
    let decision = |(index, other): (usize, &Option<Alternative>)| PartDecision {
        part: parts[index],
        device: devices[solution.devices[index]],
        next_best: other.map(|other| (devices[other.device], other.extra_seconds)),
    };
    // Parts without weights are nowhere.
    let exists =
        |(index, _): &(usize, &Option<Alternative>)| whole.iter().any(|whole| whole.costs[*index].bytes > 0);
    let decisions = PlacementDecisions {
        parts: next_best.iter().enumerate().filter(exists).map(decision).collect(),
        seconds: solution.seconds,
        bound: solution.bound,
    };
    let chosen = |part| devices[solution.devices[position(part, parts)]];
    let layers = (parts.len() - 2) / 2;
    let of_layers: Vec<DeviceId> = (0..layers).map(|layer| chosen(ModelPart::Layer(layer))).collect();
    let layout = LayerPlacement {
        input: chosen(ModelPart::Input),
        caches: of_layers.clone(),
        layers: of_layers,
        experts: (0..layers).map(|layer| chosen(ModelPart::Experts(layer))).collect(),
        output: chosen(ModelPart::Output),
    };
    Some((layout, decisions))
}

impl LayerChoice {
    /// Where everything takes least time.
    pub fn fastest() -> LayerChoice {
        LayerChoice::Fastest(Workload::default())
    }
}
