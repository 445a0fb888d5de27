//! A region of a base, given by byte strides and an offset. The base is contiguous, so its packed bytes are its
//! bytes in memory.

use orlop_graph::{Patch, TensorDesc};

use crate::{OpFailure, Packed, decode_elements, encode_elements};

pub(super) fn set(base: &Packed, patch: &Packed, at: &Patch) -> Vec<u8> {
    let mut result = base.bytes().to_vec();
    for (place, block) in places(patch, at) {
        result[place..place + block.len()].copy_from_slice(block);
    }
    result
}

/// Element by element, as the offset need not be a multiple of the element size.
pub(super) fn accumulate(base: &Packed, patch: &Packed, at: &Patch) -> Result<Vec<u8>, OpFailure> {
    let dtype = base.desc().dtype;
    let mut result = base.bytes().to_vec();
    for (place, element) in places(patch, at) {
        let sum: f64 = decode_elements(dtype, element)?
            .iter()
            .chain(&decode_elements(dtype, &result[place..place + element.len()])?)
            .sum();
        result[place..place + element.len()].copy_from_slice(&encode_elements(dtype, &[sum])?);
    }
    Ok(result)
}

/// The patch's blocks and where in the base each goes.
fn places<'a>(patch: &'a Packed, at: &Patch) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
    let dtype = patch.desc().dtype;
    let block = dtype.block_bytes();
    let [s1, s2, s3] = at.strides;
    let region = TensorDesc { dtype, extents: patch.desc().extents, strides: [block, s1, s2, s3] };
    let runs = region.runs();
    let run = (runs.run_bytes() as usize).max(1);
    let offset = at.offset;
    patch.bytes().chunks_exact(run).zip(runs).flat_map(move |(bytes, start)| {
        let blocks = bytes.chunks_exact(block as usize).enumerate();
        blocks.map(move |(index, bytes)| ((offset + start) as usize + index * block as usize, bytes))
    })
}
