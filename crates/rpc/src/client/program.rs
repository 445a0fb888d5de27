//! Programs: the nodes of a split at their places, as the payload of GRAPH_COMPUTE.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use orlop_backend::{Bindings, Buffer, DeviceError, Program, StepValue, Steps, Touch, touched};
use orlop_graph::{AccessKind, DType, Graph, NodeId, Op, Origin, SortDirection, TensorDesc, Unary};

use super::device::RpcDevice;
use super::endpoint::Endpoint;
use super::lower::{self, MASKS};
use super::masks::{MaskKey, is_written, parts_of};
use super::memory::RpcBuffer;
use super::support::normal;
use crate::codec::{GgmlOp, GraphMessage, OpNumbers, SOURCES, SourceOrder, TensorRecord};

/// A program for one device of a server.
pub(super) struct RpcProgram {
    endpoint: Arc<Endpoint>,
    device: u32,
    /// Its number on the connection.
    id: u64,
    nodes: Vec<BoundNode>,
    masks: Vec<BoundMask>,
    /// Row numbers among the operands that the host can look at.
    indices: Vec<Indices>,
    /// For each touched buffer, what the server writes.
    written: Vec<Vec<Range<u64>>>,
    touches: Vec<Touch>,
    sent: Mutex<Sent>,
}

/// The message as it was made last, and how often one was made.
#[derive(Default)]
struct Sent {
    form: Option<Form>,
    number: u64,
    message: Vec<u8>,
}

/// What a message depends on beside the program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Form {
    masks: Vec<MaskForm>,
    /// For each list of row numbers to be written, the runs that are not skipped.
    runs: Vec<Option<Vec<Range<u64>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MaskForm {
    rows: u64,
    /// The host sends the mask, rather than bounds to make it from.
    sent: bool,
}

/// A tensor at its place.
#[derive(Clone, Copy, Debug)]
struct Placed {
    desc: TensorDesc,
    /// Number of the buffer among the touched ones.
    buffer: usize,
    offset: u64,
    handle: u64,
    address: u64,
}

struct BoundNode {
    op: Op,
    name: String,
    inputs: Vec<Placed>,
    output: Placed,
    prepared: Option<Placed>,
    tail: Option<Placed>,
    /// The mask that attention reads.
    mask: Option<usize>,
    /// Its row numbers.
    indices: Option<usize>,
}

struct BoundMask {
    key: MaskKey,
    lengths: Placed,
    firsts: Option<Placed>,
    pages: Option<[Placed; 2]>,
    bounds: Placed,
    numbers: Placed,
    distances: Placed,
    mask: Placed,
}

/// Row numbers that the host wrote: checked before the server sees them, as it would end itself.
struct Indices {
    op: &'static str,
    name: String,
    at: Placed,
    rows: u64,
    /// They say where rows are written, and -1 skips one.
    writes: bool,
}

