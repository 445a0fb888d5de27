use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use orlop_alloc::{ArenaId, SavedMemoryPlan, SetTensor, StepOrder, TensorSet};
use orlop_backend::{BufferType, MemoryLayout, same_type};
use orlop_graph::{TensorDesc, TensorId};
use orlop_sched::{Constraints, DeviceId, Machine, Planned, SessionOptions, largest_fitting, place_by_rules};

use crate::draft::{GraphSpec, ModelGraph};
use crate::storage::{Uses, choose_memory, until_repacked};
use crate::streaming::streamed_from;
use crate::{BatchShape, Error, LayerChoice, LayerPlacement, Model, Outputs, Settings};

/// Most tokens of a context or a batch, and most sequences: positions and rows have 31 bits.
const MOST: u64 = (u32::MAX >> 1) as u64;

/// A model on certain devices with certain settings: everything that is known before any memory is allocated.
#[derive(Clone, Debug)]
pub struct Blueprint {
    pub(crate) model: Model,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) context: u64,
    pub(crate) layout: LayerPlacement,
    /// The graph of one token.
    pub(crate) decode: ModelGraph,
    /// The graph of a whole batch.
    pub(crate) prompt: ModelGraph,
    pub(crate) weights: Vec<WeightPlace>,
}

/// Where a weight goes.
#[derive(Clone, Debug)]
pub(crate) struct WeightPlace {
    /// Its name in graphs.
    pub(crate) name: Arc<str>,
    /// Its name in the file.
    pub(crate) source: String,
    pub(crate) desc: TensorDesc,
    pub(crate) device: DeviceId,
    pub(crate) memory: Arc<dyn BufferType>,
    /// Memory over the file, where it can be used until it is repacked.
    pub(crate) until_repacked: Option<Arc<dyn BufferType>>,
}

/// What a model takes on each device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Tokens that the cache holds.
    pub context: u64,
    /// Every device, most preferred first.
    pub devices: Vec<DeviceMemory>,
    /// Layers on each device.
    pub layers: Vec<usize>,
}

/// Bytes on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// The device.
    pub name: String,
    /// Weights that are used as they are stored.
    pub weights: u64,
    /// Weights in the device's own layout.
    pub repacked: u64,
    /// Keys and values.
    pub kv: u64,
    /// The arena of runs.
    pub compute: u64,
    /// What may be used, if that is known.
    pub free: Option<u64>,
}

/// How a model can be divided between the first device and the last.
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
        write!(f, "{layers} {named} on the first device (-ngl {layers} -c {context})")
    }
}

impl DeviceMemory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights.saturating_add(self.repacked).saturating_add(self.kv).saturating_add(self.compute)
    }

    /// Whether it fits what may be used.
    pub fn fits(&self) -> bool {
        self.free.is_none_or(|free| self.total() <= free)
    }
}

impl Forecast {
    /// Whether everything fits.
    pub fn fits(&self) -> bool {
        self.devices.iter().all(DeviceMemory::fits)
    }
}

impl Blueprint {
    /// Draws the graphs of a model, and decides where its weights go. What the settings leave open is chosen so that it
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

    /// As [`Blueprint::plan`], but what does not fit, whatever the context, is drawn all the same:
    /// [`Blueprint::forecast`] tells.
    ///
    /// # Errors
    /// What is wrong with the model or the settings; what devices refuse.
    pub fn plan_unchecked(model: &Model, machine: &Machine, settings: &Settings) -> Result<Blueprint, Error> {
        let asked = settings.context.unwrap_or(trained(model));
        let layout = match &settings.layout {
            LayerChoice::Fitting => most_layers(model, machine, settings, asked)?,
            wish => laid_out(model, machine, wish)?,
        };
        let blueprint = Blueprint::at(model, machine, settings, layout, asked)?;
        blueprint.check_tensors()?;
        if settings.context.is_some() || blueprint.forecast()?.fits() {
            return Ok(blueprint);
        }
        match blueprint.largest_context()? {
            Some(largest) => Blueprint::at(model, machine, settings, blueprint.layout.clone(), largest),
            None => Ok(blueprint),
        }
    }

