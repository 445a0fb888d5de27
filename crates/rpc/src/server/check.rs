//! What a client's graph must be before any of it is computed.
//!
//! Nothing of a message is believed but element types, extents and strides, which are checked against the op: the result must
//! be what Orlop infers from the operands. Each tensor becomes a place in a buffer; edges of the message are not followed, as
//! addresses are what the client planned with.

use std::collections::{HashMap, HashSet};

use orlop_graph::{DIMS, Op, TensorDesc, infer, may_overwrite};

use super::Refusal;
use super::store::Store;
use crate::codec::{GraphMessage, OpNumbers, TensorRecord};

/// A tensor in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spot {
    pub(super) buffer: u64,
    pub(super) offset: u64,
    pub(super) desc: TensorDesc,
}

impl Spot {
    fn overlaps(&self, other: &Spot) -> bool {
        self.buffer == other.buffer
            && self.offset < other.offset + other.desc.bytes()
            && other.offset < self.offset + self.desc.bytes()
    }
}

/// A node that can be computed.
#[derive(Clone, Debug)]
pub(super) struct CheckedNode {
    pub(super) name: String,
    /// Its number in the message.
    pub(super) number: u32,
    pub(super) op: Op,
    pub(super) operands: Vec<Spot>,
    pub(super) result: Spot,
    /// The result goes to memory of its own first: the op must not write over an operand while it reads it.
    pub(super) aside: bool,
}

/// The nodes of a message that compute something, in order.
pub(super) fn check(
    message: &GraphMessage,
    store: &Store,
    device: usize,
    numbers: OpNumbers,
) -> Result<Vec<CheckedNode>, Refusal> {
    let mut records: HashMap<u64, &TensorRecord> = HashMap::with_capacity(message.records.len());
    for record in &message.records {
        if record.id == 0 || records.insert(record.id, record).is_some() {
            return Err(Refusal::Graph("a tensor's number is 0 or comes twice"));
        }
    }
    let mut seen = HashSet::with_capacity(message.nodes.len());
    let mut nodes = Vec::with_capacity(message.nodes.len());
    for id in &message.nodes {
        let record = *records.get(id).ok_or(Refusal::Graph("a node has no record"))?;
        if !seen.insert(*id) {
            return Err(Refusal::Graph("a node comes twice"));
        }
        if !record.is_computed() || numbers.is_view(&record.op) {
            continue;
        }
        let checker = Checker { records: &records, store, device, numbers, record };
        nodes.extend(checker.node()?);
    }
    Ok(nodes)
}

struct Checker<'a> {
    records: &'a HashMap<u64, &'a TensorRecord>,
    store: &'a Store,
    device: usize,
    numbers: OpNumbers,
    record: &'a TensorRecord,
}