impl RpcProgram {
    pub(super) fn new(
        device: &RpcDevice,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<RpcProgram, DeviceError> {
        let touches = touched(steps, bindings)?;
        let graph = &bindings.graph;
        let all: Vec<NodeId> = steps.steps.iter().flat_map(|step| &step.nodes).copied().collect();
        let binder = Binder { device, bindings, touches: &touches, nodes: &all };
        let keys = MaskKey::all(graph, all.iter().copied());
        let (mut nodes, mut masks, mut indices) = (Vec::new(), Vec::new(), Vec::new());
        let mut written = vec![Vec::new(); touches.len()];
        for step in &steps.steps {
            let mut own = &step.writes[..];
            if step.kernel == MASKS {
                masks = keys
                    .iter()
                    .enumerate()
                    .map(|(number, key)| binder.mask(key, parts_of(own, number)))
                    .collect::<Result<_, _>>()?;
                for mask in &masks {
                    for part in [&mask.numbers, &mask.distances, &mask.mask] {
                        written[part.buffer].push(part.offset..part.offset + part.desc.bytes());
                    }
                }
                own = &[];
            } else if let [node] = step.nodes[..] {
                let mut bound = binder.node(node, &step.writes)?;
                bound.mask = lower::mask_of(graph, node, &keys);
                if let Some(found) = binder.indices(node, &bound) {
                    bound.indices = Some(indices.len());
                    indices.push(found);
                }
                nodes.push(bound);
            }
            for value in own {
                let bytes = match value {
                    StepValue::Tensor(id) => graph.tensor(*id).desc.bytes(),
                    StepValue::Temporary(number) => steps.temporaries[*number].bytes,
                };
                let place = binder.place(*value, TensorDesc { extents: [0; 4], ..F32_NOTHING })?;
                written[place.buffer].push(place.offset..place.offset + bytes);
            }
        }
        let written = written.into_iter().map(merged).collect();
        let endpoint = Arc::clone(device.endpoint());
        let id = endpoint.next_program();
        let device = device.number();
        let sent = Mutex::default();
        Ok(RpcProgram { endpoint, device, id, nodes, masks, indices, written, touches, sent })
    }

    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    pub(super) fn device(&self) -> u32 {
        self.device
    }

    /// Gives the server its work. The caller holds claims to all that the program touches.
    pub(super) fn run(&self) -> Result<(), DeviceError> {
        let runs = self.indices.iter().map(|indices| self.runs(indices)).collect::<Result<_, _>>()?;
        let masks = self.masks.iter().map(|mask| self.prepare(mask)).collect::<Result<_, _>>()?;
        let form = Form { masks, runs };
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.form.as_ref() != Some(&form) {
            let message = self.message(&form)?;
            sent.message.clear();
            message.write(&mut sent.message);
            sent.number += 1;
            sent.form = Some(form);
        }
        self.endpoint.give_graph(self.device, [self.id, sent.number], &sent.message)?;
        for (number, ranges) in self.written.iter().enumerate() {
            let mut known = self.buffer(number)?.known();
            ranges.iter().for_each(|range| known.forget(range));
        }
        Ok(())
    }

    fn buffer(&self, number: usize) -> Result<&RpcBuffer, DeviceError> {
        own_buffer(&*self.touches[number].0, &self.endpoint)
    }

    /// The integers of a tensor.
    fn integers(&self, tensor: &Placed) -> Result<Vec<i64>, DeviceError> {
        let mut bytes = vec![0; tensor.desc.bytes() as usize];
        self.buffer(tensor.buffer)?.fetch(tensor.offset, &mut bytes)?;
        Ok(match tensor.desc.dtype {
            DType::I64 => bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
            _ => bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect(),
        })
    }

    /// Sends what the server makes a mask from, or the mask.
    fn prepare(&self, mask: &BoundMask) -> Result<MaskForm, DeviceError> {
        let numbers = |tensor: &Placed| -> Result<Vec<i32>, DeviceError> {
            Ok(self.integers(tensor)?.into_iter().map(|number| number as i32).collect())
        };
        let lengths = numbers(&mask.lengths)?;
        let firsts = mask.firsts.as_ref().map(numbers).transpose()?.unwrap_or_default();
        let [pages, sequences] = match &mask.pages {
            Some([pages, sequences]) => [numbers(pages)?, numbers(sequences)?],
            None => [Vec::new(), Vec::new()],
        };
        let seen = mask.key.seen([&lengths, &firsts, &pages, &sequences]);
        let rows = mask.key.bucket(seen.end());
        match seen.bounds() {
            Some(bounds) => self.buffer(mask.bounds.buffer)?.put(mask.bounds.offset, &bounds)?,
            None => {
                self.buffer(mask.mask.buffer)?.put(mask.mask.offset, &seen.mask(rows))?;
                return Ok(MaskForm { rows, sent: true });
            }
        }
        Ok(MaskForm { rows, sent: false })
    }

    /// Checks row numbers; of those that are written, the runs without -1.
    fn runs(&self, indices: &Indices) -> Result<Option<Vec<Range<u64>>>, DeviceError> {
        let numbers = self.integers(&indices.at)?;
        let skipped = |number: i64| indices.writes && number == -1;
        let fits = |number: i64| skipped(number) || u64::try_from(number).is_ok_and(|row| row < indices.rows);
        if let Some(bad) = numbers.iter().find(|number| !fits(**number)) {
            return Err(DeviceError::BadIndex {
                op: indices.op.to_owned(),
                tensor: indices.name.clone(),
                index: *bad,
                rows: indices.rows,
            });
        }
        if !indices.writes || !numbers.iter().any(|number| skipped(*number)) {
            return Ok(None);
        }
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (row, number) in (0u64..).zip(&numbers) {
            match runs.last_mut() {
                _ if skipped(*number) => {}
                Some(run) if run.end == row => run.end += 1,
                _ => runs.push(row..row + 1),
            }
        }
        Ok(Some(runs))
    }

    fn message(&self, form: &Form) -> Result<GraphMessage, DeviceError> {
        let mut draft = Draft::new(self.device, self.endpoint.dialect.ops);
        for (mask, form) in self.masks.iter().zip(&form.masks).filter(|(_, form)| !form.sent) {
            draft.mask(mask, form.rows)?;
        }
        for node in &self.nodes {
            let mask = node.mask.map(|mask| (self.masks[mask].mask, form.masks[mask].rows));
            let runs = node.indices.and_then(|indices| form.runs[indices].as_deref());
            draft.node(node, mask, runs)?;
        }
        Ok(draft.message)
    }
}

const F32_NOTHING: TensorDesc = TensorDesc { dtype: DType::F32, extents: [0; 4], strides: [4; 4] };

/// Ranges in order, those that touch as one.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn own_buffer<'a>(buffer: &'a dyn Buffer, endpoint: &Arc<Endpoint>) -> Result<&'a RpcBuffer, DeviceError> {
    let own = buffer.as_any().and_then(|any| any.downcast_ref::<RpcBuffer>());
    own.filter(|own| Arc::ptr_eq(&own.endpoint, endpoint)).ok_or_else(|| DeviceError::Foreign {
        what: "a buffer",
        owner: buffer.buffer_type().name().to_owned(),
        device: endpoint.name.clone(),
    })
}