    fn at(
        model: &Model,
        machine: &Machine,
        settings: &Settings,
        layout: LayerPlacement,
        context: u64,
    ) -> Result<Blueprint, Error> {
        layout.check(model.config().layers.len(), machine)?;
        let batch = settings.batch.min(context);
        let sequences = settings.sequences;
        for (setting, value) in
            [("the context", context), ("the batch", batch), ("the number of sequences", sequences)]
        {
            if value == 0 || value > MOST {
                let rule = "it must be at least 1, and fit 31 bits";
                return Err(Error::BadSetting { setting, value: value.to_string(), rule });
            }
        }
        let outputs = match settings.outputs {
            Outputs::Last => sequences.min(batch),
            Outputs::All => batch,
        };
        let draw = |shape| draw(model, settings, &layout, context, shape);
        let decode = draw(BatchShape { tokens: 1, outputs: 1 })?;
        let prompt = draw(BatchShape { tokens: batch, outputs })?;
        let mut weights = Vec::with_capacity(decode.weights.len());
        let uses = [&decode, &prompt].map(|drawn| Uses::of(&drawn.graph));
        // Graphs of one model draw the same weights in the same order.
        for (weight, other) in decode.weights.iter().zip(&prompt.weights) {
            let tensor = decode.graph.tensor(weight.leaf);
            let device = layout.device(weight.part);
            let leaves = uses.iter().zip([weight.leaf, other.leaf]);
            let memory =
                |device: DeviceId| choose_memory(machine.device(device), &tensor.name, leaves.clone());
            // What a device cannot use, such as a matrix larger than it can bind, is used on the last one.
            let last = ends(machine).1;
            let (device, memory) = match memory(device) {
                Ok(memory) => (device, memory),
                Err(refused) => (last, memory(last).map_err(|_| refused)?),
            };
            weights.push(WeightPlace {
                name: tensor.name.as_str().into(),
                source: weight.source.clone(),
                desc: tensor.desc,
                device,
                until_repacked: until_repacked(machine.device(device), &memory, leaves),
                memory,
            });
        }
        let (model, machine, settings) = (model.clone(), machine.clone(), settings.clone());
        Ok(Blueprint { model, machine, settings, context, layout, decode, prompt, weights })
    }

    /// The same, with steps that may change places or may not.
    pub fn with_order(&self, order: StepOrder) -> Blueprint {
        let settings = Settings { order, ..self.settings.clone() };
        Blueprint { settings, ..self.clone() }
    }

    /// The graph of another shape, on the same caches and weights.
    pub(crate) fn draw_shape(&self, shape: BatchShape) -> Result<ModelGraph, Error> {
        draw(&self.model, &self.settings, &self.layout, self.context, shape)
    }

    /// Tokens that the cache holds.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Where everything goes.
    pub fn layout(&self) -> &LayerPlacement {
        &self.layout
    }

    /// The devices.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Most tokens of a run.
    pub fn batch(&self) -> u64 {
        self.prompt.graph.tensor(self.prompt.tokens).desc.extents[0]
    }