impl Checker<'_> {
    fn node(&self) -> Result<Option<CheckedNode>, Refusal> {
        let record = self.record;
        let result = self.spot(record)?;
        let present = record.sources.map(|id| id != 0);
        let decoded = self.numbers.decode(&record.op, &present, &result.desc);
        let decoded = decoded.map_err(|refusal| self.refused(refusal.to_string()))?;
        let mut operands = Vec::with_capacity(decoded.sources.len() + 1);
        for slot in &decoded.sources {
            let id = record.sources.get(*slot).copied().filter(|id| *id != 0);
            let source = id.and_then(|id| self.records.get(&id).copied());
            let source = source.ok_or_else(|| self.refused(format!("source {slot} is missing")))?;
            operands.push(self.spot(source)?);
        }
        if let Some(position) = decoded.into_result {
            operands.insert(position, result);
            if !is_apart(&result.desc) {
                return Err(self.refused("elements of the destination overlap".to_owned()));
            }
        }
        let descs: Vec<TensorDesc> = operands.iter().map(|operand| operand.desc).collect();
        let expected = infer(&decoded.op, &descs).map_err(|error| self.refused(error.to_string()))?;
        let same = (expected.dtype, expected.extents) == (result.desc.dtype, result.desc.extents)
            && (expected == result.desc || decoded.into_result.is_none() && result.desc.is_contiguous());
        if !same {
            let reason = format!("the result is {expected}, not {}", result.desc);
            return Err(self.refused(reason));
        }
        if expected.is_empty() {
            return Ok(None);
        }
        let aside = self.aside(&decoded.op, &operands, &result, decoded.into_result)?;
        let (name, number) = (record.name(), record.op.number);
        Ok(Some(CheckedNode { name, number, op: decoded.op, operands, result, aside }))
    }

    /// Whether the result must be computed elsewhere, as it lies on operands that the op may not overwrite.
    fn aside(
        &self,
        op: &Op,
        operands: &[Spot],
        result: &Spot,
        destination: Option<usize>,
    ) -> Result<bool, Refusal> {
        let clashes = |(slot, operand): (usize, &Spot)| {
            let own = destination == Some(slot);
            let in_place = operand == result && may_overwrite(op, slot);
            operand.overlaps(result) && !own && !in_place
        };
        if !operands.iter().enumerate().any(clashes) {
            return Ok(false);
        }
        // A copy of a tensor to its own place changes nothing; other writes into what is read have no order.
        match destination {
            Some(_) if *op == Op::Copy && operands[0] == *result => Ok(false),
            Some(_) => Err(self.refused("it reads what it writes".to_owned())),
            None => Ok(true),
        }
    }

    fn spot(&self, record: &TensorRecord) -> Result<Spot, Refusal> {
        let desc = record.desc()?;
        let offset = self.store.place(record, &desc)?;
        if self.store.get(record.buffer)?.device != self.device {
            return Err(Refusal::Graph("a tensor lies on another device"));
        }
        // Elements are read whole: numbers of 8 bytes at the most, and the halves that blocks begin with.
        let block = desc.dtype.block_bytes();
        let element = if desc.dtype.is_quantized() { 2 - block % 2 } else { block };
        let aligned = |number: u64| number.is_multiple_of(element);
        let strided = (0..DIMS).all(|dim| desc.extents[dim] <= 1 || aligned(desc.strides[dim]));
        if !aligned(offset) || !strided {
            return Err(self.refused(format!("a tensor is not aligned to {element} bytes")));
        }
        Ok(Spot { buffer: record.buffer, offset, desc })
    }

    fn refused(&self, reason: String) -> Refusal {
        Refusal::Node { tensor: self.record.name(), op: self.record.op.number, reason }
    }
}

/// Whether no two elements share bytes.
fn is_apart(desc: &TensorDesc) -> bool {
    if desc.is_empty() {
        return true;
    }
    let blocks = desc.extents[0] / desc.dtype.block_elements();
    let mut dims: Vec<(u64, u64)> = [(desc.strides[0], blocks)]
        .into_iter()
        .chain((1..DIMS).map(|dim| (desc.strides[dim], desc.extents[dim])))
        .filter(|(_, extent)| *extent > 1)
        .collect();
    dims.sort_unstable();
    let mut span = desc.dtype.block_bytes();
    for (stride, extent) in dims {
        if stride < span {
            return false;
        }
        span = span.saturating_add(stride.saturating_mul(extent - 1));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_graph::DType;

    #[test]
    fn overlapping_elements_are_found() {
        let desc = |strides| TensorDesc { dtype: DType::F32, extents: [4, 3, 2, 1], strides };
        assert!(is_apart(&desc([4, 16, 48, 0])));
        assert!(is_apart(&desc([24, 8, 4, 0])), "dimensions in another order");
        assert!(!is_apart(&desc([4, 12, 48, 0])));
        assert!(!is_apart(&desc([0, 16, 48, 0])));
        assert!(!is_apart(&desc([4, 16, 32, 0])));
    }
}
