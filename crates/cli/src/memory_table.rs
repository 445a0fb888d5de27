//! The memory of a model as a table.

use orlop::llm::{DeviceMemory, Forecast};

use crate::quantity::short_bytes;

/// One line per device.
pub(crate) fn table(forecast: &Forecast) -> String {
    let head = ["device", "weights", "repacked", "kv", "compute", "total", "free"];
    let mut lines = vec![row(head.map(str::to_owned))];
    for (share, layers) in forecast.devices.iter().zip(&forecast.layers) {
        let DeviceMemory { weights, repacked, kv, compute, .. } = *share;
        let [weights, repacked, kv, compute, total] =
            [weights, repacked, kv, compute, share.total()].map(short_bytes);
        let free = share.free.map_or_else(|| "?".to_owned(), short_bytes);
        lines.push(row([share.name.clone(), weights, repacked, kv, compute, total, free]));
        if forecast.devices.len() > 1 {
            lines.push(format!("  {layers} layers"));
        }
    }
    lines.join("\n")
}

fn row(cells: [String; 7]) -> String {
    let [name, rest @ ..] = cells;
    rest.iter().fold(format!("{name:<8}"), |line, cell| format!("{line} {cell:>12}"))
}
