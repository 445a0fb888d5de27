//! Options shared by the commands that run or plan a model.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use orlop::backend::{LowerOptions, Precision};
use orlop::devices::{self, DeviceOptions, DiscoveryError, physical_cores};
use orlop::graph::DType;
use orlop::hub::HubModel;
use orlop::llm::{CacheTypes, CutType, ExpertCounter, LayerChoice, Model, Outputs, Settings};
use orlop::rpc::{RpcError, RpcOptions};
use orlop::sched::Machine;

use crate::adapter_argument::{AdapterArgument, parse_adapter};
use crate::default_model::cache_folder;
use crate::expert_file;
use crate::failure::Failure;
use crate::hub;
use crate::load::model_file;
use crate::measured_speeds::{Renew, measured};
use crate::model_plan_file::ModelPlanFile;
use crate::place::Places;
use crate::quantity::parse_bytes;
use crate::rpc_key::RpcKeyArgument;

/// The model, and how it runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArguments {
    /// Model file (.gguf), or any part of a split model [default: SmolLM2-135M-Instruct, downloaded once]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,
    /// Model of a hub, downloaded if necessary: `org/repo`, or `org/repo:QUANT` (also -hf); see `orlop pull`.
    #[arg(long, visible_alias = "hf", value_name = "MODEL", conflicts_with = "model")]
    pub(crate) hf_repo: Option<HubModel>,
    /// Print devices, memory use and timings to standard error.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) settings: SettingArguments,
}

impl ModelArguments {
    /// The model's file: the given one, one of a hub, or the default model's.
    pub(crate) fn file(&self) -> Result<PathBuf, Failure> {
        match &self.hf_repo {
            Some(model) => Ok(hub::pull(model)?.path().to_owned()),
            None => model_file(self.model.as_deref()),
        }
    }

    /// Whether no model is named.
    pub(crate) fn is_default(&self) -> bool {
        self.model.is_none() && self.hf_repo.is_none()
    }

    /// The selected devices, for a model.
    pub(crate) fn machine(&self, model: &Model) -> Result<Machine, Failure> {
        let predictions = if self.verbose { Predictions::Printed } else { self.settings.predictions };
        SettingArguments { predictions, ..self.settings.clone() }.machine(model)
    }
}

