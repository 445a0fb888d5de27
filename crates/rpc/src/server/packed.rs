//! Weights in the layout that a device's products are fastest with: copies of what a client has set.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orlop_backend::{
    Buffer, BufferType, Device, DeviceError, MemoryLayout, NodeQuery, Operand, Role, Slot, StoredTensor,
};
use orlop_graph::Op;

use super::Refusal;
use super::check::{CheckedNode, Spot};
use super::store::Store;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// A copy of a weight.
pub(super) struct PackedWeight {
    spot: Spot,
    source: Arc<dyn Buffer>,
    place: StoredTensor,
    bytes: u64,
    /// How often the source was written when it was copied.
    copied: AtomicU64,
}

impl PackedWeight {
    pub(super) fn place(&self) -> &StoredTensor {
        &self.place
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies the weight again if its buffer was written since.
    pub(super) fn refresh(&self) -> Result<(), DeviceError> {
        let written = self.source.gate().generation();
        if self.copied.load(Ordering::Acquire) == written {
            return Ok(());
        }
        let Spot { offset, desc, .. } = self.spot;
        let slot = Slot { buffer: Arc::clone(&self.source), offset };
        let source = StoredTensor::new("a weight", desc, slot)?;
        let row = desc.row_bytes().max(1);
        let step = (PIECE_BYTES / row).max(1) * row;
        let mut piece = Vec::new();
        for begin in (0..desc.bytes()).step_by(step as usize) {
            piece.resize((desc.bytes() - begin).min(step) as usize, 0);
            source.get(begin, &mut piece)?;
            self.place.set(begin, &piece)?;
        }
        self.copied.store(written, Ordering::Release);
        Ok(())
    }
}

/// The copies of one client.
#[derive(Default)]
pub(super) struct PackedWeights(HashMap<Spot, Arc<PackedWeight>>);

impl PackedWeights {
    /// Bytes of all copies on a device.
    pub(super) fn bytes(&self, store: &Store, device: usize) -> u64 {
        let here = |spot: &Spot| store.get(spot.buffer).is_ok_and(|stored| stored.device == device);
        self.0.iter().filter(|(spot, _)| here(spot)).map(|(_, weight)| weight.bytes()).sum()
    }

    /// Forgets copies of what lies in a buffer.
    pub(super) fn forget(&mut self, buffer: u64) {
        self.0.retain(|spot, _| spot.buffer != buffer);
    }

    /// A copy of the first operand of each product for which it is worth one: the operand is quantized, the device has a layout
    /// for it, no node of the graph writes into its buffer, and there is memory left. Copies of what lies in one buffer lie
    /// in one, too: a run claims each buffer that it touches.
    pub(super) fn of_nodes(
        &mut self,
        device: &dyn Device,
        store: &Store,
        nodes: &[CheckedNode],
        mut left: u64,
    ) -> Result<Vec<Option<Arc<PackedWeight>>>, Refusal> {
        let own = |kind: &&Arc<dyn BufferType>| kind.layout() == MemoryLayout::Private;
        let Some(layout) = device.buffer_types(Role::Weight).iter().find(own) else {
            return Ok(vec![None; nodes.len()]);
        };
        let written: HashSet<u64> = nodes.iter().map(|node| node.result.buffer).collect();
        let spot_of = |node| {
            let spot = candidate(node).filter(|spot| !written.contains(&spot.buffer))?;
            takes(device, layout, node).then_some(spot)
        };
        let spots: Vec<Option<Spot>> = nodes.iter().map(spot_of).collect();
        let (mut seen, mut new) = (HashSet::new(), BTreeMap::<u64, Vec<Spot>>::new());
        for spot in spots.iter().flatten().filter(|spot| !self.0.contains_key(spot)) {
            let bytes = packed_bytes(layout, spot);
            if bytes <= left && seen.insert(*spot) {
                left -= bytes;
                new.entry(spot.buffer).or_default().push(*spot);
            }
        }
        for (buffer, spots) in &new {
            self.add(layout, &store.get(*buffer)?.buffer, spots)?;
        }
        Ok(spots.into_iter().map(|spot| self.0.get(&spot?).cloned()).collect())
    }

    /// Places for copies of what lies in a buffer, in as few buffers as can be had.
    fn add(
        &mut self,
        layout: &Arc<dyn BufferType>,
        source: &Arc<dyn Buffer>,
        mut spots: &[Spot],
    ) -> Result<(), Refusal> {
        while !spots.is_empty() {
            let mut end = 0u64;
            let ends = spots.iter().map(|spot| {
                end = end.saturating_add(packed_bytes(layout, spot));
                end
            });
            let ends: Vec<u64> = ends.take_while(|end| *end <= layout.max_bytes()).collect();
            let (now, later) = spots.split_at(ends.len());
            let Some(buffer) = ends.last().and_then(|end| Arc::clone(layout).allocate(*end).ok()) else {
                return Ok(());
            };
            for (spot, end) in now.iter().zip(ends) {
                let bytes = packed_bytes(layout, spot);
                let slot = Slot { buffer: Arc::clone(&buffer), offset: end - bytes };
                let weight = PackedWeight {
                    spot: *spot,
                    source: Arc::clone(source),
                    place: StoredTensor::new("a weight", spot.desc, slot)?,
                    bytes,
                    copied: AtomicU64::new(u64::MAX),
                };
                self.0.insert(*spot, Arc::new(weight));
            }
            spots = later;
        }
        Ok(())
    }
}

/// Bytes of a copy, so that another can lie behind it.
fn packed_bytes(layout: &Arc<dyn BufferType>, spot: &Spot) -> u64 {
    let bytes = layout.alloc_bytes(&spot.desc);
    bytes.checked_next_multiple_of(layout.alignment()).unwrap_or(u64::MAX)
}

/// The weight of a product.
fn candidate(node: &CheckedNode) -> Option<Spot> {
    let weight = node.operands.first().filter(|_| matches!(node.op, Op::MulMat | Op::MulMatId))?;
    (weight.desc.dtype.is_quantized() && weight.desc.is_contiguous()).then_some(*weight)
}

/// Whether a device computes a node whose first operand lies in a kind of memory.
fn takes(device: &dyn Device, layout: &Arc<dyn BufferType>, node: &CheckedNode) -> bool {
    let operand = |(slot, spot)| {
        let spot: &Spot = spot;
        Operand { desc: &spot.desc, buffer_type: (slot == 0).then_some(layout) }
    };
    let inputs: Vec<Operand<'_>> = node.operands.iter().enumerate().map(operand).collect();
    let output = Operand { desc: &node.result.desc, buffer_type: None };
    device.supports(&NodeQuery { op: &node.op, inputs: &inputs, output }).is_yes()
}
