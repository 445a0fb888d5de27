//! A model on the devices at hand: where everything goes, and the plan of every graph, before anything is allocated.
//!
//! Each graph is planned once. Forecasts, saved plans and pictures read that plan, and an [`Engine`](crate::Engine)
//! allocates and runs it.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use orlop_alloc::{SavedMemoryPlan, SetTensor, StepOrder};
use orlop_graph::Graph;
use orlop_sched::{DeviceId, Machine, Planned, largest_fitting};

use crate::adapter;
use crate::cache::CacheSizes;
use crate::draft::{GraphSpec, ModelGraph};
use crate::planned_graph::{GraphPlanner, PlannedGraph};
use crate::run_shapes::{run_shapes, verified_sizes};
use crate::weight_memory::{WeightPlace, place_weights, stream_weights};
use crate::{
    BatchShape, DeviceMemory, Error, Forecast, LayerChoice, LayerPlacement, LoraError, Model, Outputs,
    PlacementDecisions, Settings,
};

/// Maximum of the context, of the batch and the number of sequences: positions and rows have 31 bits.
const MAX_TOKENS: u64 = (u32::MAX >> 1) as u64;

/// Maximum of the context of a model that memory does not hold, without a setting.
const STREAMED_CONTEXT: u64 = 4096;

/// A model on these devices with these settings: everything that is known before any memory is allocated.
#[derive(Clone, Debug)]
pub struct Blueprint {
    pub(crate) model: Model,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) context: u64,
    pub(crate) layout: LayerPlacement,
    /// The graph of each shape of a run, in the order of [`Blueprint::shapes`].
    pub(crate) graphs: Vec<Arc<PlannedGraph>>,
    /// The first of them: the graph of one token.
    pub(crate) decode: Arc<PlannedGraph>,
    /// The last of them: the graph of a whole batch.
    pub(crate) prompt: Arc<PlannedGraph>,
    pub(crate) weights: Vec<WeightPlace>,
    /// Why parts are where they are, if predicted time decided.
    pub(crate) decisions: PlacementDecisions,
}

/// How the layers of a model can be split between the first device and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSplit {
    /// Layers on the first device.
    pub layers: usize,
    /// Tokens that the cache holds.
    pub context: u64,
}

impl std::fmt::Display for LayerSplit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LayerSplit { layers, context } = self;
        let named = if *layers == 1 { "layer fits" } else { "layers fit" };
        write!(f, "{layers} {named} on the first device with a context of {context}")
    }
}

impl Blueprint {
    /// Decides where the weights of a model go, and plans its graphs. What the settings leave open is chosen so that it
    /// fits: the context, and how many layers are on the first device.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] with the largest context that does; and as [`Blueprint::plan_unchecked`].
    pub fn plan(model: &Model, machine: &Machine, settings: &Settings) -> Result<Blueprint, Error> {
        let blueprint = Blueprint::plan_unchecked(model, machine, settings)?;
        blueprint.check_plans()?;
        let forecast = blueprint.forecast()?;
        let Some(short) = forecast.devices.iter().find(|share| !share.fits()) else { return Ok(blueprint) };
        Err(Error::DoesNotFit {
            context: blueprint.context,
            device: short.name.clone(),
            needed: short.total(),
            available: short.free.unwrap_or(u64::MAX),
            largest: blueprint.largest_context()?,
            divided: blueprint.most_layers()?,
        })
    }

    /// As [`Blueprint::plan`], but a model that does not fit with any context is planned all the same;
    /// [`Blueprint::forecast`] says so.
    ///
    /// # Errors
    /// What is wrong with the model or the settings; what devices refuse.
    pub fn plan_unchecked(model: &Model, machine: &Machine, settings: &Settings) -> Result<Blueprint, Error> {
        let asked = settings.context.unwrap_or(trained(model));
        let blueprint = Blueprint::laid_out(model, machine, settings, asked)?;
        if blueprint.forecast()?.fits() {
            return Ok(blueprint);
        }
        if settings.context.is_some() {
            let least = Blueprint::at(model, machine, settings, blueprint.layout.clone(), 1)?;
            if least.forecast()?.fits() {
                return Ok(blueprint);
            }
        // The context asked for is known not to fit.
        } else if let Some(smaller) = blueprint.with_largest_context(asked - 1)? {
            return Ok(smaller);
        }
        Ok(blueprint.streaming(asked)?.unwrap_or(blueprint))
    }