/// Finds the places of values.
struct Binder<'a> {
    device: &'a RpcDevice,
    bindings: &'a Bindings,
    touches: &'a [Touch],
    /// All nodes of the program.
    nodes: &'a [NodeId],
}

impl Binder<'_> {
    fn place(&self, value: StepValue, desc: TensorDesc) -> Result<Placed, DeviceError> {
        let slot = self.bindings.slot(value)?;
        let own = own_buffer(&*slot.buffer, self.device.endpoint())?;
        let same = |(buffer, _): &Touch| Arc::ptr_eq(buffer.gate(), slot.buffer.gate());
        let Some(buffer) = self.touches.iter().position(same) else {
            return Err(DeviceError::Unbound { value: format!("{value:?}") });
        };
        let (handle, address) = (own.handle, own.base + slot.offset);
        Ok(Placed { desc: normal(&desc), buffer, offset: slot.offset, handle, address })
    }

    fn tensor(&self, id: orlop_graph::TensorId) -> Result<Placed, DeviceError> {
        self.place(StepValue::Tensor(id), self.bindings.graph.tensor(id).desc)
    }

    fn part(&self, value: StepValue, dtype: DType, extents: &[u64]) -> Result<Placed, DeviceError> {
        self.place(value, TensorDesc::contiguous(dtype, extents).unwrap_or(F32_NOTHING))
    }

    fn mask(&self, key: &MaskKey, parts: &[StepValue]) -> Result<BoundMask, DeviceError> {
        let MaskKey { rows, queries, .. } = *key;
        let pages = match key.pages {
            Some(pages) => Some([self.tensor(pages.operands[0])?, self.tensor(pages.operands[1])?]),
            None => None,
        };
        Ok(BoundMask {
            key: key.clone(),
            lengths: self.tensor(key.lengths)?,
            firsts: key.firsts.map(|firsts| self.tensor(firsts)).transpose()?,
            pages,
            bounds: self.part(parts[0], DType::F32, &[1, 2 * queries])?,
            numbers: self.part(parts[1], DType::F32, &[rows])?,
            distances: self.part(parts[2], DType::F32, &[rows, queries])?,
            mask: self.part(parts[3], DType::F16, &[rows, queries])?,
        })
    }

    fn node(&self, id: NodeId, writes: &[StepValue]) -> Result<BoundNode, DeviceError> {
        let graph: &Graph = &self.bindings.graph;
        let node = graph.node(id);
        let extra = lower::extra(self.device, graph, id)?;
        let output = self.tensor(node.output)?;
        let mut temporaries = writes.iter().skip(1).copied();
        let mut temporary = |desc: TensorDesc| match temporaries.next() {
            Some(value) => self.place(value, desc),
            None => Err(unbound("a temporary")),
        };
        Ok(BoundNode {
            op: node.op.clone(),
            name: graph.tensor(node.output).name.clone(),
            inputs: node.inputs.iter().map(|id| self.tensor(*id)).collect::<Result<_, _>>()?,
            output,
            prepared: extra.prepared.map(&mut temporary).transpose()?,
            tail: extra.tail.map(|_| temporary(output.desc)).transpose()?,
            mask: None,
            indices: None,
        })
    }

    /// The row numbers of a node, if they are not computed by the server.
    fn indices(&self, id: NodeId, bound: &BoundNode) -> Option<Indices> {
        let graph = &self.bindings.graph;
        let (op, slot, table) = match bound.op {
            Op::GetRows => ("get_rows", 1, bound.inputs[0].desc.extents[1]),
            Op::SetRows => ("set_rows", 2, bound.inputs[0].desc.extents[1]),
            Op::MulMatId => ("mul_mat_id", 2, bound.inputs[0].desc.extents[2]),
            _ => return None,
        };
        let tensor = graph.tensor(graph.node(id).inputs[slot]);
        let leaf = matches!(graph.tensor(tensor.storage.root).origin, Origin::Leaf(_));
        let written = is_written(graph, self.nodes.iter().copied(), graph.node(id).inputs[slot]);
        if !leaf || written || !tensor.desc.is_contiguous() || tensor.desc.is_empty() {
            return None;
        }
        let (at, name, writes) = (bound.inputs[slot], bound.name.clone(), bound.op == Op::SetRows);
        Some(Indices { op, name, at, rows: table, writes })
    }
}

