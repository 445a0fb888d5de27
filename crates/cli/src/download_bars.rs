//! Progress bars of downloads.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar for each stage of a download, one after the other, drawn only on a terminal.
#[derive(Default)]
pub(crate) struct DownloadBars {
    shown: Option<(&'static str, ProgressBar)>,
}

/// How much of a stage is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Bytes, of how many.
    Bytes(u64, u64),
    /// It cannot be said.
    Unknown,
}

impl DownloadBars {
    /// Shows how far a stage is.
    pub(crate) fn show(&mut self, stage: &'static str, done: Done) {
        if self.shown.as_ref().is_none_or(|(before, _)| *before != stage) {
            self.shown.iter().for_each(|(_, bar)| bar.finish_and_clear());
            self.shown = Some((stage, bar(stage, done)));
        }
        if let (Some((_, bar)), Done::Bytes(done, _)) = (&self.shown, done) {
            bar.set_position(done);
        }
    }
}

impl Drop for DownloadBars {
    fn drop(&mut self) {
        self.shown.iter().for_each(|(_, bar)| bar.finish_and_clear());
    }
}

fn bar(stage: &'static str, done: Done) -> ProgressBar {
    let (all, template) = match done {
        Done::Bytes(_, all) => (all, "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}"),
        Done::Unknown => (0, "{msg} {spinner}"),
    };
    let bar = ProgressBar::with_draw_target(Some(all), ProgressDrawTarget::stderr()).with_message(stage);
    if done == Done::Unknown {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
