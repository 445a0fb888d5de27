//! The payload of GRAPH_COMPUTE.

use super::bytes::Fields;
use super::{CodecError, RECORD_BYTES, TensorRecord};

/// Nodes to be computed in order, and the records of all tensors that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphMessage {
    /// The device of the server.
    pub device: u32,
    /// Ids of the nodes, in order.
    pub nodes: Vec<u64>,
    /// Records of the nodes and of everything they are computed from.
    pub records: Vec<TensorRecord>,
}

const NAME: &str = "GRAPH_COMPUTE";

impl GraphMessage {
    /// Reads a payload.
    ///
    /// # Errors
    /// [`CodecError::Length`] unless the payload is as long as its two counts say.
    pub fn parse(payload: &[u8]) -> Result<GraphMessage, CodecError> {
        let length =
            |expected: String| CodecError::Length { command: NAME, given: payload.len() as u64, expected };
        if payload.len() < 12 {
            return Err(length("at least 12".to_owned()));
        }
        let mut fields = Fields::new(payload);
        let (device, nodes) = (fields.u32(), fields.u32());
        // Before anything is allocated: a count says nothing about the bytes that came.
        let before_records = 12 + 8 * u64::from(nodes);
        if (payload.len() as u64) < before_records {
            return Err(length(format!("at least {before_records} for {nodes} nodes")));
        }
        let nodes: Vec<u64> = (0..nodes).map(|_| fields.u64()).collect();
        let records = fields.u32();
        let expected = before_records + RECORD_BYTES as u64 * u64::from(records);
        if payload.len() as u64 != expected {
            return Err(length(format!("{expected} for {} nodes and {records} tensors", nodes.len())));
        }
        let records = (0..records).map(|_| TensorRecord::read(&mut fields)).collect();
        Ok(GraphMessage { device, nodes, records })
    }

    /// Bytes of its payload.
    pub fn bytes(&self) -> u64 {
        12 + 8 * self.nodes.len() as u64 + (RECORD_BYTES * self.records.len()) as u64
    }

    /// Appends its payload.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes() as usize);
        out.extend(self.device.to_le_bytes());
        out.extend((self.nodes.len() as u32).to_le_bytes());
        self.nodes.iter().for_each(|id| out.extend(id.to_le_bytes()));
        out.extend((self.records.len() as u32).to_le_bytes());
        self.records.iter().for_each(|record| record.write(out));
    }
}
