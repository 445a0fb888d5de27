//! Patches of the data as rows, and their products with kernels.

use orlop_graph::{Op, TensorDesc};

use super::patches::{Patches, TILE};
use crate::access::Src;
use crate::simd::dot;
use crate::task::{Task, Thread};

/// Fewest output channels worth gathering patches for once more, so that threads have something to do.
const FEW_CHANNELS: u64 = 16;

/// A tile of patches, the part of a data row under it, and results of one output channel.
pub(super) fn tile_floats(op: &Op, operands: &[TensorDesc], result: &TensorDesc) -> u64 {
    let patches = Patches::new(op, &operands[0], &operands[1], result);
    patches.size().saturating_mul(TILE).saturating_add(patches.longest_line()).saturating_add(TILE)
}

/// A kernel as F32 for each output channel, followed by 1 if all of it is finite, else 0.
pub(super) fn kernel_rows(op: &Op, operands: &[TensorDesc], result: &TensorDesc) -> (u64, u64) {
    let patches = Patches::new(op, &operands[0], &operands[1], result);
    (channels(op, &operands[0]), patches.size().saturating_add(1))
}

fn channels(op: &Op, kernel: &TensorDesc) -> u64 {
    kernel.extents[if matches!(op, Op::Conv2d(_)) { 3 } else { 2 }]
}

fn patches_of(task: &Task) -> Patches {
    Patches::new(&task.op, &task.src[0].desc, &task.src[1].desc, &task.dst.desc)
}

pub(super) fn im2col(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let patches = patches_of(task);
    let size = patches.size() as usize;
    let (tile_patches, line) = scratch.split_at_mut(size * TILE as usize);
    for tile in thread.part(patches.tiles()) {
        let tile = patches.tile(tile);
        patches.gather(&task.src[1], &tile, line, tile_patches);
        for (index, patch) in tile_patches.chunks_exact(size).take(tile.count).enumerate() {
            task.dst.write_row(patches.patch_row(&tile, index), patch);
        }
    }
}

/// First the kernels, then tiles; each result is one product, on any thread.
pub(super) fn convolve(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let patches = patches_of(task);
    let outputs = channels(&task.op, &task.src[0].desc);
    if thread.phase == 0 {
        for output in thread.part(outputs) {
            task.shared.fill(output, |row| decode_kernel(&task.src[0], &patches, output, row));
        }
        return;
    }
    let size = patches.size() as usize;
    let (tile_patches, rest) = scratch.split_at_mut(size * TILE as usize);
    let (results, line) = rest.split_at_mut(TILE as usize);
    // Where there are few tiles, several threads share one and divide its output channels.
    let tiles = patches.tiles();
    let shares = (4 * thread.count as u64).div_ceil(tiles).min(outputs.div_ceil(FEW_CHANNELS));
    let share = outputs.div_ceil(shares);
    let mut gathered = None;
    for unit in thread.part(tiles * shares) {
        let (number, first) = (unit / shares, unit % shares * share);
        let tile = patches.tile(number);
        if gathered != Some(number) {
            patches.gather(&task.src[1], &tile, line, tile_patches);
            gathered = Some(number);
        }
        for output in first..(first + share).min(outputs) {
            let (kernel, finite) = task.shared.row(output).split_at(size);
            for (index, result) in results[..tile.count].iter_mut().enumerate() {
                let patch = &tile_patches[index * size..][..size];
                *result = if finite == [1.0] {
                    dot(task.isa, patch, kernel)
                } else {
                    patches.sum_inside(&tile, index, patch, kernel)
                };
            }
            let at = patches.row(tile.y, output, tile.batch);
            task.dst.write_elements(tile.x, at, &results[..tile.count]);
        }
    }
}

/// Reads an output channel's kernel, and notes behind it whether it is finite.
fn decode_kernel(kernel: &Src, patches: &Patches, output: u64, row: &mut [f32]) {
    let Some((finite, row)) = row.split_last_mut() else { return };
    if let Some(flat) = one_row_each(kernel, row.len() as u64) {
        flat.read_row([output, 0, 0], row);
    } else if !row.is_empty() {
        let [width, height] = patches.kernel();
        for (at, part) in (0..).zip(row.chunks_exact_mut(width as usize)) {
            kernel.read_row(patches.row(at % height, at / height, output), part);
        }
    }
    *finite = f32::from(u8::from(row.iter().all(|value| value.is_finite())));
}

/// The same kernels with one row for each output channel, if they have no gaps.
fn one_row_each(kernel: &Src, size: u64) -> Option<Src> {
    let outputs = kernel.desc.elements().checked_div(size)?;
    let flat = TensorDesc::contiguous(kernel.desc.dtype, &[size, outputs]).ok()?;
    kernel.desc.is_contiguous().then(|| kernel.viewed(flat))
}