    /// With the layout that the settings ask for, chosen for this context if it is to be the fastest.
    fn laid_out(
        model: &Model,
        machine: &Machine,
        settings: &Settings,
        context: u64,
    ) -> Result<Blueprint, Error> {
        match &settings.layout {
            LayerChoice::Fastest(work) => Blueprint::fastest(model, machine, settings, context, work),
            wish => Blueprint::at(model, machine, settings, laid_out(model, machine, wish), context),
        }
    }

    /// The same with weights that runs read from the mapped file, for a model that fits with no context. Without a setting,
    /// the context is one that leaves half of the memory for weights. `None` if that does not fit either.
    fn streaming(&self, asked: u64) -> Result<Option<Blueprint>, Error> {
        let Blueprint { model, machine, settings, layout, .. } = self;
        let at =
            |settings: &Settings, context| Blueprint::at(model, machine, settings, layout.clone(), context);
        let room = |forecast: &Forecast, part: u64| {
            forecast.devices.iter().all(|share| {
                let needed = share.kv.saturating_add(share.compute);
                share.free.is_none_or(|free| needed <= free - free / part)
            })
        };
        let found = match settings.context {
            Some(context) => Some(at(settings, context)?),
            None => {
                let context = 1..=asked.min(STREAMED_CONTEXT);
                let half = |forecast: &Forecast| room(forecast, 2);
                Candidate::largest(context, |context| at(settings, context), half)?
                    .map(|found| found.blueprint)
            }
        };
        let Some(found) = found else { return Ok(None) };
        let forecast = found.forecast()?;
        let left = |share: &DeviceMemory| {
            let free = share.free?;
            // Pages of the file are read ahead into what is left.
            Some((free - free / 16).saturating_sub(share.kv.saturating_add(share.compute)))
        };
        let kept =
            machine.indices().zip(&forecast.devices).filter_map(|(ix, share)| Some((ix, left(share)?)));
        let settings = Settings { kept_weights: kept.collect(), ..settings.clone() };
        let streaming = Blueprint { decisions: self.decisions.clone(), ..at(&settings, found.context)? };
        Ok(streaming.forecast()?.fits().then_some(streaming))
    }

    /// With the layers on these devices and a context of this size.
    pub(crate) fn at(
        model: &Model,
        machine: &Machine,
        settings: &Settings,
        layout: LayerPlacement,
        context: u64,
    ) -> Result<Blueprint, Error> {
        layout.check(model.config().layers.len(), machine)?;
        layout.check_hot(model, settings)?;
        check_counts(model, settings)?;
        check_outputs(model, settings)?;
        let batch = settings.batch.min(context);
        let sequences = settings.sequences;
        for (setting, value) in
            [("the context", context), ("the batch", batch), ("the number of sequences", sequences)]
        {
            if value == 0 || value > MAX_TOKENS {
                let rule = "it must be at least 1, and fit 31 bits";
                return Err(Error::BadSetting { setting, value: value.to_string(), rule });
            }
        }
        let sizes = CacheSizes { context, batch, sequences };
        if settings.draft > 0 {
            check_rewinds(model)?;
        }
        let shapes = run_shapes(model.config(), settings, batch);
        let drawn = shapes.iter().map(|shape| draw(model, settings, &layout, sizes, *shape));
        let drawn = drawn.collect::<Result<Vec<ModelGraph>, Error>>()?;
        let [decode, prompt] = [&drawn[0], &drawn[drawn.len() - 1]];
        check_tensors(model, decode)?;
        let mut weights = place_weights(machine, [decode, prompt], ends(machine).1)?;
        stream_weights(&mut weights, model.config(), &settings.kept_weights);
        let planner = GraphPlanner { machine, settings, weights: &weights, layout: &layout };
        let graphs = drawn.into_iter().map(|graph| planner.plan(graph, |_| false).map(Arc::new));
        let graphs = graphs.collect::<Result<Vec<_>, Error>>()?;
        let [decode, prompt] = [0, graphs.len() - 1].map(|index| Arc::clone(&graphs[index]));
        let (model, machine, settings) = (model.clone(), machine.clone(), settings.clone());
        let decisions = PlacementDecisions::default();
        Ok(Blueprint {
            model,
            machine,
            settings,
            context,
            layout,
            graphs,
            decode,
            prompt,
            weights,
            decisions,
        })
    }

