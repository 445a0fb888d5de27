//! Counts of the experts that tokens choose: `--expert-stats FILE` writes them, `--experts FILE` places experts by them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use orlop::llm::{Config, ExpertCounter, ExpertCounts};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::model_arguments::ModelArguments;
use crate::output::Output;

/// Where counts are written.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExpertStatsArguments {
    /// Count how often each expert of each layer is chosen, and write the counts to this file, for --experts.
    #[arg(long, value_name = "FILE")]
    expert_stats: Option<PathBuf>,
}

/// Counts that are written to a file when a command has done its work.
pub(crate) struct ExpertStats(Option<(Output, Arc<ExpertCounter>)>);

/// The file: each layer in which experts were chosen.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpertFile {
    layers: Vec<LayerCounts>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerCounts {
    layer: usize,
    /// How often each expert was chosen.
    counts: Vec<u64>,
}

impl ExpertStatsArguments {
    /// Creates the file, if there is to be one.
    pub(crate) fn begin(&self) -> Result<ExpertStats, Failure> {
        let file = self.expert_stats.as_deref().map(Output::create).transpose()?;
        Ok(ExpertStats(file.map(|file| (file, Arc::default()))))
    }
}

impl ExpertStats {
    /// What runs add to.
    pub(crate) fn counter(&self) -> Option<Arc<ExpertCounter>> {
        self.0.as_ref().map(|(_, counter)| Arc::clone(counter))
    }

    /// The arguments of a model whose runs are counted.
    pub(crate) fn counting(&self, arguments: &ModelArguments) -> ModelArguments {
        let mut arguments = arguments.clone();
        arguments.settings.expert_counter = self.counter();
        arguments
    }

    /// Refuses to count where there is nothing to choose.
    pub(crate) fn check(&self, config: &Config) -> Result<(), Failure> {
        match (&self.0, config.experts) {
            (Some(_), None) => Err(Failure::BadInput(
                "--expert-stats counts experts, and the model has none; leave it out".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Writes the file.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Some((mut file, counter)) = self.0 else { return Ok(()) };
        let layers = counter.counts().layers.into_iter();
        let layers = layers.map(|(layer, counts)| LayerCounts { layer, counts }).collect();
        let text = serde_json::to_string(&ExpertFile { layers });
        file.write(&text.map_err(|error| Failure::Other(error.into()))?)?;
        file.write("\n")?;
        file.finish()
    }
}

/// The counts of a file.
pub(crate) fn read(path: &Path) -> Result<ExpertCounts, Failure> {
    let refused = |what: String| {
        Failure::BadInput(format!("{}: {what}; write one with --expert-stats", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let file: ExpertFile = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    let layers = file.layers.into_iter().map(|LayerCounts { layer, counts }| (layer, counts));
    Ok(ExpertCounts { layers: layers.collect() })
}