fn unbound(what: &str) -> DeviceError {
    DeviceError::Unbound { value: what.to_owned() }
}

/// A message in the making.
struct Draft {
    numbers: OpNumbers,
    message: GraphMessage,
    leaves: HashMap<(u64, TensorDesc), u64>,
}

impl Draft {
    fn new(device: u32, numbers: OpNumbers) -> Draft {
        let message = GraphMessage { device, ..GraphMessage::default() };
        Draft { numbers, message, leaves: HashMap::new() }
    }

    fn record(&self, tensor: &Placed) -> Result<TensorRecord, DeviceError> {
        let id = self.message.records.len() as u64 + 1;
        let too_large = || DeviceError::TooLarge {
            buffer_type: "a tensor of a message".to_owned(),
            bytes: tensor.desc.bytes(),
            max: u32::MAX.into(),
        };
        let record = TensorRecord::leaf(id, &tensor.desc).ok_or_else(too_large)?;
        Ok(TensorRecord { buffer: tensor.handle, data: tensor.address, ..record })
    }

    fn leaf(&mut self, tensor: &Placed) -> Result<u64, DeviceError> {
        if let Some(known) = self.leaves.get(&(tensor.address, tensor.desc)) {
            return Ok(*known);
        }
        let record = self.record(tensor)?;
        let id = record.id;
        self.message.records.push(record);
        self.leaves.insert((tensor.address, tensor.desc), id);
        Ok(id)
    }

