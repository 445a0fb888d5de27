//! Changes of products by [adapters](crate::LoraAdapter).

use orlop_graph::{DType, TensorId};

use super::GraphDraft;
use crate::Error;
use crate::adapter::{HALVES, prefix};

impl GraphDraft<'_> {
    /// The product of `stem.weight` and x, changed by all adapters that have something for it: low-rank products beside it.
    /// They come behind the weight's scale, which belongs to its type. Of experts, `chosen` says which.
    pub(crate) fn adapted(
        &mut self,
        stem: &str,
        product: TensorId,
        x: TensorId,
        chosen: Option<TensorId>,
    ) -> Result<TensorId, Error> {
        let multiply = |draft: &mut Self, matrix: TensorId, x: TensorId| match chosen {
            Some(chosen) => draft.b.mul_mat_id(matrix, x, chosen),
            None => draft.b.mul_mat(matrix, x),
        };
        self.changed(stem, product, |draft, a| multiply(draft, a, x), multiply)
    }

    /// Rows of the table of embeddings, changed in the same way.
    pub(super) fn adapted_rows(&mut self, stem: &str, rows: TensorId) -> Result<TensorId, Error> {
        let first = |draft: &mut Self, a: TensorId| draft.b.get_rows(a, draft.tokens);
        self.changed(stem, rows, first, |draft, b, x| draft.b.mul_mat(b, x))
    }

    fn changed(
        &mut self,
        stem: &str,
        whole: TensorId,
        first: impl Fn(&mut Self, TensorId) -> TensorId,
        second: impl Fn(&mut Self, TensorId, TensorId) -> TensorId,
    ) -> Result<TensorId, Error> {
        let mut whole = whole;
        for index in 0..self.spec.adapters.len() {
            let [a, b] = HALVES.map(|half| self.half(&format!("{}{stem}.weight{half}", prefix(index))));
            let (Some(a), Some(b)) = (a?, b?) else { continue };
            let small = first(self, a);
            let rank = self.b.desc(b).extents[0];
            let small = self.by_scale(index, rank, small);
            let change = second(self, b, small);
            whole = self.b.add(whole, change);
        }
        Ok(whole)
    }

    /// A weight of an adapter, which was checked before.
    fn half(&mut self, name: &str) -> Result<Option<TensorId>, Error> {
        let Some(tensor) = self.spec.file.tensor(name) else { return Ok(None) };
        let extents = tensor.desc.extents;
        self.optional(name, &extents)
    }

    /// Times the scale that the run is told, and the constant factor of the adapter.
    fn by_scale(&mut self, index: usize, rank: u64, x: TensorId) -> TensorId {
        let adapters = self.spec.adapters;
        let scales = match self.adapter_scales {
            Some(scales) => scales,
            None => self.b.input("adapter scales", DType::F32, &[adapters.len() as u64]),
        };
        self.adapter_scales = Some(scales);
        let element = self.b.desc(scales).strides[0];
        let scale = self.b.view(scales, [1; 4], [element; 4], index as u64 * element);
        let scaled = self.b.mul(x, scale);
        match adapters[index].of_rank(rank) {
            1.0 => scaled,
            factor => self.b.scale(scaled, factor),
        }
    }
}
