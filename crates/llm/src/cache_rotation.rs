//! Rotations before caches of quantized types ([QuaRot](https://arxiv.org/abs/2404.00456)): parts of heads are multiplied with a
//! Hadamard matrix. It spreads outliers over all elements of a part, so that they do not set the scale of their neighbours.
//!
//! The matrix is orthogonal, so rotated queries and rotated keys have the products that they had before. It is its own inverse,
//! so sums of rotated values are rotated back by it.

use orlop_graph::{DType, TensorId};
use orlop_sched::DeviceId;

use crate::draft::{GraphDraft, WeightContent};

/// The largest parts have two to the power of this many elements: their matrix takes 256 KiB.
const LARGEST: u32 = 8;

/// Whether a cache of a type holds rotated rows.
pub(crate) fn is_rotated(cache: DType) -> bool {
    cache.is_quantized()
}

/// [Sylvester's matrix](https://en.wikipedia.org/wiki/Hadamard_matrix), times what makes its rows unit vectors.
pub(crate) fn hadamard(elements: u64) -> Vec<f32> {
    let unit = 1.0 / (elements as f32).sqrt();
    let entry = |place: u64| {
        let common = (place / elements) & (place % elements);
        if common.count_ones().is_multiple_of(2) { unit } else { -unit }
    };
    (0..elements * elements).map(entry).collect()
}

impl GraphDraft<'_> {
    /// Heads as a cache of a type holds them, or meets them: `[head, heads, tokens]`.
    pub(crate) fn rotated(&mut self, x: TensorId, cache: DType) -> TensorId {
        let [head, heads, tokens, _] = self.b.desc(x).extents;
        let elements = 1 << head.trailing_zeros().min(LARGEST);
        if !is_rotated(cache) || elements == 1 {
            return x;
        }
        let matrix = self.rotation(elements);
        if elements == head {
            return self.b.mul_mat(matrix, x);
        }
        let x = if self.b.desc(x).is_contiguous() { x } else { self.b.cont(x) };
        let parts = self.b.reshape(x, &[elements, head / elements * heads, tokens]);
        let rotated = self.b.mul_mat(matrix, parts);
        self.b.reshape(rotated, &[head, heads, tokens])
    }

    /// The matrix for parts of some elements, where this layer's cache is: one for all layers with caches there.
    fn rotation(&mut self, elements: u64) -> TensorId {
        let device = self.cache_device();
        let name = format!("cache.rotation.{elements}.{device:?}");
        self.made(&name, (DType::F32, &[elements, elements]), device, WeightContent::Hadamard)
    }

    /// The device of the cache that this layer attends to.
    pub(crate) fn cache_device(&self) -> DeviceId {
        self.spec.layout.caches[self.sizes().shares.unwrap_or(self.layer)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Orthogonal, and its own inverse.
    #[test]
    fn two_rotations_leave_what_there_was() {
        for elements in [2usize, 32, 64, 256] {
            let matrix = hadamard(elements as u64);
            for (i, row) in matrix.chunks(elements).enumerate() {
                for (j, column) in matrix.chunks(elements).enumerate() {
                    let product: f32 = row.iter().zip(column).map(|(a, b)| a * b).sum();
                    let expected = if i == j { 1.0 } else { 0.0 };
                    assert!((product - expected).abs() < 1e-6, "{elements}: {i} {j}: {product}");
                    assert_eq!(matrix[i * elements + j], matrix[j * elements + i]);
                }
            }
        }
    }
}