    fn number(&self, op: &Op) -> Result<(GgmlOp, SourceOrder), DeviceError> {
        self.numbers.encode(op).ok_or_else(|| unbound(&format!("the number of {op}")))
    }

    /// A node of an op that has a number.
    fn compute(&mut self, op: &Op, inputs: &[Placed], output: &Placed) -> Result<(), DeviceError> {
        let (op, order) = self.number(op)?;
        let mut sources: Vec<Option<Placed>> = inputs.iter().copied().map(Some).collect();
        match order {
            SourceOrder::AsGiven => {}
            SourceOrder::DestinationLast => sources.rotate_left(1),
            SourceOrder::AndResult => sources.push(Some(*output)),
        }
        self.push(op, &sources, output)
    }

    fn push(&mut self, op: GgmlOp, sources: &[Option<Placed>], output: &Placed) -> Result<(), DeviceError> {
        if output.desc.is_empty() {
            return Ok(());
        }
        let mut ids = [0; SOURCES];
        for (id, source) in ids.iter_mut().zip(sources) {
            if let Some(source) = source {
                *id = self.leaf(source)?;
            }
        }
        let record = self.record(output)?.computed(op, ids);
        self.message.nodes.push(record.id);
        self.message.records.push(record);
        Ok(())
    }

    /// A mask from two numbers a query: rows further from the first than the second says are not seen.
    fn mask(&mut self, mask: &BoundMask, rows: u64) -> Result<(), DeviceError> {
        let queries = mask.key.queries;
        let as_f32 = |place: &Placed, extents: &[u64]| Placed {
            desc: TensorDesc::contiguous(DType::F32, extents).unwrap_or(F32_NOTHING),
            ..*place
        };
        let numbers = as_f32(&mask.numbers, &[rows]);
        let area = as_f32(&mask.distances, &[rows, queries]);
        let middle = as_f32(&mask.bounds, &[1, queries]);
        let reach = Placed { address: middle.address + 4 * queries, ..middle };
        let stop = rows as f32;
        self.compute(&Op::Arange { start: 0.0, stop, step: 1.0 }, &[], &numbers)?;
        self.compute(&Op::Repeat { extents: area.desc.extents }, &[numbers], &area)?;
        self.compute(&Op::Sub, &[area, middle], &area)?;
        self.compute(&Op::Unary(Unary::Abs), &[area], &area)?;
        self.compute(&Op::Sub, &[area, reach], &area)?;
        self.compute(&Op::Clamp { min: 0.0, max: 1.0 }, &[area], &area)?;
        // Beyond the range of F16, so that the copy holds minus infinity.
        self.compute(&Op::Scale { scale: -1e30, bias: 0.0 }, &[area], &area)?;
        self.compute(&Op::Cast { dtype: DType::F16 }, &[area], &masked(&mask.mask, rows))
    }