/// How a model runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct SettingArguments {
    /// Sequences in the cache, where a command has several.
    #[arg(skip = 1_u64)]
    pub(crate) sequences: u64,
    /// Whether the command prints predictions.
    #[arg(skip)]
    pub(crate) predictions: Predictions,
    /// What counts the experts that tokens choose, where a command counts them.
    #[arg(skip)]
    pub(crate) expert_counter: Option<Arc<ExpertCounter>>,
    /// Context size in tokens; 0: the model's training context, or as much as fits.
    #[arg(short, long = "ctx-size", value_name = "N", default_value_t = 0)]
    pub(crate) context: u64,
    /// Logical maximum batch size of prompt processing.
    #[arg(short, long = "batch-size", value_name = "N", default_value_t = 2048)]
    pub(crate) batch: u64,
    /// Physical maximum batch size (also -ub).
    #[arg(long = "ubatch-size", visible_alias = "ub", value_name = "N", default_value_t = 512)]
    pub(crate) ubatch: u64,
    /// Number of threads [default: number of usable performance cores]
    #[arg(short, long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<usize>,
    /// Devices, in order of preference; see `orlop devices`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "cpu")]
    pub(crate) device: Vec<String>,
    #[command(flatten)]
    pub(crate) rpc_key: RpcKeyArgument,
    /// Number of layers on the first device, counted from the last (also -ngl) [default: predicted fastest placement]
    #[arg(long = "n-gpu-layers", visible_alias = "ngl", value_name = "N")]
    pub(crate) layers: Option<usize>,
    /// Devices of the model's parts: `layers:0..30/2=NAME,kv=NAME,input=NAME,output=NAME`.
    #[arg(long, value_name = "PLACES", conflicts_with = "layers")]
    pub(crate) place: Option<Places>,
    /// Counts of experts that --expert-stats has written: the predicted fastest placement puts the experts that are chosen most
    /// on the device of the rest of their layer, one by one, and leaves the others on the last device.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["layers", "place"])]
    pub(crate) experts: Option<PathBuf>,
    /// Memory limit of a device, such as `cpu=4GiB`; can be repeated.
    #[arg(long, value_name = "NAME=BYTES", value_parser = parse_budget)]
    pub(crate) budget: Vec<(String, u64)>,
    /// KV cache data type for K (also -ctk).
    #[arg(long = "cache-type-k", visible_alias = "ctk", value_name = "TYPE", default_value = "f16")]
    pub(crate) cache_k: CacheType,
    /// KV cache data type for V (also -ctv).
    #[arg(long = "cache-type-v", visible_alias = "ctv", value_name = "TYPE", default_value = "f16")]
    pub(crate) cache_v: CacheType,
    /// Data type of activations that pass between devices: f16 halves what a network carries, and large ones become infinite.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    pub(crate) cut_type: CutChoice,
    /// Precision of activations that meet quantized weights: int8 is fastest, int16 close to f32, f32 slow.
    #[arg(long, value_name = "HOW", default_value = "int16")]
    pub(crate) precision: PrecisionChoice,
    /// LoRA adapter, as a GGUF file, and the scale of its changes [default: 1]; can be repeated.
    #[arg(long, value_name = "FILE[:SCALE]", value_parser = parse_adapter)]
    pub(crate) lora: Vec<AdapterArgument>,
    /// Use the context, the layout and the memory plans saved by `orlop plan MODEL --save FILE` with the same settings.
    #[arg(id = "saved_plan", long = "plan", value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Use the speeds that devices state instead of measuring them. Devices are measured once, in about two seconds, where
    /// several share a model or predictions are printed; see `orlop devices --measure`.
    #[arg(long)]
    pub(crate) no_measure: bool,
    /// Use weights in the file's layout, without repacking them for speed.
    #[arg(long)]
    pub(crate) no_repack: bool,
    /// Disable operator fusion.
    #[arg(long)]
    pub(crate) no_fusion: bool,
}

/// Whether predictions are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Predictions {
    #[default]
    NotPrinted,
    Printed,
}

/// Element types of the KV cache.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum CacheType {
    F16,
    F32,
    Bf16,
    #[value(name = "q8_0")]
    Q8,
    #[value(name = "q4_0")]
    Q4,
}

impl From<CacheType> for DType {
    fn from(choice: CacheType) -> DType {
        match choice {
            CacheType::F16 => DType::F16,
            CacheType::F32 => DType::F32,
            CacheType::Bf16 => DType::BF16,
            CacheType::Q8 => DType::Q8_0,
            CacheType::Q4 => DType::Q4_0,
        }
    }
}

/// Element types of what passes between devices.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CutChoice {
    F32,
    F16,
}

impl From<CutChoice> for CutType {
    fn from(choice: CutChoice) -> CutType {
        match choice {
            CutChoice::F32 => CutType::F32,
            CutChoice::F16 => CutType::F16,
        }
    }
}

/// Precision of activations.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PrecisionChoice {
    Int8,
    Int16,
    F32,
}

impl From<PrecisionChoice> for Precision {
    fn from(choice: PrecisionChoice) -> Precision {
        match choice {
            PrecisionChoice::Int8 => Precision::Int8,
            PrecisionChoice::Int16 => Precision::Int16,
            PrecisionChoice::F32 => Precision::F32,
        }
    }
}

