//! The device of each part of a model by predicted time, instead of as many layers as fit.
//!
//! A model planned whole on each device says what its parts take there: bytes of weights and caches, and seconds of steps.
//! [`ChainProblem::solve`] chooses, the model is planned so, and what does not fit to the byte is solved again with less
//! room. Where it is known which experts are chosen most, these are placed one by one ([`hot`]).

use std::sync::Arc;

use orlop_sched::{
    Alternative, ChainAssignment, ChainPart, ChainProblem, DeviceId, ExpectedData, Expense, Machine, PartCost,
};

use crate::blueprint::Blueprint;
use crate::draft::ModelGraph;
use crate::speed_forecast::PlannedRun;
use crate::{Error, LayerChoice, LayerPlacement, Model, ModelPart, Settings};

mod hot;

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

/// Plans until a placement fits to the byte.
const ATTEMPTS: usize = 4;

/// The parts of a model that have weights, in order: experts are apart from the rest of their layer.
fn parts(blueprint: &Blueprint) -> Vec<ModelPart> {
    let mut parts: Vec<ModelPart> = blueprint.decode.graph.weights.iter().map(|weight| weight.part).collect();
    parts.sort();
    parts.dedup();
    parts
}

/// Position among the parts, or that of the last part before it.
fn position(part: ModelPart, parts: &[ModelPart]) -> usize {
    match parts.binary_search(&part) {
        Ok(position) => position,
        Err(next) => next.saturating_sub(1),
    }
}

