//! Graphs as JSON.

use serde::{Deserialize, Serialize};

use crate::{Graph, GraphBuilder, GraphError, Leaf, Op, Origin, TensorDesc, TensorId};

/// A graph as text: tensors in the order they were built, so that a tensor's id is its position. Reading goes
/// through the builder, so files are checked like code.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    tensors: Vec<Entry>,
    outputs: Vec<TensorId>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    desc: TensorDesc,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leaf: Option<Leaf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    op: Option<Op>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<TensorId>,
}

const VERSION: u32 = 1;

impl Graph {
    /// The graph as JSON. Infinite and NaN parameters are written as `"inf"`, `"-inf"`, `"NaN"`.
    ///
    /// # Errors
    /// [`GraphError::Json`] if the writer refuses a value.
    pub fn to_json(&self) -> Result<String, GraphError> {
        let entry = |id: TensorId| {
            let tensor = self.tensor(id);
            let (leaf, op, inputs) = match tensor.origin {
                Origin::Leaf(leaf) => (Some(leaf), None, Vec::new()),
                Origin::Node(node) => {
                    let node = self.node(node);
                    (None, Some(node.op.clone()), node.inputs.clone())
                }
            };
            Entry { name: tensor.name.clone(), desc: tensor.desc, leaf, op, inputs }
        };
        let tensors = self.tensor_ids().map(entry).collect();
        let file = File { version: VERSION, tensors, outputs: self.outputs().to_vec() };
        serde_json::to_string(&file).map_err(json_error)
    }

    /// A graph from JSON.
    ///
    /// # Errors
    /// [`GraphError::Json`] with line and column for malformed text, [`GraphError::Version`] for another version of
    /// the format, and all errors of [`GraphBuilder::build`].
    pub fn from_json(text: &str) -> Result<Graph, GraphError> {
        let file: File = serde_json::from_str(text).map_err(json_error)?;
        if file.version != VERSION {
            return Err(GraphError::Version { found: file.version, expected: VERSION });
        }
        let mut builder = GraphBuilder::new();
        for (index, entry) in file.tensors.into_iter().enumerate() {
            let id = match (entry.leaf, entry.op) {
                (Some(leaf), None) if entry.inputs.is_empty() => {
                    builder.leaf(leaf, &entry.name, Ok(entry.desc))
                }
                (None, Some(op)) => builder.node(op, &entry.inputs),
                _ => return Err(GraphError::NeitherLeafNorNode { index, name: entry.name }),
            };
            let computed = builder.desc(id);
            if computed != entry.desc && !builder.failed() {
                builder.fail(GraphError::Disagrees {
                    tensor: id,
                    name: entry.name.clone(),
                    written: entry.desc.to_string(),
                    computed: computed.to_string(),
                });
            }
            builder.name(id, entry.name);
        }
        for output in file.outputs {
            builder.output(output);
        }
        builder.build()
    }
}

fn json_error(error: serde_json::Error) -> GraphError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let message = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text).to_owned();
    GraphError::Json { line, column, message }
}
