//! Options of every command that runs a model.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use orlop::alloc::SavedMemoryPlan;
use orlop::backend::Precision;
use orlop::graph::DType;
use orlop::llm::{CacheTypes, LayerChoice, Outputs, Settings};
use orlop::sched::Machine;

use crate::devices;
use crate::failure::Failure;
use crate::place::Places;
use crate::quantity::parse_bytes;

/// Which model, and how it is to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArguments {
    /// The model (.gguf); of a split one, any part. Without it: SmolLM2-135M-Instruct, fetched once.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    /// Say on standard error which devices there are, what is on them, and how long things take.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) settings: SettingArguments,
}

/// How a model is to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct SettingArguments {
    /// Tokens that the context holds; 0 for as many as the model was trained for, or as fit.
    #[arg(short, long = "ctx-size", value_name = "N", default_value_t = 0)]
    pub(crate) context: u64,
    /// Most tokens of a prompt that are taken in at a time.
    #[arg(short, long = "batch-size", value_name = "N", default_value_t = 2048)]
    pub(crate) batch: u64,
    /// Most tokens of one run (also -ub).
    #[arg(long = "ubatch-size", visible_alias = "ub", value_name = "N", default_value_t = 512)]
    pub(crate) ubatch: u64,
    /// Threads; without it, as many as there are physical cores.
    #[arg(short, long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<usize>,
    /// Devices, most preferred first.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "cpu")]
    pub(crate) device: Vec<String>,
    /// Layers on the first device, from the last (also -ngl); without it, as many as fit.
    #[arg(long = "n-gpu-layers", visible_alias = "ngl", value_name = "N")]
    pub(crate) layers: Option<usize>,
    /// Where parts go: `layers:0..30/2=NAME,kv=NAME,input=NAME,output=NAME`.
    #[arg(long, value_name = "PLACES", conflicts_with = "layers")]
    pub(crate) place: Option<Places>,
    /// Most bytes on a device: `cpu=4GiB`; may be given several times.
    #[arg(long, value_name = "NAME=BYTES", value_parser = parse_budget)]
    pub(crate) budget: Vec<(String, u64)>,
    /// Element type of cached keys (also -ctk).
    #[arg(long = "cache-type-k", visible_alias = "ctk", value_name = "TYPE", default_value = "f16")]
    pub(crate) cache_k: CacheType,
    /// Element type of cached values (also -ctv).
    #[arg(long = "cache-type-v", visible_alias = "ctv", value_name = "TYPE", default_value = "f16")]
    pub(crate) cache_v: CacheType,
    /// `f32` keeps activations as they are; `fast` may round them to 8 bits in products with quantised weights.
    #[arg(long, value_name = "HOW", default_value = "fast")]
    pub(crate) precision: PrecisionChoice,
    /// Use the memory plans that `orlop plan MODEL --save FILE` wrote for the same settings.
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Use weights where the file is mapped instead of repacking or copying them for speed.
    #[arg(long)]
    pub(crate) no_repack: bool,
    /// One kernel for each operation of the graph.
    #[arg(long)]
    pub(crate) no_fusion: bool,
}

/// Element types that caches may have.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum CacheType {
    F16,
    F32,
    Bf16,
    #[value(name = "q8_0")]
    Q8,
}

impl From<CacheType> for DType {
    fn from(choice: CacheType) -> DType {
        match choice {
            CacheType::F16 => DType::F16,
            CacheType::F32 => DType::F32,
            CacheType::Bf16 => DType::BF16,
            CacheType::Q8 => DType::Q8_0,
        }
    }
}

/// How accurately products are computed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PrecisionChoice {
    Fast,
    F32,
}

impl SettingArguments {
    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(devices::physical_cores)
    }

    /// The devices that were asked for.
    pub(crate) fn machine(&self) -> Result<Machine, Failure> {
        devices::machine(&self.device, self.threads(), !self.no_repack)
    }

    fn plans(&self) -> Result<Arc<[SavedMemoryPlan]>, Failure> {
        let Some(path) = &self.plan else { return Ok(Arc::new([])) };
        let refused = |what: String| {
            Failure::BadInput(format!(
                "{}: {what}; make it anew with `orlop plan MODEL --save`",
                path.display()
            ))
        };
        let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
        let plans: Vec<SavedMemoryPlan> =
            serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
        Ok(plans.into())
    }

    /// The same as the library wants to hear it.
    pub(crate) fn settings(
        &self,
        machine: &Machine,
        layers: usize,
        outputs: Outputs,
    ) -> Result<Settings, Failure> {
        let mut budgets = HashMap::new();
        for (name, bytes) in &self.budget {
            budgets.insert(machine.find(name).map_err(bad)?, *bytes);
        }
        let layout = match (&self.place, self.layers) {
            (Some(places), _) => LayerChoice::Exactly(places.layout(machine, layers)?),
            (None, Some(count)) => LayerChoice::LastLayers(count),
            (None, None) => LayerChoice::Fitting,
        };
        Ok(Settings {
            context: (self.context > 0).then_some(self.context),
            batch: self.batch.min(self.ubatch),
            threads: self.threads(),
            cache: CacheTypes { k: self.cache_k.into(), v: self.cache_v.into() },
            precision: match self.precision {
                PrecisionChoice::Fast => Precision::Fast,
                PrecisionChoice::F32 => Precision::F32,
            },
            fusion: !self.no_fusion,
            outputs,
            plans: self.plans()?,
            layout,
            budgets,
            ..Settings::default()
        })
    }
}

/// A number of threads.
pub(crate) fn parse_threads(text: &str) -> Result<usize, String> {
    let threads = text.parse::<usize>().ok().filter(|threads| *threads > 0);
    threads.ok_or_else(|| "give a number of threads from 1".to_owned())
}

fn parse_budget(text: &str) -> Result<(String, u64), String> {
    let (name, bytes) = text.split_once('=').ok_or("write it as NAME=BYTES, such as cpu=4GiB")?;
    Ok((name.to_owned(), parse_bytes(bytes)?))
}

pub(crate) fn bad(error: impl std::fmt::Display) -> Failure {
    Failure::BadInput(error.to_string())
}