    /// The same, planned with another rule for the order of steps.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn with_order(&self, order: StepOrder) -> Result<Blueprint, Error> {
        let settings = Settings { order, ..self.settings.clone() };
        let ordered =
            Blueprint::at(&self.model, &self.machine, &settings, self.layout.clone(), self.context)?;
        Ok(Blueprint { decisions: self.decisions.clone(), ..ordered })
    }

    /// The graph of another shape, on the same caches and weights, planned. Weights of which `is_pending` is true are
    /// used from the mapped file.
    pub(crate) fn plan_shape(
        &self,
        shape: BatchShape,
        is_pending: impl Fn(&WeightPlace) -> bool,
    ) -> Result<PlannedGraph, Error> {
        let Blueprint { machine, settings, weights, layout, .. } = self;
        let graph = draw(&self.model, settings, layout, self.cache_sizes(), shape)?;
        GraphPlanner { machine, settings, weights, layout }.plan(graph, is_pending)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How it was planned.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tokens that the cache holds.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Pages of the cache, of [`PAGE_ROWS`](crate::PAGE_ROWS) rows each, of the layers that keep the whole context; `None` if
    /// there are no such layers.
    pub fn whole_pages(&self) -> Option<u64> {
        let groups = self.cache_sizes().groups(self.model.config());
        groups.iter().find(|group| group.window.is_none()).map(|group| group.pages)
    }

    /// How many tokens the cache is for.
    pub(crate) fn cache_sizes(&self) -> CacheSizes {
        CacheSizes { context: self.context, batch: self.batch(), sequences: self.settings.sequences }
    }

    /// The device of each part.
    pub fn layout(&self) -> &LayerPlacement {
        &self.layout
    }

    /// The devices.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Maximum of tokens in a run.
    pub fn batch(&self) -> u64 {
        self.prompt.graph.shape.tokens
    }

    /// What each run takes and gives whose graph is planned, fewest tokens first, and of those fewest rows of logits first.
    pub fn shapes(&self) -> impl Iterator<Item = BatchShape> {
        self.graphs.iter().map(|graph| graph.graph.shape)
    }

    /// The graph of a batch, and its plan.
    pub fn planned_batch(&self) -> (&Graph, &Arc<Planned>) {
        (&self.prompt.graph.graph, &self.prompt.planned)
    }

    /// The graph of one token, and its plan.
    pub fn planned_token(&self) -> (&Graph, &Arc<Planned>) {
        (&self.decode.graph.graph, &self.decode.planned)
    }

    /// How many tokens the runs have that verify drafts, smallest first.
    pub(crate) fn verified_sizes(&self) -> impl Iterator<Item = u64> + use<> {
        verified_sizes(self.settings.draft, self.batch())
    }

    /// The memory plans of its graphs, to be given as [`Settings::plans`] another time.
    pub fn save(&self) -> Vec<SavedMemoryPlan> {
        let mut saved: Vec<SavedMemoryPlan> = Vec::new();
        for graph in &self.graphs {
            for device in self.machine.indices() {
                let plan = SavedMemoryPlan::new(graph.planned.memory_plan(&self.machine, device));
                // Devices that share memory share plans.
                if !saved.contains(&plan) {
                    saved.push(plan);
                }
            }
        }
        saved
    }

    /// If plans were given ([`Settings::plans`]), they must be this model's with these settings.
    ///
    /// # Errors
    /// [`Error::OtherPlans`].
    pub fn check_plans(&self) -> Result<(), Error> {
        let given = &self.settings.plans;
        if given.is_empty() {
            return Ok(());
        }
        let needed = self.save();
        let other = needed.iter().find(|plan| given.iter().all(|given| given.signature != plan.signature));
        match other {
            Some(plan) => {
                Err(Error::OtherPlans { signature: plan.signature.to_string(), plans: given.len() })
            }
            None => Ok(()),
        }
    }

    /// Tokens that the model was trained for, up to the maximum of a context.
    pub fn trained_context(&self) -> u64 {
        trained(&self.model)
    }

    /// The largest context that fits, up to what the model was trained for, or to this one's if that is larger; `None` if
    /// none does.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn largest_context(&self) -> Result<Option<u64>, Error> {
        self.largest_context_within(self.trained_context().max(self.context))
    }

    /// The largest context that fits, up to `most`; `None` if none does.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn largest_context_within(&self, most: u64) -> Result<Option<u64>, Error> {
        Ok(self.with_largest_context(most)?.map(|blueprint| blueprint.context))
    }

    /// The same with the largest context that fits, up to `most`; `None` if none does. If this one does not fit, a layout that
    /// is to be the fastest is chosen again: smaller caches leave room for other parts.
    fn with_largest_context(&self, most: u64) -> Result<Option<Blueprint>, Error> {
        let Blueprint { model, machine, settings, layout, .. } = self;
        let keeps_layout = self.forecast()?.fits();
        let at = |context| match keeps_layout {
            true => Blueprint::at(model, machine, settings, layout.clone(), context),
            false => Blueprint::laid_out(model, machine, settings, context),
        };
        let found = Candidate::largest(1..=most.min(MAX_TOKENS), at, Forecast::fits)?;
        Ok(found.filter(|found| found.fits).map(|found| found.blueprint))
    }

    /// With as many of the last layers on the first device as fit there, or none.
    pub(crate) fn with_most_layers(
        model: &Model,
        machine: &Machine,
        settings: &Settings,
        context: u64,
    ) -> Result<Blueprint, Error> {
        let layers = model.config().layers.len();
        let (first, last) = ends(machine);
        let at = |layout| Blueprint::at(model, machine, settings, layout, context);
        if first == last {
            return at(LayerPlacement::all_on(first, layers));
        }
        let found = Candidate::largest(
            0..=layers as u64,
            |count| at(last_layers(layers, count as usize, first, last)),
            |forecast| forecast.devices[0].fits(),
        )?;
        match found {
            Some(found) => Ok(found.blueprint),
            None => at(last_layers(layers, 0, first, last)),
        }
    }

    /// The most of the last layers that fit on the first device, with this context, or else with the largest for which
    /// a split fits. `None` if there is only one device, or nothing fits.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn most_layers(&self) -> Result<Option<LayerSplit>, Error> {
        let Blueprint { model, machine, settings, .. } = self;
        let (first, last) = ends(machine);
        if first == last {
            return Ok(None);
        }
        let divided = |context: u64| -> Result<Option<LayerSplit>, Error> {
            // Layers that leave the first device go to the last: if this does not fit, no split does.
            let most = Blueprint::with_most_layers(model, machine, settings, context)?;
            let layers = most.layout.layers_on(first);
            Ok(most.forecast()?.fits().then_some(LayerSplit { layers, context }))
        };
        if let Some(division) = divided(self.context)? {
            return Ok(Some(division));
        }
        match largest_fitting(1..=self.context, |context| divided(context).map(|found| found.is_some()))? {
            Some(context) => divided(context),
            None => Ok(None),
        }
    }
}