    /// The graph of a batch, placed, split, lowered and planned.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn planned_batch(&self) -> Result<(Arc<orlop_graph::Graph>, Planned), Error> {
        Ok((Arc::clone(&self.prompt.graph), self.planned(&self.prompt)?))
    }

    /// The graph of one token, placed, split, lowered and planned.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn planned_token(&self) -> Result<(Arc<orlop_graph::Graph>, Planned), Error> {
        Ok((Arc::clone(&self.decode.graph), self.planned(&self.decode)?))
    }

    fn planned(&self, drawn: &ModelGraph) -> Result<Planned, Error> {
        let mut pinned: HashMap<TensorId, Arc<dyn BufferType>> =
            self.places(drawn).map(|(leaf, weight)| (leaf, Arc::clone(&weight.memory))).collect();
        pinned.extend(self.streamed(drawn).into_iter().map(|(leaf, _, memory)| (leaf, memory)));
        for (cache, layer) in &drawn.caches {
            pinned.insert(*cache, Arc::clone(self.cache_memory(*layer)));
        }
        let constraints = Constraints { pinned, ..Constraints::default() };
        let placement = place_by_rules(&drawn.graph, &self.machine, &constraints)?;
        Ok(Planned::new(&drawn.graph, &self.machine, &constraints, placement, &self.session_options())?)
    }

    /// The weights of a graph: leaves, and where they go.
    fn places(&self, drawn: &ModelGraph) -> impl Iterator<Item = (TensorId, &WeightPlace)> {
        let by_name: HashMap<&str, &WeightPlace> =
            self.weights.iter().map(|weight| (&*weight.name, weight)).collect();
        let name = |leaf: TensorId| drawn.graph.tensor(leaf).name.as_str();
        let found =
            drawn.weights.iter().filter_map(|weight| Some((weight.leaf, *by_name.get(name(weight.leaf))?)));
        found.collect::<Vec<_>>().into_iter()
    }

    /// The weights that a graph takes from the file instead: leaves, what is known of them, and memory over the file.
    pub(crate) fn streamed(&self, drawn: &ModelGraph) -> Vec<(TensorId, &WeightPlace, Arc<dyn BufferType>)> {
        let uses = Uses::of(&drawn.graph);
        let places = self.places(drawn);
        let streamed = places.filter_map(|(leaf, weight)| {
            Some((leaf, weight, streamed_from(&self.machine, &uses, leaf, weight)?))
        });
        streamed.collect()
    }

    pub(crate) fn session_options(&self) -> SessionOptions {
        let known = Arc::clone(&self.settings.plans);
        let order = self.settings.order;
        let lower = self.settings.lower();
        SessionOptions { lower, order, known, keep_offloaded: false, ..SessionOptions::default() }
    }

    pub(crate) fn cache_memory(&self, layer: usize) -> &Arc<dyn BufferType> {
        self.machine.arena(self.layout.caches[layer])
    }

    /// The memory plans of its graphs, to be given as [`Settings::plans`] another time.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn save(&self) -> Result<Vec<SavedMemoryPlan>, Error> {
        let mut saved: Vec<SavedMemoryPlan> = Vec::new();
        for drawn in [&self.decode, &self.prompt] {
            let planned = self.planned(drawn)?;
            for device in self.machine.indices() {
                let plan = SavedMemoryPlan::new(planned.memory_plan(&self.machine, device));
                // Devices that share memory share plans.
                if !saved.contains(&plan) {
                    saved.push(plan);
                }
            }
        }
        Ok(saved)
    }

    /// Every tensor of the file's layers must be in the graphs: what is left out would be missing in the results.
    fn check_tensors(&self) -> Result<(), Error> {
        let drawn: HashSet<&str> = self.decode.weights.iter().map(|weight| weight.source.as_str()).collect();
        // Scales may be for products of other types, or not count.
        let unknown =
            |name: &str| name.starts_with("blk.") && !name.ends_with("scale") && !drawn.contains(name);
        match self.model.file().tensors().iter().find(|tensor| unknown(&tensor.name)) {
            Some(tensor) => Err(Error::UnknownTensor {
                tensor: tensor.name.clone(),
                architecture: self.model.config().architecture.name(),
            }),
            None => Ok(()),
        }
    }

    /// If plans were given ([`Settings::plans`]), they must be this model's with these settings.
    ///
    /// # Errors
    /// [`Error::OtherPlans`]; and what devices refuse.
    pub fn check_plans(&self) -> Result<(), Error> {
        let given = &self.settings.plans;
        if given.is_empty() {
            return Ok(());
        }
        let needed = self.save()?;
        let other = needed.iter().find(|plan| given.iter().all(|given| given.signature != plan.signature));
        match other {
            Some(plan) => {
                Err(Error::OtherPlans { signature: plan.signature.to_string(), plans: given.len() })
            }
            None => Ok(()),
        }
    }

    /// A device, and what may be used there.
    pub(crate) fn empty_share(&self, device: DeviceId) -> DeviceMemory {
        let budget = self.settings.budgets.get(&device).copied();
        let free = self.machine.facts(device).memory.map(|memory| memory.free);
        DeviceMemory {
            name: self.machine.name(device).to_owned(),
            free: budget.or(free),
            ..DeviceMemory::default()
        }
    }

    /// What it takes on each device, to the byte.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn forecast(&self) -> Result<Forecast, Error> {
        let mut devices: Vec<DeviceMemory> = Vec::new();
        let plans = [self.planned(&self.decode)?, self.planned(&self.prompt)?];
        for device in self.machine.indices() {
            let mut share = self.empty_share(device);
            for (memory, set) in self.weight_sets(device) {
                if memory.is_borrowed() {
                    share.weights += set.iter().map(|weight| weight.desc.bytes()).sum::<u64>();
                    continue;
                }
                let sizes = TensorSet::sizes(&*memory, &set_tensors(&set))?;
                let bytes = sizes.into_iter().fold(0u64, u64::saturating_add);
                match memory.layout() {
                    MemoryLayout::Private => share.repacked += bytes,
                    MemoryLayout::Plain => share.weights += bytes,
                }
            }
            let caches = self.cache_set(device);
            share.kv = TensorSet::sizes(&**self.machine.arena(device), &caches)?.into_iter().sum();
            let resident = plans.iter().map(|plan| plan.resident_bytes(device)).max().unwrap_or(0);
            share.weights += resident;
            let chunks = plans.iter().map(|plan| {
                let plan = plan.memory_plan(&self.machine, device);
                plan.arenas[ArenaId::new(0).index()].chunks.as_slice()
            });
            share.compute = largest_chunks(chunks).into_iter().sum();
            devices.push(share);
        }
        let layers = self.machine.indices().map(|device| self.layout.layers_on(device)).collect();
        Ok(Forecast { context: self.context, devices, layers })
    }

    /// Tokens that the model was trained for, as far as a context can be as large.
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
        largest_fitting(1..=most.min(MOST), |context| {
            let Blueprint { model, machine, settings, layout, .. } = self;
            Blueprint::at(model, machine, settings, layout.clone(), context)?
                .forecast()
                .map(|forecast| forecast.fits())
        })
    }

    /// The most of the last layers that fit on the first device, with the context as it is, or else with the largest for
    /// which some division fits. `None` if there is but one device, or nothing fits.
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
            // Whatever the first device has less, the others have more: if this does not fit, no division does.
            let layout = most_layers(model, machine, settings, context)?;
            let layers = layout.layers_on(first);
            let fits = Blueprint::at(model, machine, settings, layout, context)?.forecast()?.fits();
            Ok(fits.then_some(LayerSplit { layers, context }))
        };
        if let Some(division) = divided(self.context)? {
            return Ok(Some(division));
        }
        match largest_fitting(1..=self.context, |context| divided(context).map(|found| found.is_some()))? {
            Some(context) => divided(context),
            None => Ok(None),
        }
    }

    /// The weights of a device, by the kind of memory that they go to, in the model's order.
    pub(crate) fn weight_sets(&self, device: DeviceId) -> Vec<(Arc<dyn BufferType>, Vec<&WeightPlace>)> {
        let mut sets: Vec<(Arc<dyn BufferType>, Vec<&WeightPlace>)> = Vec::new();
        for weight in self.weights.iter().filter(|weight| weight.device == device) {
            match sets.iter_mut().find(|(memory, _)| same_type(memory, &weight.memory)) {
                Some((_, set)) => set.push(weight),
                None => sets.push((Arc::clone(&weight.memory), vec![weight])),
            }
        }
        sets
    }

    /// The caches of a device.
    pub(crate) fn cache_set(&self, device: DeviceId) -> Vec<SetTensor> {
        let here = |(_, layer): &&(TensorId, usize)| self.layout.caches[*layer] == device;
        let caches = self.decode.caches.iter().filter(here);
        caches
            .map(|(cache, _)| {
                let tensor = self.decode.graph.tensor(*cache);
                SetTensor::new(tensor.name.as_str(), tensor.desc)
            })
            .collect()
    }
}

