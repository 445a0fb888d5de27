//! Graph files: ggml graphs, one JSON object per line, and Orlop graphs.

mod checks;
mod cost;
mod line;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use orlop::alloc::{
    ArenaId, ArenaInfo, Assignment, Flags, GraphAllocator, OverwritePair, StepFacts, StepView, Unread, Usage,
    ValueId, ValueInfo,
};
use orlop::backend::HostBufferType;
use orlop::graph::Graph;
use orlop::view::Kind;

use crate::failure::Failure;
use crate::input::Input;
use line::{Line, Tensor};

/// A graph to plan.
#[derive(Debug)]
pub(crate) struct GraphCase {
    pub(crate) label: String,
    /// File and line, for messages.
    pub(crate) location: String,
    /// The lifetimes of its values. An arena is a buffer of the file, by position.
    pub(crate) usage: Arc<Usage>,
    /// Op and kind of each value, by position.
    pub(crate) tags: Vec<Tag>,
    /// Estimated times of its steps.
    pub(crate) facts: StepFacts,
}

/// Facts about a value for pictures.
#[derive(Clone, Debug)]
pub(crate) struct Tag {
    /// The op that computes it.
    pub(crate) op: String,
    pub(crate) kind: Kind,
}

/// Reads all graphs of a file; fails at the first invalid one.
pub(crate) fn read_lines(input: &Input) -> Result<Vec<GraphCase>, Failure> {
    let mut cases = Vec::new();
    let lines = input.text.split('\n').zip(1..).filter(|(text, _)| !text.trim().is_empty());
    for (text, number) in lines {
        let line: Line<'_> = serde_json::from_str(text).map_err(|error| unreadable(input, number, &error))?;
        let usage = checks::check(&line).and_then(|()| {
            let usage = usage_of(&line);
            usage.validate().map_err(|error| error.to_string())?;
            checks::check_sizes(&usage).map(|()| usage)
        });
        let location = format!("{}, line {number}", input.name);
        let usage = usage.map_err(|what| {
            Failure::in_file(
                &input.name,
                format_args!("line {number}"),
                format_args!("{what}; correct the graph"),
            )
        })?;
        let tags = tags_of(&line);
        let facts = cost::of_line(&line);
        let label = line.label.into_owned();
        cases.push(GraphCase { label, location, usage: Arc::new(usage), tags, facts });
    }
    Ok(cases)
}

/// Reads an Orlop graph, to be planned in one arena of host memory.
pub(crate) fn read_own(input: &Input) -> Result<GraphCase, Failure> {
    let fault = |error: &dyn std::fmt::Display| {
        Failure::BadInput(format!("{}: {error}; correct or recreate the graph", input.name))
    };
    let graph = Graph::from_json(&input.text).map_err(|error| fault(&error))?;
    let allocator = GraphAllocator::new([HostBufferType::new("host") as _]).map_err(|error| fault(&error))?;
    let usage = allocator.usage(&graph, &Assignment::default()).map_err(|error| fault(&error))?;
    checks::check_sizes(&usage).map_err(|what| fault(&what))?;
    let label = Path::new(&input.name)
        .file_name()
        .map_or_else(|| input.name.clone(), |name| name.to_string_lossy().into_owned());
    let tags = own_tags(&graph);
    let facts = cost::of_graph(&graph, &usage);
    Ok(GraphCase { label, location: input.name.clone(), usage: Arc::new(usage), tags, facts })
}

/// Nodes without sources and op receive copies of another device's results.
fn tags_of(line: &Line<'_>) -> Vec<Tag> {
    let tag = |tensor: &Tensor<'_>| Tag { op: tensor.op.to_string(), kind: Kind::Activation };
    let mut tags: Vec<Tag> = line.tensors.iter().map(tag).collect();
    line.leaves.iter().for_each(|(tensor, _)| tags[*tensor].kind = Kind::Input);
    for (tensor, _) in &line.nodes {
        let node = &line.tensors[*tensor];
        if node.op == "NONE" && node.src.is_empty() && node.view_src < 0 {
            tags[*tensor] = Tag { op: "COPY".to_owned(), kind: Kind::Copy };
        }
    }
    tags
}

