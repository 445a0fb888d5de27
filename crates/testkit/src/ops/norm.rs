//! Normalization of rows and of groups of channels.

use crate::Elements;

pub(super) fn norm(x: &Elements, eps: f32) -> Vec<f64> {
    x.rows().flat_map(|row| standardised(row, eps)).collect()
}

pub(super) fn rms_norm(x: &Elements, eps: f32) -> Vec<f64> {
    let rows = x.rows().flat_map(|row| {
        let root = (squares(row) / row.len() as f64 + f64::from(eps)).sqrt();
        row.iter().map(move |x| x / root)
    });
    rows.collect()
}

pub(super) fn l2_norm(x: &Elements, eps: f32) -> Vec<f64> {
    let rows = x.rows().flat_map(|row| {
        let length = squares(row).sqrt().max(f64::from(eps));
        row.iter().map(move |x| x / length)
    });
    rows.collect()
}

/// Channels are dimension 2. Groups are equally large but for the last ones, which may be smaller or empty.
pub(super) fn group_norm(x: &Elements, groups: u32, eps: f32) -> Vec<f64> {
    let [width, height, channels, _] = x.extents();
    let group = channels.div_ceil(groups as usize).max(1) * width * height;
    // Groups do not reach from one picture into the next.
    let pictures = x.values().chunks((width * height * channels).max(1));
    pictures.flat_map(|picture| picture.chunks(group.max(1))).flat_map(|x| standardised(x, eps)).collect()
}

/// Mean 0 and variance 1, where the variance is that of these elements alone: divided by their number.
fn standardised(x: &[f64], eps: f32) -> impl Iterator<Item = f64> {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
    let deviation = (variance + f64::from(eps)).sqrt();
    x.iter().map(move |x| (x - mean) / deviation)
}

fn squares(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}
