//! Models of a hub, with progress bars and advice.

use std::env;

use anyhow::anyhow;
use orlop::hub::{Hub, HubError, HubModel, HubStage, PulledModel};

use crate::download_bars::{Done, DownloadBars};
use crate::failure::Failure;

/// A model's files, downloaded if they are not in the cache. Shows progress bars on a terminal.
pub(crate) fn pull(model: &HubModel) -> Result<PulledModel, Failure> {
    let mut bars = DownloadBars::default();
    let pulled = Hub::of(&|name| env::var_os(name)).and_then(|hub| {
        hub.pull(model, &mut |stage, done, all| match stage {
            HubStage::Waiting => bars.show("waiting for another program that downloads it", Done::Unknown),
            HubStage::Downloading => bars.show("downloading", Done::Bytes(done, all)),
        })
    });
    drop(bars);
    pulled.map_err(|error| {
        let sentence = format!("{error}; {}", advice(&error));
        match error.is_about_request() {
            true => Failure::BadInput(sentence),
            false => Failure::Other(anyhow!("{sentence}")),
        }
    })
}

fn advice(error: &HubError) -> &'static str {
    match error {
        HubError::Endpoint(_) => "set HF_ENDPOINT to an address such as https://huggingface.co",
        HubError::Token => "set HF_TOKEN to another one",
        HubError::NoRepository { .. } => "check its name",
        HubError::NotAllowed { .. } => {
            "check its name, accept its terms on the hub's page, and set HF_TOKEN to a token that can read it"
        }
        HubError::NoFile { .. } => "name one of these",
        HubError::NoGguf { .. } | HubError::MissingPart { .. } => "use another model",
        HubError::NoFolder | HubError::Cache { .. } => "set HF_HOME to another folder",
        HubError::Offline => "unset it",
        HubError::NoCurl => "install curl, or use a model file (-m)",
        _ => "try again, or use a model file (-m)",
    }
}
