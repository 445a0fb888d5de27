//! What fits a machine: contexts and cache types with their speeds, and file types.

use orlop_graph::DType;
use orlop_sched::Machine;

use crate::mixture::{FileType, MixturePolicy};
use crate::{Blueprint, CacheTypes, Error, Forecast, Model, Quantization, Settings, SpeedForecast, Workload};

/// One way to run a model that fits.
#[derive(Clone, Debug, PartialEq)]
pub struct FitChoice {
    /// Tokens that the cache holds.
    pub context: u64,
    /// Element type of keys and values.
    pub cache: DType,
    /// Predicted speeds.
    pub speed: SpeedForecast,
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
                        forecast,
                    });
                }
            }
        }
        Ok(choices)
    }
}

impl Blueprint {
    /// The largest file type in which all weights would fit on the first device beside this blueprint's caches and arena;
    /// `None` if none would, or its memory is not known.
    ///
    /// # Errors
    /// What the model's metadata lacks; what devices refuse.
    pub fn fitting_type(&self) -> Result<Option<FittingType>, Error> {
        let forecast = self.forecast()?;
        let Some(free) = forecast.devices.first().and_then(|share| share.free) else { return Ok(None) };
        let beside = forecast.devices.iter().map(|share| share.kv.saturating_add(share.compute));
        let left = free.saturating_sub(beside.fold(0, u64::saturating_add));
        let mut best: Option<FittingType> = None;
        for file_type in FileType::all() {
            let quantization =
                Quantization { file_type, spread: MixturePolicy::Mixed, threads: 1, importance: None };
            let Ok(bytes) = crate::quantize::bytes(self.model.file(), &quantization) else { continue };
            let larger = best.is_none_or(|best| bytes > best.bytes);
            if bytes <= left && larger {
                best = Some(FittingType { file_type, bytes });
            }
        }
        Ok(best)
    }
}
