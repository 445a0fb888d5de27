//! Patches of the data: what lies under the kernel at one position, kernel width innermost, then height, then
//! channels, with zeros where the kernel is in the padding. They are gathered for some neighbours at a time.

use orlop_graph::{Op, TensorDesc, Window};

use crate::access::{RowIndex, Src};

/// Neighbouring positions whose patches are gathered together.
pub(super) const TILE: u64 = 16;

/// How a kernel moves over data. One-dimensional data has height 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patches {
    two_d: bool,
    window: Window,
    /// Width and height of the kernel.
    kernel: [u64; 2],
    inputs: u64,
    /// Width and height of the data.
    data: [u64; 2],
    /// Positions along the width and the height.
    positions: [u64; 2],
    batches: u64,
}

/// Positions `x..x + count` of one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatchTile {
    pub(super) x: u64,
    pub(super) count: usize,
    pub(super) y: u64,
    pub(super) batch: u64,
}

impl Patches {
    pub(super) fn new(op: &Op, kernel: &TensorDesc, data: &TensorDesc, result: &TensorDesc) -> Patches {
        let (two_d, window) = match op {
            Op::Im2Col { window, two_d, .. } => (*two_d, *window),
            Op::Conv2d(window) => (true, *window),
            Op::Conv1d(window) => (false, *window),
            _ => (false, Window::default()),
        };
        let ([k0, k1, k2, _], [n0, n1, n2, n3]) = (kernel.extents, data.extents);
        let [r0, r1, r2, _] = result.extents;
        let [w, h] = if matches!(op, Op::Im2Col { .. }) { [r1, r2] } else { [r0, r1] };
        if two_d {
            let (kernel, data, positions) = ([k0, k1], [n0, n1], [w, h]);
            return Patches { two_d, window, kernel, inputs: k2, data, positions, batches: n3 };
        }
        let Window { stride: [stride, _], padding: [padding, _], dilation: [dilation, _] } = window;
        let window = Window { stride: [stride, 1], padding: [padding, 0], dilation: [dilation, 1] };
        let (kernel, data, positions) = ([k0, 1], [n0, 1], [w, 1]);
        Patches { two_d, window, kernel, inputs: k1, data, positions, batches: n2 }
    }

    /// Width and height of the kernel.
    pub(super) fn kernel(&self) -> [u64; 2] {
        self.kernel
    }

    /// Elements of a patch.
    pub(super) fn size(&self) -> u64 {
        self.kernel[0].saturating_mul(self.kernel[1]).saturating_mul(self.inputs)
    }

    /// Most elements of a data row that a tile reaches.
    pub(super) fn longest_line(&self) -> u64 {
        self.span(self.positions[0].min(TILE)).min(self.data[0])
    }

    /// Padded elements from a tile's first to the end of its last.
    fn span(&self, count: u64) -> u64 {
        let last = count.saturating_sub(1).saturating_mul(u64::from(self.window.stride[0]));
        let reach = (self.kernel[0] - 1).saturating_mul(u64::from(self.window.dilation[0]));
        last.saturating_add(reach).saturating_add(1)
    }

    pub(super) fn tiles(&self) -> u64 {
        self.positions[0].div_ceil(TILE) * self.positions[1] * self.batches
    }

    pub(super) fn tile(&self, index: u64) -> PatchTile {
        let [w, h] = self.positions;
        let in_line = w.div_ceil(TILE);
        let (x, line) = (index % in_line * TILE, index / in_line);
        PatchTile { x, count: TILE.min(w - x) as usize, y: line % h, batch: line / h }
    }

    /// The row of a tensor of this number of dimensions, given by a height, a channel and a batch.
    pub(super) fn row(&self, y: u64, channel: u64, batch: u64) -> RowIndex {
        if self.two_d { [y, channel, batch] } else { [channel, batch, 0] }
    }

    /// The row of an im2col result that holds a tile's patch number `index`.
    pub(super) fn patch_row(&self, tile: &PatchTile, index: usize) -> RowIndex {
        let x = tile.x + index as u64;
        if self.two_d { [x, tile.y, tile.batch] } else { [x, tile.batch, 0] }
    }

    /// Gathers a tile's patches, one after the other.
    pub(super) fn gather(&self, data: &Src, tile: &PatchTile, line: &mut [f32], patches: &mut [f32]) {
        let [kw, kh] = self.kernel.map(|extent| extent as usize);
        let (size, padding) = (self.size() as usize, u64::from(self.window.padding[0]));
        let [stride, dilation] = [self.window.stride[0], self.window.dilation[0]].map(|step| step as usize);
        // Along the width, in padded coordinates: the tile's beginning, and what of it lies in the data.
        let first = tile.x * u64::from(self.window.stride[0]);
        let from = first.max(padding);
        let to = (first + self.span(tile.count as u64)).min(padding + self.data[0]);
        let inside = to.saturating_sub(from) as usize;
        let lead = first.wrapping_sub(from) as usize;
        for (segment, (input, ky)) in
            (0..self.inputs).flat_map(|input| (0..kh).map(move |ky| (input, ky))).enumerate()
        {
            let y = self.inside(1, tile.y, ky as u64).filter(|_| inside > 0);
            let line = &mut line[..if y.is_some() { inside } else { 0 }];
            if let Some(y) = y {
                data.read_elements(from - padding, self.row(y, input, tile.batch), line);
            }
            for (index, patch) in patches.chunks_exact_mut(size).take(tile.count).enumerate() {
                let start = lead.wrapping_add(index * stride);
                for (kx, out) in patch[segment * kw..][..kw].iter_mut().enumerate() {
                    // What lies before the data wraps around to far behind it.
                    *out = line.get(start.wrapping_add(kx * dilation)).copied().unwrap_or(0.0);
                }
            }
        }
    }

    /// Where in the data a kernel element lies, along one dimension; `None` in the padding.
    fn inside(&self, dim: usize, position: u64, element: u64) -> Option<u64> {
        let [stride, padding, dilation] =
            [self.window.stride, self.window.padding, self.window.dilation].map(|pair| u64::from(pair[dim]));
        (position * stride + element * dilation).checked_sub(padding).filter(|at| *at < self.data[dim])
    }

    /// The sum of products of a tile's patch number `index` and a kernel, without those in the padding, where an
    /// infinite kernel element must not meet a zero.
    pub(super) fn sum_inside(&self, tile: &PatchTile, index: usize, patch: &[f32], kernel: &[f32]) -> f32 {
        let [kw, kh] = self.kernel;
        let is_inside = |at: u64| {
            let (kx, ky) = (at % kw, at / kw % kh);
            self.inside(0, tile.x + index as u64, kx).is_some() && self.inside(1, tile.y, ky).is_some()
        };
        let terms = (0..).zip(patch.iter().zip(kernel)).filter(|(at, _)| is_inside(*at));
        terms.map(|(_, (a, b))| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
    }
}
