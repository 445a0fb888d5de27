//! One node on memory of any kind: operands are gathered, the result is computed, and only its elements are
//! written.

use orlop_backend::{DeviceError, Reason};
use orlop_graph::{Graph, Node, Op, TensorDesc, TensorId};

use crate::elements::packed_bytes;
use crate::ops::{RowWrite, compute, reads, rearrange, rearranges, set_rows};
use crate::{Elements, OpFailure, Packed, encode_elements};

/// Where the tensors of a graph lie.
pub(crate) trait Memory {
    /// A tensor's elements, packed.
    fn load(&self, tensor: TensorId, desc: &TensorDesc) -> Result<Vec<u8>, DeviceError>;

    /// Writes packed elements to a part of a tensor that begins `offset` bytes after its first element.
    fn store(
        &mut self,
        tensor: TensorId,
        offset: u64,
        part: &TensorDesc,
        packed: &[u8],
    ) -> Result<(), DeviceError>;
}

/// Runs one node. If its operands cannot be read or its result not be computed, memory is as it was.
pub(crate) fn execute(
    device: &str,
    graph: &Graph,
    node: &Node,
    memory: &mut impl Memory,
) -> Result<(), DeviceError> {
    if node.op.is_view() {
        return Ok(());
    }
    let writes = Evaluation { device, graph, node, memory: &*memory }.writes()?;
    let store = |write: Write| memory.store(node.output, write.offset, &write.part, &write.bytes);
    writes.into_iter().try_for_each(store)
}

/// Packed elements for a part of a node's result that begins `offset` bytes after its first element.
struct Write {
    offset: u64,
    part: TensorDesc,
    bytes: Vec<u8>,
}

struct Evaluation<'a, M> {
    device: &'a str,
    graph: &'a Graph,
    node: &'a Node,
    memory: &'a M,
}

impl<M: Memory> Evaluation<'_, M> {
    fn writes(&self) -> Result<Vec<Write>, DeviceError> {
        let inputs = self.node.inputs.len();
        let failed = |failure| self.refused(inputs, failure);
        let result = self.graph.tensor(self.node.output).desc;
        let descs: Vec<TensorDesc> = (0..inputs).map(|operand| self.desc(operand)).collect();
        let bytes = match &self.node.op {
            Op::SetRows => {
                let rows = set_rows(&result, &self.numbers(1)?, &self.packed(2)?).map_err(failed)?;
                let part = TensorDesc { extents: [result.extents[0], 1, 1, 1], ..result };
                let write = |row: RowWrite| Write { offset: row.offset, part, bytes: row.bytes };
                return Ok(rows.into_iter().map(write).collect());
            }
            // Both operands have as many elements, so in one type their packed bytes are the same.
            op @ Op::Copy if rearranges(op, &descs, &result) => self.packed(0)?.bytes().to_vec(),
            op if rearranges(op, &descs, &result) => {
                let operands = (0..inputs).map(|operand| self.packed(operand));
                let operands: Vec<Packed> = operands.collect::<Result<_, _>>()?;
                rearrange(op, &operands.iter().collect::<Vec<_>>(), &result).map_err(failed)?
            }
            op => {
                let operands = (0..inputs).map(|operand| self.numbers(operand));
                let operands: Vec<Elements> = operands.collect::<Result<_, _>>()?;
                let values = compute(op, &operands, &result).map_err(failed)?;
                encode_elements(result.dtype, &values).map_err(failed)?
            }
        };
        Ok(vec![Write { offset: 0, part: result, bytes }])
    }

    fn desc(&self, operand: usize) -> TensorDesc {
        self.graph.tensor(self.node.inputs[operand]).desc
    }

    fn packed(&self, operand: usize) -> Result<Packed, DeviceError> {
        let desc = self.desc(operand);
        let bytes = self.memory.load(self.node.inputs[operand], &desc)?;
        Packed::new(desc, bytes).map_err(|failure| self.refused(operand, failure))
    }

    fn numbers(&self, operand: usize) -> Result<Elements, DeviceError> {
        if !reads(&self.node.op, operand) {
            return Ok(Elements::unread(self.desc(operand)));
        }
        self.packed(operand)?.decode().map_err(|failure| self.refused(operand, failure))
    }

    /// An op's failure as a device reports it; the result counts as the operand after the last.
    fn refused(&self, operand: usize, failure: OpFailure) -> DeviceError {
        let tensor = self.graph.tensor(self.node.output).name.clone();
        let op = self.node.op.name().to_owned();
        let reason = match failure {
            OpFailure::BadIndex { index, rows } => return DeviceError::BadIndex { op, tensor, index, rows },
            OpFailure::Length { expected, given } => {
                return DeviceError::WrongLength { tensor, expected, given };
            }
            OpFailure::NoCodec(dtype) => Reason::DType { operand, dtype },
            OpFailure::NotComputed | OpFailure::Operands(_) | OpFailure::Output { .. } => Reason::Op,
        };
        DeviceError::Unsupported { device: self.device.to_owned(), op, tensor, reason }
    }
}

/// Collects a tensor's elements, run by run.
pub(crate) fn gather(
    desc: &TensorDesc,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), DeviceError>,
) -> Result<Vec<u8>, DeviceError> {
    let bytes = packed_bytes(desc);
    let mut packed = Vec::new();
    // Strides of 0 can describe far more elements than there is memory.
    if usize::try_from(bytes).ok().and_then(|bytes| packed.try_reserve_exact(bytes).ok()).is_none() {
        return Err(DeviceError::OutOfMemory { buffer_type: "host memory".to_owned(), bytes });
    }
    let runs = desc.runs();
    let run = runs.run_bytes() as usize;
    for at in runs {
        let start = packed.len();
        packed.resize(start + run, 0);
        read(at, &mut packed[start..])?;
    }
    Ok(packed)
}

/// Spreads packed elements over a tensor, run by run; gaps are not touched.
pub(crate) fn scatter(
    desc: &TensorDesc,
    packed: &[u8],
    mut write: impl FnMut(u64, &[u8]) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let runs = desc.runs();
    let run = (runs.run_bytes() as usize).max(1);
    packed.chunks_exact(run).zip(runs).try_for_each(|(bytes, at)| write(at, bytes))
}
