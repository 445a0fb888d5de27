//! What fits a machine: contexts and cache types with their speeds, and file types.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use orlop_gguf::GgufFile;
use orlop_graph::DType;
use orlop_sched::Machine;

use crate::mixture::{FileType, MixturePolicy};
use crate::{
    Blueprint, CacheTypes, Error, Forecast, LayerPlacement, Model, Quantization, Settings, SpeedForecast,
    Workload, quantize,
};

/// One way to run a model that fits.
#[derive(Clone, Debug, PartialEq)]
pub struct FitChoice {
    /// Tokens that the cache holds.
    pub context: u64,
    /// Element type of keys and values.
    pub cache: DType,
    /// Predicted speeds.
    pub speed: SpeedForecast,
    /// The device of each part.
    pub layout: LayerPlacement,
    /// What it takes.
    pub forecast: Forecast,
}

/// A file type in which a model would fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FittingType {
    /// The type.
    pub file_type: FileType,
    /// Bytes of the model's tensors.
    pub bytes: u64,
}

/// The shortest context that is offered.
const SHORTEST: u64 = 2048;
/// Each context is this many times the one before.
const GROWTH: u64 = 4;

impl FitChoice {
    /// Everything that it takes, on all devices.
    pub fn bytes(&self) -> u64 {
        self.forecast.devices.iter().map(|share| share.total()).fold(0, u64::saturating_add)
    }

    /// The ways to run a model that fit: contexts up to what it was trained for, or the one of the settings, with caches of
    /// F16 and Q8_0; the longest context first.
    ///
    /// # Errors
    /// As [`Blueprint::plan_unchecked`].
    pub fn all(
        model: &Model,
        machine: &Machine,
        settings: &Settings,
        work: &Workload,
    ) -> Result<Vec<FitChoice>, Error> {
        let longest = settings.context.unwrap_or(model.config().context);
        let growing = std::iter::successors(Some(SHORTEST), |context| context.checked_mul(GROWTH));
        let mut contexts: Vec<u64> = match settings.context {
            Some(_) => Vec::new(),
            None => growing.take_while(|context| *context < longest).collect(),
        };
        contexts.push(longest);
        let mut choices = Vec::new();
        for context in contexts.into_iter().rev() {
            for cache in [DType::F16, DType::Q8_0] {
                let cache_types = CacheTypes { k: cache, v: cache };
                let settings = Settings { context: Some(context), cache: cache_types, ..settings.clone() };
                let blueprint = match Blueprint::plan_unchecked(model, machine, &settings) {
                    // Heads need not be whole blocks.
                    Err(_) if cache != DType::F16 => continue,
                    blueprint => blueprint?,
                };
                let forecast = blueprint.forecast()?;
                if forecast.fits() {
                    let prompt = work.prompt.min(context);
                    let depth = work.depth.min(context - prompt);
                    choices.push(FitChoice {
                        context,
                        cache,
                        speed: blueprint.speed_forecast(prompt, depth)?,
                        layout: blueprint.layout().clone(),
                        forecast,
                    });
                }
            }
        }
        Ok(choices)
    }
}

impl Blueprint {
    /// The largest file type that takes no more than the model's file, in which everything would fit on the first device with
    /// this blueprint's context; `None` if none would, or its memory is not known.
    ///
    /// # Errors
    /// What the model's metadata lacks; what devices refuse.
    pub fn fitting_type(&self) -> Result<Option<FittingType>, Error> {
        let Blueprint { model, machine, settings, .. } = self;
        let Some(first) = machine.indices().next() else { return Ok(None) };
        let Some(free) = self.empty_share(first).free else { return Ok(None) };
        let own: u64 = model.file().tensors().iter().map(|tensor| tensor.bytes).sum();
        let mut outlines: Vec<(u64, FileType, Model)> = Vec::new();
        for file_type in FileType::all() {
            let quantization =
                Quantization { file_type, spread: MixturePolicy::Mixed, threads: 1, importance: None };
            // Not every type can be made of every other.
            let Ok(outline) = quantize::outline(model.file(), &quantization) else { continue };
            let bytes = outline.tensors().iter().map(|tensor| tensor.bytes).sum();
            if bytes <= free.min(own) {
                outlines.push((bytes, file_type, Model::from_file(GgufFile::from_file(outline))?));
            }
        }
        outlines.sort_by_key(|(bytes, ..)| Reverse(*bytes));
        let settings = Settings { kept_weights: HashMap::new(), plans: Arc::new([]), ..settings.clone() };
        for (bytes, file_type, model) in outlines {
            let layout = LayerPlacement::all_on(first, model.config().layers.len());
            let blueprint = Blueprint::at(&model, machine, &settings, layout, self.context)?;
            if blueprint.forecast()?.fits() {
                return Ok(Some(FittingType { file_type, bytes }));
            }
        }
        Ok(None)
    }
}