impl SettingArguments {
    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(physical_cores)
    }

    /// The selected devices, with measured speeds where a layout or predictions depend on them.
    pub(crate) fn machine(&self, model: &Model) -> Result<Machine, Failure> {
        let options = DeviceOptions {
            threads: self.threads(),
            repack: !self.no_repack,
            rpc: RpcOptions { key: self.rpc_key.key()?, ..RpcOptions::default() },
            ..device_options()
        };
        let devices = devices::named(&self.device, &options).map_err(no_device)?;
        let machine = Machine::new(devices).map_err(bad)?;
        let is_chosen = self.place.is_none() && self.layers.is_none() && self.plan.is_none();
        let matters = self.predictions == Predictions::Printed || is_chosen && machine.devices().len() > 1;
        if self.no_measure || !matters {
            return Ok(machine);
        }
        Ok(measured(machine, &self.lower(), &model.product_types(), Renew::IfMissing))
    }

    fn lower(&self) -> LowerOptions {
        LowerOptions {
            max_threads: self.threads(),
            precision: self.precision.into(),
            fusion: !self.no_fusion,
        }
    }

    /// The settings for the library.
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
        let saved = self.plan.as_deref().map(ModelPlanFile::read).transpose()?;
        let layout = match (&self.place, self.layers, &saved) {
            (Some(places), ..) => LayerChoice::Exactly(places.layout(machine, layers)?),
            (None, Some(count), _) => LayerChoice::LastLayers(count),
            (None, None, Some(saved)) => LayerChoice::Exactly(saved.layout(machine)?),
            (None, None, None) => LayerChoice::fastest(),
        };
        let expert_counts = self.experts.as_deref().map(expert_file::read).transpose()?.map(Arc::new);
        let context = (self.context > 0).then_some(self.context);
        let context = context.or(saved.as_ref().map(|saved| saved.context));
        let kept_weights = match &saved {
            Some(saved) => saved.kept_weights(machine)?,
            None => HashMap::new(),
        };
        Ok(Settings {
            context,
            batch: self.batch.min(self.ubatch),
            threads: self.threads(),
            sequences: self.sequences,
            cache: CacheTypes { k: self.cache_k.into(), v: self.cache_v.into() },
            cut: self.cut_type.into(),
            precision: self.precision.into(),
            fusion: !self.no_fusion,
            outputs,
            expert_counter: self.expert_counter.clone(),
            expert_counts,
            plans: saved.map_or_else(|| Arc::new([]) as Arc<[_]>, |saved| saved.plans.into()),
            layout,
            budgets,
            kept_weights,
            ..Settings::default()
        })
    }
}

/// Device options from the environment.
pub(crate) fn device_options() -> DeviceOptions {
    DeviceOptions {
        kernel_cache: cache_folder().ok().map(|folder| folder.join("kernels")),
        kernel_sources: std::env::var_os("ORLOP_KERNELS").map(Into::into),
        ..DeviceOptions::default()
    }
}

pub(crate) fn no_device(error: DiscoveryError) -> Failure {
    match error {
        DiscoveryError::Unknown { .. } => {
            Failure::BadInput(format!("{error}; `orlop devices` lists the devices"))
        }
        DiscoveryError::Remote(error) => remote(error),
        error => Failure::Other(error.into()),
    }
}

/// A server that cannot be used or made.
pub(crate) fn remote(error: RpcError) -> Failure {
    let advice = match error {
        RpcError::Address { .. } => {
            return Failure::BadInput(format!("{error}; write rpc:HOST:PORT"));
        }
        RpcError::NotLoopback { .. } => {
            return Failure::BadInput(format!("{error}; add --rpc-key-file, or --insecure"));
        }
        RpcError::PlainVersion { .. } => {
            return Failure::BadInput(format!("{error}; use another --protocol, or no key"));
        }
        RpcError::NoKey { .. } | RpcError::OtherKey { .. } => "give its key (--rpc-key-file)",
        RpcError::NotEncrypted { .. } => "start it with the key, or use no key",
        RpcError::Listen { .. } => "use another port (--port)",
        RpcError::Protocol { .. } => "use a server of another version",
        _ => "check its address, and that a server runs there",
    };
    Failure::Other(anyhow::anyhow!("{error}; {advice}"))
}

pub(crate) fn parse_threads(text: &str) -> Result<usize, String> {
    let threads = text.parse::<usize>().ok().filter(|threads| *threads > 0);
    threads.ok_or_else(|| "expected a positive number of threads".to_owned())
}

fn parse_budget(text: &str) -> Result<(String, u64), String> {
    let (name, bytes) = text.split_once('=').ok_or("expected NAME=BYTES, such as cpu=4GiB")?;
    Ok((name.to_owned(), parse_bytes(bytes)?))
}

pub(crate) fn bad(error: impl std::fmt::Display) -> Failure {
    Failure::BadInput(error.to_string())
}