    fn node(
        &mut self,
        node: &BoundNode,
        mask: Option<(Placed, u64)>,
        runs: Option<&[Range<u64>]>,
    ) -> Result<(), DeviceError> {
        let output = match node.tail {
            Some(place) => Placed { desc: node.output.desc, ..place },
            None => node.output,
        };
        match (&node.op, runs) {
            (Op::TopK { k }, _) => {
                let sorted = node.prepared.ok_or_else(|| unbound("memory to sort in"))?;
                let op = Op::ArgSort { direction: SortDirection::Descending };
                self.compute(&op, &node.inputs, &sorted)?;
                let [_, rows, outer, last] = sorted.desc.extents;
                let first = TensorDesc { extents: [*k, rows, outer, last], ..sorted.desc };
                self.compute(&Op::Cont, &[Placed { desc: first, ..sorted }], &node.output)?;
            }
            (Op::FlashAttention(attention), _) => {
                let mut sources: Vec<Option<Placed>> = node.inputs[..3].iter().copied().map(Some).collect();
                match mask {
                    Some((mask, rows)) => {
                        for cache in sources[1..].iter_mut().flatten() {
                            cache.desc.extents[1] = rows;
                        }
                        sources.push(Some(masked(&mask, rows)));
                    }
                    None => {
                        let given = attention.mask_slot().map(|slot| node.inputs[slot]);
                        if let (Some(given), Some(place)) = (given, node.prepared) {
                            self.compute(&Op::Cast { dtype: DType::F16 }, &[given], &place)?;
                        }
                        sources.push(node.prepared.or(given));
                    }
                }
                sources.push(attention.sinks_slot().map(|slot| node.inputs[slot]));
                let op = self.number(&node.op)?.0;
                self.push(op, &sources, &output)?;
            }
            (Op::SetRows, Some(runs)) => {
                let [into, rows, ids] = [0, 1, 2].map(|slot| node.inputs[slot]);
                let part = |of: Placed, dim: usize, run: &Range<u64>| {
                    let mut part = of;
                    part.desc.extents[dim] = run.end - run.start;
                    part.address += run.start * of.desc.strides[dim];
                    part
                };
                for run in runs {
                    self.compute(&node.op, &[into, part(rows, 1, run), part(ids, 0, run)], &output)?;
                }
            }
            (op, _) if lower::is_quick(op) && node.prepared.is_some() => {
                let [a, b] = [node.inputs[0], node.inputs[1]];
                let gate = node.prepared.ok_or_else(|| unbound("memory for a gate"))?;
                self.compute(&Op::Scale { scale: 1.702, bias: 0.0 }, &[a], &gate)?;
                self.compute(&Op::Unary(Unary::Sigmoid), &[gate], &gate)?;
                self.compute(&Op::Mul, &[gate, a], &gate)?;
                self.compute(&Op::Mul, &[gate, b], &output)?;
            }
            (Op::SoftMax(soft_max), _) => {
                let mut given = node.inputs.iter().copied();
                let mut next = |present: bool| if present { given.next() } else { None };
                let sources = [next(true), next(soft_max.mask), next(soft_max.sinks)];
                let op = self.number(&node.op)?.0;
                self.push(op, &sources, &output)?;
            }
            (Op::Roll { shifts }, _) => {
                // A shift beyond the extent would be read from outside the tensor.
                let extents = output.desc.extents;
                let shifts = std::array::from_fn(|dim| shifts[dim].rem_euclid(extents[dim].max(1) as i64));
                self.compute(&Op::Roll { shifts }, &node.inputs, &output)?;
            }
            _ => self.compute(&node.op, &node.inputs, &output)?,
        }
        match node.tail {
            Some(_) => self.compute(&Op::Cont, &[output], &node.output),
            None => Ok(()),
        }
    }
}

/// The part of a mask that covers some rows.
fn masked(mask: &Placed, rows: u64) -> Placed {
    let queries = mask.desc.extents[1];
    let desc = TensorDesc::contiguous(DType::F16, &[rows, queries]).unwrap_or(F32_NOTHING);
    Placed { desc, ..*mask }
}

impl Program for RpcProgram {
    fn touches(&self) -> &[Touch] {
        &self.touches
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for RpcProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RpcProgram of {} nodes on {}", self.nodes.len(), self.endpoint.name)
    }
}

/// Whether a queue may run it with these claims.
pub(super) fn check_claims(program: &RpcProgram, claims: &orlop_backend::Claims) -> Result<(), DeviceError> {
    program
        .touches
        .iter()
        .try_for_each(|(buffer, kind): &(Arc<dyn Buffer>, AccessKind)| claims.check(&**buffer, *kind))
}
