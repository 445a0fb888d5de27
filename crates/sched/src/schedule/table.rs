//! A schedule for people: a table, and one split as a drawing.

use std::fmt;

use orlop_graph::Graph;

use crate::{MachineFacts, Schedule, SplitId, Transfer};

impl Schedule {
    /// Bytes that one run transfers; resident copies are left out.
    pub fn copied_bytes(&self) -> u64 {
        self.transfers.iter().filter(|transfer| !transfer.resident).map(Transfer::bytes).sum()
    }

    /// The splits with their inputs and bytes.
    pub fn table<'a>(&'a self, graph: &'a Graph, machine: &'a impl MachineFacts) -> impl fmt::Display + 'a {
        Table { schedule: self, graph, machine }
    }

    /// One split in Graphviz's language, transfers as boxes.
    pub fn split_to_dot(&self, split: SplitId, graph: &Graph) -> Option<String> {
        use fmt::Write;
        let own = self.splits.get(split.index())?;
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let mut dot = format!("digraph split_{split} {{\n");
        for id in &own.nodes {
            let node = graph.node(*id);
            let result = graph.tensor(node.output);
            let label = quoted(&format!("{} {}", result.name, node.op));
            let _ = writeln!(dot, "  {} [label=\"{label}\"];", node.output);
            for input in &node.inputs {
                match own.reads_transfer.get(input) {
                    Some(transfer) => {
                        let label = quoted(&self[*transfer].name);
                        let _ = writeln!(
                            dot,
                            "  c{transfer} [shape=box, label=\"{label}\"];\n  c{transfer} -> {};",
                            node.output
                        );
                    }
                    None => {
                        let _ = writeln!(dot, "  {input} -> {};", node.output);
                    }
                }
            }
        }
        dot.push_str("}\n");
        Some(dot)
    }
}

struct Table<'a, F> {
    schedule: &'a Schedule,
    graph: &'a Graph,
    machine: &'a F,
}

impl<F: MachineFacts> fmt::Display for Table<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Table { schedule, graph, machine } = self;
        for (id, split) in schedule.ids().zip(&schedule.splits) {
            let (name, nodes) = (machine.name(split.device), split.nodes.len());
            let waits: Vec<usize> = split.waits.iter().map(|wait| wait.index()).collect();
            writeln!(f, "split {id} on {name}: {nodes} nodes, waits for {waits:?}")?;
            for transfer in split.transfers.iter().map(|transfer| &schedule[*transfer]) {
                let bytes = transfer.bytes();
                let stays = if transfer.resident { ", resident" } else { "" };
                writeln!(
                    f,
                    "    {} <- {} ({bytes} bytes{stays})",
                    transfer.name,
                    graph.tensor(transfer.root).name
                )?;
            }
        }
        Ok(())
    }
}
