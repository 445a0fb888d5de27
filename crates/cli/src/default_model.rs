//! The default model's file, with progress bars and advice.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use orlop::default_model::{self, FetchStage};

use crate::download_bars::{Done, DownloadBars};

/// The cache folder: `ORLOP_CACHE`, or `orlop` in the user's cache folder.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    default_model::cache_folder(&|name| env::var_os(name))
        .context("no cache folder for the default model; set ORLOP_CACHE, or use a model file (-m)")
}

/// The default model's file, downloaded if it is missing or damaged. Shows progress bars on a terminal.
pub(crate) fn fetch() -> Result<PathBuf> {
    let mut bars = DownloadBars::default();
    let fetched = default_model::fetch(&cache_folder()?, &mut |stage, done, all| match stage {
        FetchStage::Waiting => {
            bars.show("waiting for another orlop that downloads the default model", Done::Unknown);
        }
        FetchStage::Downloading => bars.show("downloading the default model", Done::Bytes(done, all)),
        FetchStage::Unpacking => bars.show("unpacking the default model", Done::Bytes(done, all)),
    });
    fetched.map_err(|error| match error.is_about_cache() {
        true => anyhow!("{error}; set ORLOP_CACHE to another folder"),
        false => anyhow!("{error}; try again, or use a model file (-m)"),
    })
}
