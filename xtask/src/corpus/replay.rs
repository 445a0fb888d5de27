//! Executes a graph's nodes, and a plan's steps at their addresses, on numbers that stand for contents. Knows the files only.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Nodes that compute nothing.
const VIEWS: [&str; 5] = ["NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"];

/// Contents that nothing has set.
const UNSET: usize = usize::MAX;

/// Numbers for contents: equal recipes give equal numbers.
#[derive(Default)]
struct Contents(HashMap<Vec<usize>, usize>);

impl Contents {
    fn of(&mut self, recipe: Vec<usize>) -> usize {
        let next = self.0.len();
        *self.0.entry(recipe).or_insert(next)
    }

    fn initial(&mut self, tensor: usize) -> usize {
        self.of(vec![tensor])
    }

    /// What a node leaves in a root that held `old`, from what it read.
    fn result(&mut self, node: usize, old: Option<usize>, reads: &[usize]) -> usize {
        let head = [node, old.map_or(UNSET, |old| old), usize::from(old.is_some())];
        self.of(head.into_iter().chain(reads.iter().copied()).collect())
    }
}

/// A graph of a file.
struct Graph<'a> {
    tensors: &'a [Value],
    /// The tensor of each node.
    nodes: Vec<usize>,
    alignment: u64,
}

impl<'a> Graph<'a> {
    fn new(graph: &'a Value) -> Result<Graph<'a>> {
        Ok(Graph {
            tensors: items(&graph["tensors"])?,
            nodes: items(&graph["nodes"])?.iter().map(|node| index(&node[0])).collect::<Result<_>>()?,
            alignment: graph["buffers"][0]["alignment"].as_u64().context("no alignment")?,
        })
    }

    fn root(&self, tensor: usize) -> usize {
        self.tensors[tensor]["view_src"].as_u64().map_or(tensor, |root| root as usize)
    }

    fn sources(&self, tensor: usize) -> Result<Vec<usize>> {
        items(&self.tensors[tensor]["src"])?.iter().map(index).collect()
    }

    fn has(&self, tensor: usize, flag: &str) -> bool {
        self.tensors[tensor][flag] == Value::Bool(true)
    }

    fn computes(&self, tensor: usize) -> bool {
        !VIEWS.iter().any(|view| self.tensors[tensor]["op"] == *view)
    }

    /// Rounded up.
    fn bytes(&self, tensor: usize) -> u64 {
        self.tensors[tensor]["bytes"].as_u64().unwrap_or(0).next_multiple_of(self.alignment)
    }

    /// Whether a root holds something before the first node.
    fn begins(&self, graph: &Value) -> Result<Vec<bool>> {
        let mut begins: Vec<bool> =
            (0..self.tensors.len()).map(|t| self.has(t, "input") || self.has(t, "external")).collect();
        for leaf in items(&graph["leafs"])? {
            begins[self.root(index(&leaf[0])?)] = true;
        }
        Ok(begins)
    }

    /// Roots that are read from outside after the last node: outputs, and what no node reads.
    fn stays(&self) -> Result<Vec<bool>> {
        let mut is_read = vec![false; self.tensors.len()];
        for tensor in &self.nodes {
            for source in self.sources(*tensor)? {
                is_read[source] = true;
                is_read[self.root(source)] = true;
            }
        }
        let mut stays: Vec<bool> = (0..self.tensors.len()).map(|tensor| self.has(tensor, "output")).collect();
        for tensor in self.nodes.iter().filter(|tensor| !is_read[**tensor]) {
            let is_marker = self.tensors[*tensor]["op"] == "NONE" && self.root(*tensor) != *tensor;
            stays[self.root(*tensor)] |= !is_marker;
        }
        Ok(stays)
    }
}

/// Values of a plan: the tensor that each holds, the value whose memory it is in, and where that is.
struct Memory {
    tensor: Vec<usize>,
    root: Vec<usize>,
    place: HashMap<usize, (u64, u64, u64)>,
    /// Per chunk, the end, the value and the contents at each offset.
    chunks: BTreeMap<u64, BTreeMap<u64, (u64, usize, usize)>>,
    /// Contents of values without a place, which are not in the buffer.
    outside: HashMap<usize, usize>,
}

impl Memory {
    fn write(&mut self, value: usize, contents: usize) {
        let Some((chunk, from, to)) = self.place.get(&value).copied() else {
            self.outside.insert(value, contents);
            return;
        };
        let ranges = self.chunks.entry(chunk).or_default();
        ranges.retain(|at, (end, ..)| *end <= from || *at >= to);
        ranges.insert(from, (to, value, contents));
    }