/// The blueprint that a search ends with: each candidate is planned once.
struct Candidate {
    blueprint: Blueprint,
    fits: bool,
}

impl Candidate {
    /// That of the largest value of a knob that fits, or else of the smallest value. `None` if there is no value.
    fn largest(
        knob: RangeInclusive<u64>,
        at: impl Fn(u64) -> Result<Blueprint, Error>,
        fits: impl Fn(&Forecast) -> bool,
    ) -> Result<Option<Candidate>, Error> {
        let mut found: Option<Candidate> = None;
        largest_fitting(knob, |value| {
            let blueprint = at(value)?;
            let fits = fits(&blueprint.forecast()?);
            // The smallest value is tried first; each later one that fits is larger than those before it that did.
            if fits || found.is_none() {
                found = Some(Candidate { blueprint, fits });
            }
            Ok::<_, Error>(fits)
        })?;
        Ok(found)
    }
}

/// The first layer of RWKV 7 has no values of another one to mix its own with, but files have tensors for that.
const UNUSED: [&str; 3] =
    ["blk.0.time_mix_v0.weight", "blk.0.time_mix_v1.weight", "blk.0.time_mix_v2.weight"];

/// Every tensor of the file's layers must be in the graphs; results without it would be wrong.
fn check_tensors(model: &Model, graph: &ModelGraph) -> Result<(), Error> {
    let drawn: HashSet<&str> = graph.weights.iter().map(|weight| weight.source.as_str()).collect();
    let layers = model.config().layers.len() as u64;
    let skipped = layers..layers + model.config().skipped_blocks;
    let block = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse::<u64>().ok();
    let unknown = |name: &str| {
        name.starts_with("blk.")
            // Inputs are not rounded to the weights' type.
            && !name.ends_with(".input_scale")
            && !UNUSED.contains(&name)
            && !drawn.contains(name)
            && !block(name).is_some_and(|block| skipped.contains(&block))
    };
    if let Some(tensor) = model.file().tensors().iter().find(|tensor| unknown(&tensor.name)) {
        return Err(Error::UnknownTensor {
            tensor: tensor.name.clone(),
            architecture: model.config().architecture.name(),
        });
    }
    match adapter::unused(model, |name| drawn.contains(name)) {
        Some(name) => Err(LoraError::NoSuchTensor(name.to_owned()).into()),
        None => Ok(()),
    }
}