pub(crate) fn set_tensors(set: &[&WeightPlace]) -> Vec<SetTensor> {
    set.iter().map(|weight| SetTensor::new(Arc::clone(&weight.name), weight.desc)).collect()
}

/// The sizes that chunks have once every plan has had its way.
fn largest_chunks<'a>(plans: impl Iterator<Item = &'a [u64]>) -> Vec<u64> {
    let mut largest: Vec<u64> = Vec::new();
    for chunks in plans {
        largest.resize(largest.len().max(chunks.len()), 0);
        for (largest, bytes) in largest.iter_mut().zip(chunks) {
            *largest = (*largest).max(*bytes);
        }
    }
    largest
}

fn draw(
    model: &Model,
    settings: &Settings,
    layout: &LayerPlacement,
    context: u64,
    shape: BatchShape,
) -> Result<ModelGraph, Error> {
    let tied = model.file().tensor("output.weight").is_none();
    let untie = tied && layout.input != layout.output;
    let (config, file, cache) = (model.config(), model.file(), settings.cache);
    GraphSpec { config, file, shape, context, sequences: settings.sequences, cache, untie }.build()
}

/// The context that a model was trained for; what files say may be more than there can be.
fn trained(model: &Model) -> u64 {
    model.config().context.min(MOST)
}