fn own_tags(graph: &Graph) -> Vec<Tag> {
    let input = Tag { op: "input".to_owned(), kind: Kind::Input };
    let mut tags = vec![input; graph.tensors().len()];
    for node in graph.nodes() {
        tags[node.output.index()] = Tag { op: node.op.name().to_owned(), kind: Kind::Activation };
    }
    tags
}

fn unreadable(input: &Input, line: usize, error: &serde_json::Error) -> Failure {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    Failure::in_file(
        &input.name,
        format_args!("line {line}, column {}", error.column()),
        format_args!("{what}; each line must be a graph in JSON"),
    )
}

/// The usage of a checked graph. Values are its tensors, steps its nodes, both by position.
fn usage_of(line: &Line<'_>) -> Usage {
    let arenas = line.buffers.iter().map(|buffer| ArenaInfo {
        name: buffer.name.clone().into_owned(),
        alignment: buffer.alignment,
        max_chunk: buffer.max_size,
    });
    let mut usage = Usage::new(arenas.collect(), Unread::LivesOn);
    let arena = |buffer: usize| ArenaId::new(line.buffers[buffer].same_as);

    let mut is_node = vec![false; line.tensors.len()];
    line.nodes.iter().for_each(|(tensor, _)| is_node[*tensor] = true);
    let extents = extents(line);
    let mut layouts = HashMap::new();
    for (index, tensor) in line.tensors.iter().enumerate() {
        let fresh = layouts.len() as u32;
        let layout = *layouts.entry((&tensor.dtype, tensor.ne, tensor.nb)).or_insert(fresh);
        let root = tensor.view_of().unwrap_or(index);
        let flags = Flags {
            input: tensor.input,
            output: tensor.output,
            external: line.tensors[root].external,
            marker: is_node[index] && tensor.is_marker(),
        };
        let offset = if root == index { 0 } else { tensor.view_offs };
        let info = ValueInfo { bytes: extents[index], root: ValueId::new(root), offset, layout, flags };
        usage.push_value(tensor.name.as_ref(), info);
    }

    usage.leaves =
        line.leaves.iter().map(|(tensor, buffer)| (ValueId::new(*tensor), arena(*buffer))).collect();
    for (step, (tensor, buffer)) in line.nodes.iter().enumerate() {
        let node = &line.tensors[*tensor];
        let reads: Vec<ValueId> = node.src.iter().map(|source| ValueId::new(*source)).collect();
        let slots = if node.inplace { 0..reads.len() as u32 } else { 0..0 };
        let overwrites: Vec<OverwritePair> = slots.map(|read| OverwritePair { write: 0, read }).collect();
        usage.push_step(StepView {
            arena: arena(*buffer),
            group: step as u32,
            reads: &reads,
            writes: &[ValueId::new(*tensor)],
            overwrites: &overwrites,
        });
    }
    usage
}

/// Bytes of each tensor. The size of external memory is not planned and may be wrong in the file, so it is raised to the
/// extent of its views.
fn extents(line: &Line<'_>) -> Vec<u64> {
    let mut bytes: Vec<u64> = line.tensors.iter().map(|tensor| tensor.bytes).collect();
    for tensor in &line.tensors {
        if let Some(root) = tensor.view_of()
            && line.tensors[root].external
        {
            bytes[root] = bytes[root].max(tensor.view_offs.saturating_add(tensor.bytes));
        }
    }
    bytes
}

impl Tensor<'_> {
    /// The tensor that this one is a view of.
    fn view_of(&self) -> Option<usize> {
        usize::try_from(self.view_src).ok()
    }

    /// A node that only extends the lifetime of its source.
    fn is_marker(&self) -> bool {
        self.op == "NONE" && self.view_src >= 0
    }
}
