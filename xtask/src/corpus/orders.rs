//! With `--reorder`: validity and savings of orders.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::Outcome;

/// The result of the order of one graph.
pub(super) struct OrderOutcome {
    /// Bytes of the plan in the original order.
    given: u128,
    /// No buffer is larger than in the original order.
    never_larger: bool,
    /// Sources come first, and nodes that touch one `view_src` keep their order.
    legal: bool,
}

impl OrderOutcome {
    /// The reported order, if any, checked.
    pub(super) fn of(graph: &Value, buffers: &[Value], places: &Value) -> Result<Option<OrderOutcome>> {
        let Some(order) = places["order"].as_array() else { return Ok(None) };
        let bytes = |buffer: &Value, key: &str| u128::from(buffer[key].as_u64().unwrap_or(u64::MAX));
        let order: Vec<usize> = order.iter().map(index).collect();
        let nodes = graph["nodes"].as_array().map_or(0, Vec::len);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        ensure!(sorted.into_iter().eq(0..nodes), "{}: the order is not one of all nodes", graph["label"]);
        Ok(Some(OrderOutcome {
            given: buffers.iter().map(|buffer| bytes(buffer, "given")).sum(),
            never_larger: buffers.iter().all(|buffer| bytes(buffer, "peak") <= bytes(buffer, "given")),
            legal: is_legal(graph, &order),
        }))
    }

    pub(super) fn is_right(&self) -> bool {
        self.never_larger && self.legal
    }
}

fn index(value: &Value) -> usize {
    value.as_u64().unwrap_or(u64::MAX) as usize
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Whether an order is valid: sources that are nodes and came before still do, and nodes that access a tensor with views
/// keep their order.
fn is_legal(graph: &Value, order: &[usize]) -> bool {
    let tensors = items(&graph["tensors"]);
    let nodes: Vec<usize> = items(&graph["nodes"]).iter().map(|node| index(&node[0])).collect();
    let mut position = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, node)| position[*node] = at);
    let node_of: HashMap<usize, usize> =
        nodes.iter().enumerate().map(|(node, tensor)| (*tensor, node)).collect();
    let view_src = |tensor: usize| tensors[tensor]["view_src"].as_u64().map(|root| root as usize);
    let mut has_views = vec![false; tensors.len()];
    (0..tensors.len()).filter_map(view_src).for_each(|root| has_views[root] = true);
    let mut last: HashMap<usize, usize> = HashMap::new();
    for (node, tensor) in nodes.iter().enumerate() {
        let sources: Vec<usize> = items(&tensors[*tensor]["src"]).iter().map(index).collect();
        let early = |source: &usize| {
            node_of.get(source).is_some_and(|made| *made < node && position[*made] > position[node])
        };
        if sources.iter().any(early) {
            return false;
        }
        for touched in sources.iter().chain([tensor]) {
            let root = view_src(*touched).unwrap_or(*touched);
            let before = has_views[root].then(|| last.insert(root, position[node])).flatten();
            if before.is_some_and(|before| before > position[node]) {
                return false;
            }
        }
    }
    true
}

/// A table of the savings of orders: one line per file, and the total.
pub(super) fn families(files: &[(String, Vec<Outcome>)]) -> Vec<String> {
    let every: Vec<&Outcome> = files.iter().flat_map(|(_, outcomes)| outcomes).collect();
    if every.iter().all(|graph| graph.order.is_none()) {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "\n{:<24} {:>16} {:>16} {:>16} {:>16} {:>10} {:>8} {:>6} {:>6}",
        "bytes", "ggml", "bound", "given order", "reordered", "below ggml", "smaller", "<=", "legal"
    )];
    for (name, outcomes) in files {
        lines.push(line(name, &outcomes.iter().collect::<Vec<_>>()));
    }
    lines.push(line("all", &every));
    lines
}

fn line(name: &str, graphs: &[&Outcome]) -> String {
    let sum = |bytes: fn(&Outcome) -> u128| graphs.iter().map(|graph| bytes(graph)).sum::<u128>();
    let orders = || graphs.iter().filter_map(|graph| Some((*graph, graph.order.as_ref()?)));
    let (ggml, peak) = (sum(|graph| graph.ggml), sum(|graph| graph.peak));
    let given: u128 = orders().map(|(_, order)| order.given).sum();
    let percent = 100.0 - 100.0 * peak as f64 / ggml.max(1) as f64;
    format!(
        "{name:<24} {ggml:>16} {:>16} {given:>16} {peak:>16} {percent:>8.2} % {:>8} {:>6} {:>6}",
        sum(|graph| graph.bound),
        orders().filter(|(graph, order)| graph.peak < order.given).count(),
        orders().filter(|(_, order)| order.never_larger).count(),
        orders().filter(|(_, order)| order.legal).count(),
    )
}