fn laid_out(model: &Model, machine: &Machine, wish: &LayerChoice) -> Result<LayerPlacement, Error> {
    let layers = model.config().layers.len();
    let (first, last) = ends(machine);
    Ok(match wish {
        LayerChoice::Exactly(layout) => layout.clone(),
        LayerChoice::First | LayerChoice::Fitting => LayerPlacement::all_on(first, layers),
        LayerChoice::LastLayers(count) => last_layers(layers, *count, first, last),
    })
}

/// The output goes with the layers if there are any on the first device; rows of the embedding table are looked up
/// where the table need not be moved.
fn last_layers(layers: usize, count: usize, first: DeviceId, last: DeviceId) -> LayerPlacement {
    let layout = LayerPlacement::all_on(last, layers);
    let output = if count == 0 { last } else { first };
    LayerPlacement { output, ..layout.with_layers(layers.saturating_sub(count)..layers, 1, first) }
}

fn most_layers(
    model: &Model,
    machine: &Machine,
    settings: &Settings,
    context: u64,
) -> Result<LayerPlacement, Error> {
    let layers = model.config().layers.len();
    let (first, last) = ends(machine);
    if first == last {
        return Ok(LayerPlacement::all_on(first, layers));
    }
    let fitting = largest_fitting(0..=layers as u64, |count| {
        let layout = last_layers(layers, count as usize, first, last);
        let forecast = Blueprint::at(model, machine, settings, layout, context)?.forecast()?;
        Ok::<_, Error>(forecast.devices[0].fits())
    })?;
    Ok(last_layers(layers, fitting.unwrap_or(0) as usize, first, last))
}

fn ends(machine: &Machine) -> (DeviceId, DeviceId) {
    let mut indices = machine.indices();
    let first = indices.next().unwrap_or_default();
    (first, indices.next_back().unwrap_or(first))
}
