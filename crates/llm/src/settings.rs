//! How a model is to be run, and where its parts are to be.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use orlop_alloc::{SavedMemoryPlan, StepOrder};
use orlop_backend::{LowerOptions, Precision};
use orlop_graph::DType;
use orlop_sched::{DeviceId, Machine, PlanObserver};

use crate::{Error, ExpertCounter, ExpertCounts, Model, ModelPart, Pooling, Workload};

/// How a model is to be run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tokens that the cache holds. Default: as many as the model was trained for, or as many as fit.
    pub context: Option<u64>,
    /// Maximum of tokens in a run. Default 512.
    pub batch: u64,
    /// Maximum of sequences in the cache. Default 1.
    pub sequences: u64,
    /// Maximum of threads of a device that has threads. Default 1.
    pub threads: usize,
    /// Element types of the cache. Default F16.
    pub cache: CacheTypes,
    /// What passes from one device to another between parts of the model. Default F32.
    pub cut: CutType,
    /// How accurately products are computed. Default [`Precision::Int16`].
    pub precision: Precision,
    /// Whether devices may fuse nodes. Default yes.
    pub fusion: bool,
    /// Whether steps may be reordered. Default: where that saves memory.
    pub order: StepOrder,
    /// The tokens whose logits one run of a batch gives; more wanted rows take more runs. Default: the last one of each
    /// sequence.
    pub outputs: Outputs,
    /// Whether runs also sum what matrices are multiplied with ([`crate::Engine::importance`]). Default no.
    pub importance: bool,
    /// Counts the experts that tokens choose, in models that have some. Default none.
    pub expert_counter: Option<Arc<ExpertCounter>>,
    /// How often experts were chosen before. [`LayerChoice::Fastest`] places those that are chosen most one by one. Default
    /// none.
    pub expert_counts: Option<Arc<ExpertCounts>>,
    /// Maximum of drafted tokens that one run verifies, in [speculative decoding](crate::Speculator). Default 0: none.
    pub draft: u64,
    /// Memory plans that were saved for exactly these settings ([`crate::Blueprint::save`]). Default none.
    pub plans: Arc<[SavedMemoryPlan]>,
    /// Where each part goes. Default: everything on the first device.
    pub layout: LayerChoice,
    /// Maximum of bytes on a device, in total. Default: what is free there.
    pub budgets: HashMap<DeviceId, u64>,
    /// Maximum of bytes of weights that a device keeps in memory; runs read the others from the mapped file, where the device
    /// can. Default: no maximum, unless a model fits with no context.
    pub kept_weights: HashMap<DeviceId, u64>,
    /// Bytes a second that are read from the model's file, which predictions need where weights are not kept. Default: 1 GB,
    /// a guess; [`Blueprint::with_file_speed`](crate::Blueprint::with_file_speed) takes what was measured.
    pub file_bytes_per_second: f64,
    /// Sees every graph that is planned. Default none.
    pub observer: PlanObserver,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            context: None,
            batch: 512,
            sequences: 1,
            threads: 1,
            cache: CacheTypes::default(),
            cut: CutType::F32,
            precision: Precision::Int16,
            fusion: true,
            order: StepOrder::default(),
            outputs: Outputs::Last,
            importance: false,
            expert_counter: None,
            expert_counts: None,
            draft: 0,
            plans: Arc::new([]),
            layout: LayerChoice::First,
            budgets: HashMap::new(),
            kept_weights: HashMap::new(),
            file_bytes_per_second: 1e9,
            observer: PlanObserver::default(),
        }
    }
}

impl Settings {
    /// How graphs are lowered.
    pub fn lower(&self) -> LowerOptions {
        LowerOptions { max_threads: self.threads, precision: self.precision, fusion: self.fusion }
    }
}

/// Element types of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheTypes {
    /// Of keys.
    pub k: DType,
    /// Of values.
    pub v: DType,
}

impl Default for CacheTypes {
    fn default() -> CacheTypes {
        CacheTypes { k: DType::F16, v: DType::F16 }
    }
}

/// Element type of the activations that pass from one device to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CutType {
    /// As they are computed.
    #[default]
    F32,
    /// Half as many bytes. Rounded to 11 bits, and activations of 65,520 and more become infinite.
    F16,
}

/// The tokens whose logits a batch gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outputs {
    /// The last token of each part.
    #[default]
    Last,
    /// Every token.
    All,
    /// None: whole texts are fed, and a row of each comes out ([`Embedder`](crate::Embedder)).
    Texts(Pooling),
}