/// What a model takes whole on one device.
struct Whole {
    /// Of each part.
    costs: Vec<PartCost>,
    /// Bytes of the embedding table, if it is the output matrix, too.
    table: u64,
    /// Bytes for parts: what is free beside the arena of runs.
    room: u64,
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
        let tied = blueprint.is_tied();
        for (used, place) in blueprint.decode.graph.weights.iter().zip(&blueprint.weights) {
            // What the device cannot use lies on another one, whatever goes here.
            if place.device != device {
                continue;
            }
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
        let token =
            PlannedRun { graph: Arc::clone(&blueprint.decode), tokens: 1, seen: work.depth_of_generation() };
        let runs = blueprint.planned_runs(work.prompt, work.depth);
        let runs = runs.iter().map(|run| (run, 1.0)).chain([(&token, work.generated as f64)]);
        for (PlannedRun { graph, seen, .. }, times) in runs {
            let of_tensors = parts_of_tensors(&graph.graph, parts);
            let mut spent = vec![(0.0f64, 0.0f64); parts.len()];
            for expense in graph.planned.expenses(&blueprint.machine, &ExpectedData::seeing(*seen)) {
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
        let room = share.free.unwrap_or(u64::MAX).saturating_sub(share.compute);
        Ok(Whole { costs, table, room })
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

/// A model's parts, and what they take on each device of a machine.
struct Placing {
    parts: Vec<ModelPart>,
    devices: Vec<DeviceId>,
    whole: Vec<Whole>,
    layers: usize,
    /// Seconds to hand the activations of a workload from one device to another: behind routed experts, and behind others.
    behind_experts: Arc<[Vec<f64>]>,
    behind_others: Arc<[Vec<f64>]>,
}

/// Where the routed experts of a layer may go, as long as they are together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WholeExperts {
    Anywhere,
    /// On the last device.
    OnLast,
}

/// A solved placement.
struct Solved {
    layout: LayerPlacement,
    /// No placement of the parts takes less.
    bound: f64,
}

impl Placing {
    fn new(
        model: &Model,
        machine: &Machine,
        settings: &Settings,
        context: u64,
        work: &Workload,
    ) -> Result<Placing, Error> {
        let layers = model.config().layers.len();
        let devices: Vec<DeviceId> = machine.indices().collect();
        let on = |device: &DeviceId| {
            Blueprint::at(model, machine, settings, LayerPlacement::all_on(*device, layers), context)
        };
        let blueprints: Vec<Blueprint> = devices.iter().map(on).collect::<Result<_, Error>>()?;
        let first = blueprints.first().ok_or(orlop_sched::Error::NoDevices)?;
        let parts = parts(first);
        let whole = devices
            .iter()
            .zip(&blueprints)
            .map(|(device, blueprint)| Whole::of(blueprint, *device, &parts, work));
        let whole = whole.collect::<Result<_, Error>>()?;
        // Of each chosen expert, a result of its own is handed on: they are summed where the next layer begins.
        let used = model.config().experts.map_or(1, |experts| experts.used.max(1));
        let behind_others = hops(first, work, 1);
        let behind_experts = hops(first, work, used);
        Ok(Placing { parts, devices, whole, layers, behind_experts, behind_others })
    }

    /// With an embedding table that is the output matrix, too, the problem in which the table is on a device.
    fn problem(&self, capacity: &[u64], input: Option<usize>, experts: WholeExperts) -> ChainProblem {
        let last = self.parts.len() - 1;
        let part = |(index, part): (usize, &ModelPart)| {
            let cost = |(device, whole): (usize, &Whole)| {
                let cost = whole.costs[index];
                let is_last = device + 1 == self.devices.len();
                if matches!(part, ModelPart::Experts(_)) && experts == WholeExperts::OnLast && !is_last {
                    return None;
                }
                match input {
                    Some(input) if index == 0 && device != input => None,
                    // On the table's device, the output needs no other.
                    Some(input) if index == last && device != input => {
                        Some(PartCost { bytes: cost.bytes.saturating_add(whole.table), ..cost })
                    }
                    _ => Some(cost),
                }
            };
            let before = index.checked_sub(1).map(|before| self.parts[before]);
            let hops = match before {
                Some(ModelPart::Experts(_)) => &self.behind_experts,
                _ => &self.behind_others,
            };
            ChainPart { costs: self.whole.iter().enumerate().map(cost).collect(), hops: Arc::clone(hops) }
        };
        let parts = self.parts.iter().enumerate().map(part).collect();
        ChainProblem { capacity: capacity.to_vec(), parts }
    }

    fn is_tied(&self) -> bool {
        self.whole.iter().any(|whole| whole.table > 0)
    }

    /// The best placement; with a tied embedding table, the best of those with it on each device.
    fn solve(&self, capacity: &[u64], experts: WholeExperts) -> Option<Solved> {
        let inputs: Vec<Option<usize>> = match self.is_tied() {
            true => (0..self.devices.len()).map(Some).collect(),
            false => vec![None],
        };
        let tried = inputs
            .iter()
            .filter_map(|input| self.problem(capacity, *input, experts).solve(ChainProblem::EFFORT));
        let tried: Vec<ChainAssignment> = tried.collect();
        let bound = tried.iter().map(|found| found.bound).fold(f64::INFINITY, f64::min);
        let best = tried.into_iter().min_by(|one, other| one.seconds.total_cmp(&other.seconds))?;
        Some(Solved { layout: self.layout(&best.devices), bound })
    }

    fn layout(&self, chosen: &[usize]) -> LayerPlacement {
        let device = |part| self.devices[chosen[position(part, &self.parts)]];
        let of_layers: Vec<DeviceId> =
            (0..self.layers).map(|layer| device(ModelPart::Layer(layer))).collect();
        LayerPlacement {
            input: device(ModelPart::Input),
            caches: of_layers.clone(),
            layers: of_layers,
            experts: (0..self.layers).map(|layer| device(ModelPart::Experts(layer))).collect(),
            hot: vec![None; self.layers],
            output: device(ModelPart::Output),
        }
    }

    /// Why parts are where a layout has them.
    fn decisions(&self, layout: &LayerPlacement, bound: f64) -> PlacementDecisions {
        let chosen: Vec<usize> = self.parts.iter().map(|part| layout.device(*part).index()).collect();
        let capacity: Vec<u64> = self.whole.iter().map(|whole| whole.room).collect();
        let input = self.is_tied().then_some(layout.input.index());
        let problem = self.problem(&capacity, input, WholeExperts::Anywhere);
        let decision = |(index, other): (usize, Option<Alternative>)| PartDecision {
            part: self.parts[index],
            device: self.devices[chosen[index]],
            next_best: other.map(|other| (self.devices[other.device], other.extra_seconds)),
        };
        let seconds = problem.cost(&chosen).map_or(f64::INFINITY, |(seconds, _)| seconds);
        PlacementDecisions {
            parts: problem.alternatives(&chosen).into_iter().enumerate().map(decision).collect(),
            seconds,
            bound: bound.min(seconds),
        }
    }
}

impl Workload {
    /// Tokens in the context of a generated token, on average.
    fn depth_of_generation(&self) -> u64 {
        self.depth.saturating_add(self.prompt).saturating_add(self.generated.div_ceil(2))
    }
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
        let at = |layout| Blueprint::at(model, machine, settings, layout, context);
        let mut indices = machine.indices();
        if let (Some(device), None) = (indices.next(), indices.next()) {
            return at(LayerPlacement::all_on(device, model.config().layers.len()));
        }
        let placing = Placing::new(model, machine, settings, context, work)?;
        let mut capacity: Vec<u64> = placing.whole.iter().map(|whole| whole.room).collect();
        let (mut best, mut bound) = (None, None);
        for _ in 0..ATTEMPTS {
            let Some(solved) = placing.solve(&capacity, WholeExperts::Anywhere) else { break };
            // With less room, no placement takes less.
            bound = bound.or(Some(solved.bound));
            let blueprint = at(solved.layout)?;
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
        let chosen = match best {
            None => plain,
            Some(best) if !plain.forecast()?.fits() => best,
            Some(best) if best.workload_seconds(work)? <= plain.workload_seconds(work)? => best,
            Some(_) => plain,
        };
        let decisions = placing.decisions(&chosen.layout, bound.unwrap_or(f64::INFINITY));
        let Some(divided) = placing.with_hot_experts(settings, at)? else {
            return Ok(Blueprint { decisions, ..chosen });
        };
        let seconds = divided.workload_seconds(work)?;
        if chosen.forecast()?.fits() && chosen.workload_seconds(work)? <= seconds {
            return Ok(Blueprint { decisions, ..chosen });
        }
        // The bound is one of placements of whole parts.
        let PlacementDecisions { mut parts, bound, .. } = placing.decisions(&divided.layout, decisions.bound);
        for decision in &mut parts {
            // What all experts of a layer would take elsewhere says nothing of those that are there.
            if let ModelPart::Experts(layer) = decision.part
                && divided.layout.hot[layer].is_some()
            {
                decision.next_best = None;
            }
        }
        Ok(Blueprint {
            decisions: PlacementDecisions { parts, seconds, bound: bound.min(seconds) },
            ..divided
        })
    }

    /// Predicted seconds of a workload.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn workload_seconds(&self, work: &Workload) -> Result<f64, Error> {
        let prompt: f64 =
            self.planned_runs(work.prompt, work.depth).iter().map(|run| self.predicted(run).seconds).sum();
        let token = self.predicted_token(work.depth_of_generation());
        Ok(prompt + work.generated as f64 * token.seconds)
    }

    /// Why the parts are where they are, if predicted time decided ([`LayerChoice::Fastest`]).
    pub fn decisions(&self) -> &PlacementDecisions {
        &self.decisions
    }

    /// Whether the embedding table serves as output matrix.
    pub(crate) fn is_tied(&self) -> bool {
        self.model.file().tensor("output.weight").is_none()
    }
}

/// Seconds to hand `rows` rows of each token's activations from one device to another, in all runs of a workload.
fn hops(blueprint: &Blueprint, work: &Workload, rows: u64) -> Arc<[Vec<f64>]> {
    let (machine, width) = (&blueprint.machine, blueprint.model.config().width);
    let hop = |from: DeviceId, to: DeviceId, tokens: u64| {
        let bytes = 4 * width * rows * tokens;
        machine.speeds(from).return_seconds(bytes).max(machine.speeds(to).transfer_seconds(bytes))
    };
    let runs = blueprint.runs_of(work.prompt).into_iter();
    let runs: Vec<u64> = runs.map(|(shape, _)| blueprint.graphs[shape].graph.shape.tokens).collect();
    let all = |from: DeviceId, to: DeviceId| match from == to {
        true => 0.0,
        false => {
            let prompt: f64 = runs.iter().map(|tokens| hop(from, to, *tokens)).sum();
            prompt + work.generated as f64 * hop(from, to, 1)
        }
    };
    machine.indices().map(|from| machine.indices().map(|to| all(from, to)).collect()).collect()
}

impl LayerChoice {
    /// Where everything takes least time.
    pub fn fastest() -> LayerChoice {
        LayerChoice::Fastest(Workload::default())
    }
}
