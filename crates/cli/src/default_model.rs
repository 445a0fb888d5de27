//! The default model's file, with progress bars and advice.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use orlop::default_model::{self, FetchStage};

/// The cache folder: `ORLOP_CACHE`, or `orlop` in the user's cache folder.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    default_model::cache_folder(&|name| env::var_os(name))
        .context("no cache folder for the default model; set ORLOP_CACHE, or use a model file (-m)")
}

/// The default model's file, downloaded if it is missing or damaged. Shows progress bars on a terminal.
pub(crate) fn fetch() -> Result<PathBuf> {
    let mut shown: Option<(FetchStage, ProgressBar)> = None;
    let fetched = default_model::fetch(&cache_folder()?, &mut |stage, done, all| {
        if shown.as_ref().is_none_or(|(before, _)| *before != stage) {
            shown.iter().for_each(|(_, bar)| bar.finish_and_clear());
            shown = Some((stage, bar(stage, all)));
        }
        shown.iter().for_each(|(_, bar)| bar.set_position(done));
    });
    shown.iter().for_each(|(_, bar)| bar.finish_and_clear());
    fetched.map_err(|error| match error.is_about_cache() {
        true => anyhow!("{error}; set ORLOP_CACHE to another folder"),
        false => anyhow!("{error}; try again, or use a model file (-m)"),
    })
}

/// A progress bar, which is drawn only on a terminal.
fn bar(stage: FetchStage, bytes: u64) -> ProgressBar {
    let (what, template) = match stage {
        FetchStage::Waiting => {
            ("waiting for another orlop that downloads the default model", "{msg} {spinner}")
        }
        FetchStage::Downloading => ("downloading the default model", BYTES),
        FetchStage::Unpacking => ("unpacking the default model", BYTES),
    };
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr()).with_message(what);
    if stage == FetchStage::Waiting {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

const BYTES: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}";
