//! The file that `orlop plan MODEL --save` writes: the memory plans of a model, and the choices that they were made for.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use orlop::alloc::SavedMemoryPlan;
use orlop::llm::{Blueprint, HotExperts, LayerPlacement};
use orlop::sched::{DeviceId, Machine};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::model_arguments::bad;

/// Saved choices and plans; devices are named.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelPlanFile {
    /// Tokens that the cache holds.
    pub(crate) context: u64,
    layout: NamedLayout,
    /// Bytes of weights that stay in memory, on devices that read others from the file.
    kept_weights: BTreeMap<String, u64>,
    pub(crate) plans: Vec<SavedMemoryPlan>,
}

/// The device of each part.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedLayout {
    input: String,
    layers: Vec<String>,
    caches: Vec<String>,
    experts: Vec<String>,
    /// By layer, experts that are on another device than the others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    hot: BTreeMap<usize, NamedExperts>,
    output: String,
}

/// Some experts of a layer, and their device.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedExperts {
    device: String,
    experts: Vec<u32>,
}

impl ModelPlanFile {
    pub(crate) fn of(blueprint: &Blueprint) -> ModelPlanFile {
        let machine = blueprint.machine();
        let name = |device: &DeviceId| machine.name(*device).to_owned();
        let names = |devices: &[DeviceId]| devices.iter().map(name).collect();
        let LayerPlacement { input, layers, caches, experts, hot, output } = blueprint.layout();
        let named =
            |hot: &HotExperts| NamedExperts { device: name(&hot.device), experts: hot.experts.to_vec() };
        let hot = hot.iter().enumerate().filter_map(|(layer, hot)| Some((layer, named(hot.as_ref()?))));
        let layout = NamedLayout {
            input: name(input),
            layers: names(layers),
            caches: names(caches),
            experts: names(experts),
            hot: hot.collect(),
            output: name(output),
        };
        let kept = blueprint.settings().kept_weights.iter();
        ModelPlanFile {
            context: blueprint.context(),
            layout,
            kept_weights: kept.map(|(device, bytes)| (name(device), *bytes)).collect(),
            plans: blueprint.save(),
        }
    }

    pub(crate) fn read(path: &Path) -> Result<ModelPlanFile, Failure> {
        let refused = |what: String| {
            Failure::BadInput(format!(
                "{}: {what}; recreate it with `orlop plan MODEL --save`",
                path.display()
            ))
        };
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| refused(error.to_string()))
    }

    /// The device of each part on a machine.
    pub(crate) fn layout(&self, machine: &Machine) -> Result<LayerPlacement, Failure> {
        let find = |name: &String| machine.find(name).map_err(bad);
        let all = |names: &[String]| names.iter().map(find).collect::<Result<Vec<_>, _>>();
        let NamedLayout { input, layers, caches, experts, hot, output } = &self.layout;
        let found = |NamedExperts { device, experts }: &NamedExperts| {
            Ok(HotExperts { device: find(device)?, experts: experts.as_slice().into() })
        };
        let hot = (0..layers.len()).map(|layer| hot.get(&layer).map(found).transpose());
        let hot = hot.collect::<Result<_, Failure>>()?;
        Ok(LayerPlacement {
            input: find(input)?,
            layers: all(layers)?,
            caches: all(caches)?,
            experts: all(experts)?,
            hot,
            output: find(output)?,
        })
    }

    /// Bytes of weights that devices of a machine keep, where that is not all.
    pub(crate) fn kept_weights(&self, machine: &Machine) -> Result<HashMap<DeviceId, u64>, Failure> {
        let found = |(name, bytes): (&String, &u64)| Ok((machine.find(name).map_err(bad)?, *bytes));
        self.kept_weights.iter().map(found).collect()
    }
}
