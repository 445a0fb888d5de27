//! The memory of a model as a table.

use orlop::llm::{DeviceMemory, Forecast};

use crate::quantity::short_bytes;

/// One line per device. Weights that runs read from the file have a column where there are any.
pub(crate) fn table(forecast: &Forecast) -> String {
    let streams = forecast.devices.iter().any(|share| share.streamed > 0);
    let line = |name: &str, cells: [String; 7]| {
        let shown = cells.iter().enumerate().filter(|(index, _)| *index != STREAMED || streams);
        shown.fold(format!("{name:<8}"), |line, (_, cell)| format!("{line} {cell:>12}"))
    };
    let head = ["weights", "repacked", "streamed", "kv", "compute", "total", "free"];
    let mut lines = vec![line("device", head.map(str::to_owned))];
    for (share, layers) in forecast.devices.iter().zip(&forecast.layers) {
        let DeviceMemory { weights, repacked, streamed, kv, compute, .. } = *share;
        let [weights, repacked, streamed, kv, compute, total] =
            [weights, repacked, streamed, kv, compute, share.total()].map(short_bytes);
        let free = share.free.map_or_else(|| "?".to_owned(), short_bytes);
        lines.push(line(&share.name, [weights, repacked, streamed, kv, compute, total, free]));
        if forecast.devices.len() > 1 {
            lines.push(format!("  {layers} layers"));
        }
    }
    lines.join("\n")
}

/// The column of weights that runs read from the file.
const STREAMED: usize = 2;