/// Counts are of experts that the model has.
fn check_counts(model: &Model, settings: &Settings) -> Result<(), Error> {
    let Some(counts) = &settings.expert_counts else { return Ok(()) };
    let count = model.config().experts.map_or(0, |experts| experts.count);
    let is_known =
        |layer: usize, counts: &[u64]| layer < model.config().layers.len() && counts.len() as u64 == count;
    match counts.layers.iter().find(|(layer, counts)| !is_known(**layer, counts)) {
        Some((layer, counts)) => Err(Error::BadSetting {
            setting: "the counts of experts",
            value: format!("of {} experts in layer {layer}", counts.len()),
            rule: "they must be the model's",
        }),
        None => Ok(()),
    }
}

/// Encoders make no text, and models with a state are fed no whole texts.
fn check_outputs(model: &Model, settings: &Settings) -> Result<(), Error> {
    let (config, architecture) = (model.config(), model.config().architecture.name());
    match settings.outputs {
        Outputs::Texts(_) if !config.embeds() => Err(Error::MakesNoEmbeddings { architecture }),
        Outputs::Texts(pooling) => pooling.check(model.file()),
        _ if config.bidirectional => Err(Error::MakesNoText { architecture }),
        _ => Ok(()),
    }
}

/// Speculative decoding takes rejected tokens back.
pub(crate) fn check_rewinds(model: &Model) -> Result<(), Error> {
    match model.config().keeps_states() {
        true => Err(Error::CannotRewind { architecture: model.config().architecture.name() }),
        false => Ok(()),
    }
}

pub(crate) fn set_tensors(set: &[&WeightPlace]) -> Vec<SetTensor> {
    set.iter().map(|weight| SetTensor::new(Arc::clone(&weight.name), weight.desc)).collect()
}

fn draw(
    model: &Model,
    settings: &Settings,
    layout: &LayerPlacement,
    sizes: CacheSizes,
    shape: BatchShape,
) -> Result<ModelGraph, Error> {
    let (config, file, cache) = (model.config(), model.file(), settings.cache);
    let pooling = match settings.outputs {
        Outputs::Texts(pooling) => Some(pooling),
        Outputs::Last | Outputs::All => None,
    };
    let (adapters, taps, counts) = (model.adapters(), settings.importance, settings.expert_counter.is_some());
    let cut = settings.cut;
    GraphSpec { config, file, adapters, shape, sizes, cache, pooling, taps, counts, layout, cut }.build()
}

/// The context that a model was trained for, up to the maximum.
fn trained(model: &Model) -> u64 {
    model.config().context.min(MAX_TOKENS)
}

fn laid_out(model: &Model, machine: &Machine, wish: &LayerChoice) -> LayerPlacement {
    let layers = model.config().layers.len();
    let (first, last) = ends(machine);
    match wish {
        LayerChoice::Exactly(layout) => layout.clone(),
        LayerChoice::First | LayerChoice::Fastest(_) => LayerPlacement::all_on(first, layers),
        LayerChoice::LastLayers(count) => last_layers(layers, *count, first, last),
    }
}

/// The output goes with the layers on the first device, if there are any. The embedding table stays on the last device,
/// where looking up rows needs no transfer of the table.
fn last_layers(layers: usize, count: usize, first: DeviceId, last: DeviceId) -> LayerPlacement {
    let layout = LayerPlacement::all_on(last, layers);
    let output = if count == 0 { last } else { first };
    LayerPlacement { output, ..layout.with_layers(layers.saturating_sub(count)..layers, 1, first) }
}

fn ends(machine: &Machine) -> (DeviceId, DeviceId) {
    let mut indices = machine.indices();
    let first = indices.next().unwrap_or_default();
    (first, indices.next_back().unwrap_or(first))
}