    fn read(&self, value: usize) -> Option<usize> {
        let Some((chunk, from, _)) = self.place.get(&value) else { return self.outside.get(&value).copied() };
        let (_, holder, contents) = self.chunks.get(chunk)?.get(from)?;
        (*holder == value).then_some(*contents)
    }
}

/// Checks that each step of a plan reads what its node reads in the given order, that every node runs once, that results are
/// there at the end, and that no value ends above `peak`.
pub(super) fn replay(graph: &Value, placed: &Value, peak: u64) -> Result<()> {
    let file = Graph::new(graph)?;
    let mut contents = Contents::default();
    let begins = file.begins(graph)?;
    let mut last: Vec<usize> = Vec::with_capacity(begins.len());
    for (tensor, begins) in begins.iter().enumerate() {
        last.push(if *begins { contents.initial(tensor) } else { UNSET });
    }
    let mut expected = Vec::with_capacity(file.nodes.len());
    for (node, tensor) in file.nodes.iter().enumerate() {
        let reads: Vec<usize> =
            file.sources(*tensor)?.iter().map(|source| last[file.root(*source)]).collect();
        let root = file.root(*tensor);
        if file.computes(*tensor) {
            last[root] = contents.result(node, (root != *tensor).then_some(last[root]), &reads);
        }
        expected.push(reads);
    }

    let mut memory = read_memory(&file, placed, peak)?;
    for value in 0..memory.tensor.len() {
        let tensor = memory.tensor[value];
        // The first value of a tensor is its own; others are copies.
        if value == tensor && memory.root[value] == value && begins[tensor] {
            memory.write(value, contents.initial(tensor));
        }
    }
    let mut runs = vec![0; file.nodes.len()];
    for (at, step) in items(&placed["steps"])?.iter().enumerate() {
        let list = |key: &str| items(&step[key])?.iter().map(index).collect::<Result<Vec<usize>>>();
        let (reads, writes) = (list("reads")?, list("writes")?);
        match step["what"].as_str() {
            Some(what @ ("run" | "again")) => {
                let node = index(&step["node"])?;
                let tensor = *file.nodes.get(node).context("an unknown node")?;
                runs[node] += usize::from(what == "run");
                let tensors: Vec<usize> = reads.iter().map(|value| memory.tensor[*value]).collect();
                ensure!(tensors == file.sources(tensor)?, "step {at} reads other tensors than node {node}");
                ensure!(
                    matches!(writes[..], [value] if memory.tensor[value] == tensor),
                    "step {at} writes other tensors than node {node}"
                );
                for (value, wanted) in reads.iter().zip(&expected[node]) {
                    let root = memory.root[*value];
                    let is_empty = file.bytes(memory.tensor[root]) == 0;
                    let is_right = is_empty || *wanted == UNSET || memory.read(root) == Some(*wanted);
                    ensure!(is_right, "step {at} reads other contents of tensor {}", memory.tensor[root]);
                }
                if file.computes(tensor) {
                    let root = memory.root[writes[0]];
                    let old = (root != writes[0]).then(|| memory.read(root).unwrap_or(UNSET));
                    memory.write(root, contents.result(node, old, &expected[node]));
                }
            }
            Some("spill" | "restore") => {
                let (Some(from), [to]) = (reads.first(), &writes[..]) else {
                    bail!("step {at} copies nothing")
                };
                ensure!(memory.tensor[*from] == memory.tensor[*to], "step {at} copies to another tensor");
                let moved = memory.read(*from).with_context(|| format!("step {at} copies what is gone"))?;
                memory.write(*to, moved);
            }
            other => bail!("step {at} is {other:?}"),
        }
    }
    ensure!(runs.iter().all(|runs| *runs == 1), "a node does not run once");
    for (tensor, stays) in file.stays()?.into_iter().enumerate() {
        let is_kept = (stays || file.has(tensor, "external")) && file.root(tensor) == tensor;
        if !is_kept || last[tensor] == UNSET || file.bytes(tensor) == 0 {
            continue;
        }
        let holds = |value: usize| {
            let is_inside = memory.place.contains_key(&value) != file.has(tensor, "external");
            memory.tensor[value] == tensor && is_inside && memory.read(value) == Some(last[tensor])
        };
        ensure!((0..memory.tensor.len()).any(holds), "the result in tensor {tensor} is gone");
    }
    Ok(())
}

fn read_memory(file: &Graph<'_>, placed: &Value, peak: u64) -> Result<Memory> {
    let values = items(&placed["values"])?;
    let column =
        |number: usize| values.iter().map(|value| index(&value[number])).collect::<Result<Vec<usize>>>();
    let (tensor, root) = (column(0)?, column(1)?);
    let mut place = HashMap::new();
    let mut heights: HashMap<u64, u64> = HashMap::new();
    for at in items(&placed["plan"])? {
        let (value, chunk, offset) = (index(&at[0])?, index(&at[2])? as u64, index(&at[3])? as u64);
        let end = offset + file.bytes(*tensor.get(value).context("an unknown value")?);
        if end > offset {
            place.insert(value, (chunk, offset, end));
            let height = heights.entry(chunk).or_default();
            *height = end.max(*height);
        }
    }
    let total: u64 = heights.values().sum();
    ensure!(total <= peak, "values end at {total}, above the peak of {peak}");
    Ok(Memory { tensor, root, place, chunks: BTreeMap::new(), outside: HashMap::new() })
}

fn items(value: &Value) -> Result<&[Value]> {
    value.as_array().map(Vec::as_slice).context("a list is missing")
}

fn index(value: &Value) -> Result<usize> {
    value.as_u64().map(|number| number as usize).context("a number is missing")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tensor(op: &str, external: bool, src: &[usize]) -> Value {
        let output = src.len() == 2;
        json!({"op": op, "bytes": 32, "view_src": -1, "input": false, "output": output, "external": external, "src": src})
    }

    /// `a = f(x)`, `b = g(a)`, `c = h(b, a)`.
    fn graph() -> Value {
        let tensors = [
            tensor("NONE", true, &[]),
            tensor("F", false, &[0]),
            tensor("G", false, &[1]),
            tensor("H", false, &[2, 1]),
        ];
        json!({"buffers": [{"alignment": 32}], "tensors": tensors, "leafs": [], "nodes": [[1, 0], [2, 0], [3, 0]]})
    }

    fn step(what: &str, node: usize, reads: &[usize], write: usize) -> Value {
        json!({"what": what, "node": node, "reads": reads, "writes": [write]})
    }

    /// Value 4 is `a` again, at an address.
    fn plan(again: &[Value], at: u64) -> Value {
        let mut steps = vec![step("run", 0, &[0], 1), step("run", 1, &[1], 2)];
        steps.extend(again.iter().cloned());
        steps.push(step("run", 2, &[2, 4], 3));
        json!({
            "values": [[0, 0], [1, 1], [2, 2], [3, 3], [1, 4]],
            "plan": [[1, 0, 0, 0], [2, 0, 0, 32], [3, 0, 0, 64], [4, 0, 0, at]],
            "steps": steps,
        })
    }

    #[test]
    fn a_plan_that_computes_a_value_again_is_right() {
        let again = [step("again", 0, &[0], 4)];
        replay(&graph(), &plan(&again, 0), 96).expect("the same values");
        assert!(replay(&graph(), &plan(&again, 0), 95).is_err(), "above the peak");
    }

    #[test]
    fn a_plan_that_reads_what_is_not_there_is_wrong() {
        assert!(replay(&graph(), &plan(&[], 0), 96).is_err(), "value 4 is never written");
        let again = [step("again", 0, &[0], 4)];
        assert!(replay(&graph(), &plan(&again, 32), 96).is_err(), "it lies on tensor 2");
        let twice = [step("run", 0, &[0], 4)];
        assert!(replay(&graph(), &plan(&twice, 0), 96).is_err(), "a node runs twice");
    }
}
