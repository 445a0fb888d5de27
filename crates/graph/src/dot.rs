//! Graphs in Graphviz's language.

use std::fmt::Write;

use crate::{Graph, Origin};

impl Graph {
    /// The graph in Graphviz's language: leaves as boxes, nodes as ellipses, storage edges dashed.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph orlop {\n  rankdir=TB;\n");
        for id in self.tensor_ids() {
            let tensor = self.tensor(id);
            let (shape, what) = match tensor.origin {
                Origin::Leaf(leaf) => ("box", format!("{leaf:?}").to_lowercase()),
                Origin::Node(node) => ("ellipse", self.node(node).op.to_string()),
            };
            let rim = if self.outputs().contains(&id) { ", peripheries=2" } else { "" };
            let label = escaped(&format!("{}\n{what} {}", tensor.name, tensor.desc));
            let _ = writeln!(dot, "  {id} [shape={shape}{rim}, label=\"{label}\"];");
        }
        for node in self.nodes() {
            for (slot, input) in node.inputs.iter().enumerate() {
                let _ = writeln!(dot, "  {input} -> {} [label=\"{slot}\"];", node.output);
            }
        }
        for edge in self.storage_edges() {
            let (before, after) = (&self.nodes()[edge.before as usize], &self.nodes()[edge.after as usize]);
            if !after.inputs.contains(&before.output) {
                let _ = writeln!(dot, "  {} -> {} [style=dashed];", before.output, after.output);
            }
        }
        dot.push_str("}\n");
        dot
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