/// Which parts of a model go to which device.
#[derive(Clone, Debug, Default)]
pub enum LayerChoice {
    /// Everything on the most preferred device.
    #[default]
    First,
    /// This many of the last layers, and the output, on the most preferred device; the rest on the least preferred.
    LastLayers(usize),
    /// Where a workload takes least time by the machine's speeds, as far as everything fits.
    Fastest(Workload),
    /// A device for every part.
    Exactly(LayerPlacement),
}

/// A device for every part of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerPlacement {
    /// Of the embedding table.
    pub input: DeviceId,
    /// Of each layer.
    pub layers: Vec<DeviceId>,
    /// Of each layer's cache.
    pub caches: Vec<DeviceId>,
    /// Of each layer's routed experts, where it has any.
    pub experts: Vec<DeviceId>,
    /// Of each layer, those of its experts that are elsewhere.
    pub hot: Vec<Option<HotExperts>>,
    /// Of the last norm and the output matrix.
    pub output: DeviceId,
}

/// Experts of a layer that are on another device than the others: those that are chosen most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotExperts {
    /// Their device.
    pub device: DeviceId,
    /// Which ones, ascending: at least one, and not all.
    pub experts: Arc<[u32]>,
}

impl LayerPlacement {
    /// Everything on one device.
    pub fn all_on(device: DeviceId, layers: usize) -> LayerPlacement {
        LayerPlacement {
            input: device,
            layers: vec![device; layers],
            caches: vec![device; layers],
            experts: vec![device; layers],
            hot: vec![None; layers],
            output: device,
        }
    }

    /// Layers with their caches and experts on a device.
    #[must_use]
    pub fn with_layers(mut self, range: Range<usize>, step: usize, device: DeviceId) -> LayerPlacement {
        let end = range.end.min(self.layers.len());
        for layer in (range.start..end).step_by(step.max(1)) {
            self.layers[layer] = device;
            self.caches[layer] = device;
            self.experts[layer] = device;
            self.hot[layer] = None;
        }
        self
    }

    /// How many layers are on a device.
    pub fn layers_on(&self, device: DeviceId) -> usize {
        self.layers.iter().filter(|layer| **layer == device).count()
    }

    /// The device of a part.
    pub fn device(&self, part: ModelPart) -> DeviceId {
        match part {
            ModelPart::Input => self.input,
            ModelPart::Layer(layer) => self.layers[layer],
            ModelPart::Experts(layer) => self.experts[layer],
            ModelPart::HotExperts(layer) => {
                self.hot[layer].as_ref().map_or(self.experts[layer], |hot| hot.device)
            }
            ModelPart::Output => self.output,
        }
    }

    /// Checks that it has a device of this machine for each of the layers.
    pub(crate) fn check(&self, layers: usize, machine: &Machine) -> Result<(), Error> {
        let bad = |value, rule| Err(Error::BadSetting { setting: "the layout", value, rule });
        let counts = [self.layers.len(), self.caches.len(), self.experts.len(), self.hot.len()];
        if counts.iter().any(|count| *count != layers) {
            let [layers, caches, experts, hot] = counts;
            let value =
                format!("of {layers} layers, {caches} caches, {experts} of experts and {hot} of hot ones");
            return bad(value, "it must have one device for each layer of the model");
        }
        let ends = [&self.input, &self.output];
        let hot = self.hot.iter().flatten().map(|hot| &hot.device);
        let devices = machine.devices().len();
        match self
            .layers
            .iter()
            .chain(&self.caches)
            .chain(&self.experts)
            .chain(hot)
            .chain(ends)
            .find(|device| device.index() >= devices)
        {
            Some(device) => {
                bad(format!("on device {device:?} of {devices}"), "devices must be the machine's")
            }
            None => Ok(()),
        }
    }

    /// Checks that experts that are elsewhere are some of a layer's, and that runs can do without what is made of all.
    pub(crate) fn check_hot(&self, model: &Model, settings: &Settings) -> Result<(), Error> {
        let bad = |value, rule| Err(Error::BadSetting { setting: "the layout", value, rule });
        let count = model.config().experts.map_or(0, |experts| experts.count);
        for (layer, hot) in self.hot.iter().enumerate() {
            let Some(HotExperts { experts, .. }) = hot else { continue };
            let value = || format!("hot experts {experts:?} of layer {layer}");
            let has_experts = model.file().tensor(&format!("blk.{layer}.ffn_gate_inp.weight")).is_some();
            let ascend = experts.is_sorted_by(|one, next| one < next);
            let known = experts.last().is_some_and(|last| u64::from(*last) < count);
            if !has_experts || !ascend || !known || experts.len() as u64 >= count {
                return bad(value(), "they must be some of the layer's experts, ascending");
            }
            if settings.importance || !model.adapters().is_empty() {
                return bad(value(), "importance data and adapters need experts that are together");
            }
        }
        Ok(())
    }
}
