//! Weights of experts: those of a layer together, or on two devices.

use std::sync::Arc;

use orlop_graph::TensorId;

use crate::Error;
use crate::config::Experts;
use crate::draft::{GraphDraft, ModelPart, PartOfExperts, WeightContent};

/// What the name of the last product's matrices begins with.
pub(crate) const DOWN: &str = "ffn_down_exps";

/// Experts whose matrices are together, and what tokens have chosen of them.
pub(crate) struct ChosenExperts {
    /// Numbers of the chosen among all experts of the layer, `[used, tokens]`.
    pub(crate) chosen: TensorId,
    /// Where they are only some of the layer's.
    pub(crate) some: Option<SomeExperts>,
}

impl ChosenExperts {
    /// The name of a weight, or of their part of it.
    fn named(&self, stem: &str, end: &str) -> String {
        match &self.some {
            None => format!("{stem}.{end}"),
            Some(some) => format!("{stem}.{}.{end}", some.name),
        }
    }
}

/// Some of a layer's experts.
pub(crate) struct SomeExperts {
    /// In the names of their weights.
    name: &'static str,
    experts: Arc<[u32]>,
    /// Numbers of the chosen among these; -1 for those that are elsewhere.
    here: TensorId,
}

impl GraphDraft<'_> {
    /// What experts on two devices make of each token, added up: hot ones first, so that their device is at work while the
    /// other one is.
    pub(crate) fn on_two_devices(
        &mut self,
        experts: &Experts,
        hot: &Arc<[u32]>,
        input: TensorId,
        chosen: TensorId,
        weights: Option<TensorId>,
    ) -> Result<TensorId, Error> {
        let cold: Arc<[u32]> =
            (0..experts.count as u32).filter(|expert| hot.binary_search(expert).is_err()).collect();
        let parts = [
            (ModelPart::HotExperts(self.layer), "hot", Arc::clone(hot)),
            (ModelPart::Experts(self.layer), "cold", cold),
        ];
        let mut sums = [chosen; 2];
        for ((part, name, some), sum) in parts.into_iter().zip(&mut sums) {
            self.part = part;
            let here = self.numbers_among(name, &some, experts.count, chosen);
            self.parts_of_experts.push(PartOfExperts { layer: self.layer, here, experts: Arc::clone(&some) });
            let some = Some(SomeExperts { name, experts: some, here });
            let each = self.each_expert(experts, input, &ChosenExperts { chosen, some })?;
            *sum = match weights {
                None => self.sum_of_experts(each),
                // Else they would follow what reads the sum, and the results of all experts be handed on.
                Some(weights) => {
                    let weighted = self.b.mul(each, weights);
                    let sum = self.sum_of_experts(weighted);
                    self.assigned.extend([(weighted, part), (sum, part)]);
                    sum
                }
            };
        }
        let [hot, cold] = sums;
        let mut sum = self.b.add(cold, hot);
        self.assigned.push((sum, ModelPart::Layer(self.layer)));
        // Every token has the biases of all its experts, wherever these are.
        self.part = ModelPart::Layer(self.layer);
        let all = ChosenExperts { chosen, some: None };
        let extents = [self.b.desc(sum).extents[0], experts.count];
        if let Some(biases) = self.expert_biases(&self.blk(DOWN), &all, extents)? {
            let biases = weights.map_or(biases, |weights| self.b.mul(biases, weights));
            let biases = self.sum_of_experts(biases);
            sum = self.b.add(sum, biases);
        }
        Ok(sum)
    }

    /// The numbers that the chosen experts have among some of them, or -1, `[used, tokens]`.
    fn numbers_among(&mut self, name: &str, some: &[u32], count: u64, chosen: TensorId) -> TensorId {
        let number = |expert: u32| some.binary_search(&expert).map_or(-1, |number| number as i32);
        let table =
            self.table(&self.blk(&format!("{name}_experts")), (0..count as u32).map(number).collect());
        let [used, tokens, ..] = self.b.desc(chosen).extents;
        let ids = self.b.reshape(chosen, &[used * tokens]);
        let numbers = self.b.get_rows(table, ids);
        self.b.reshape(numbers, &[used, tokens])
    }

    /// A product and the bias behind it.
    pub(crate) fn biased_product(
        &mut self,
        stem: &str,
        x: TensorId,
        chosen: &ChosenExperts,
        extents: [u64; 3],
    ) -> Result<TensorId, Error> {
        let product = self.expert_product(stem, x, chosen, extents)?;
        let [_, into, count] = extents;
        let biases = self.expert_biases(stem, chosen, [into, count])?;
        Ok(biases.map_or(product, |biases| self.b.add(product, biases)))
    }

    pub(crate) fn expert_product(
        &mut self,
        stem: &str,
        x: TensorId,
        all: &ChosenExperts,
        [from, into, count]: [u64; 3],
    ) -> Result<TensorId, Error> {
        let (name, chosen, extents) = (format!("{stem}.weight"), all.chosen, [from, into, count]);
        let mut product = match &all.some {
            None => {
                let matrices = self.weight(&name, &extents)?;
                self.tap_experts(&name, x, chosen, count);
                self.b.mul_mat_id(matrices, x, chosen)
            }
            Some(some) => {
                let content = WeightContent::Experts(Arc::clone(&some.experts));
                let matrices = self.weight_of(&all.named(stem, "weight"), &name, &extents, content)?;
                let matrices = matrices.ok_or(Error::MissingTensor(name))?;
                self.b.mul_mat_some(matrices, x, some.here)
            }
        };
        if let Some(scale) =
            self.weight_from(&all.named(stem, "scale"), &format!("{stem}.scale"), &[count])?
        {
            let scale = self.b.reshape(scale, &[1, count]);
            let scales = self.of_chosen(scale, chosen);
            product = self.b.mul(product, scales);
        }
        self.adapted(stem, product, x, Some(chosen))
    }

    /// The biases of the chosen experts, `[into, used, tokens]`, if there are any.
    pub(crate) fn expert_biases(
        &mut self,
        stem: &str,
        all: &ChosenExperts,
        extents: [u64; 2],
    ) -> Result<Option<TensorId>, Error> {
        let bias = self.weight_from(&all.named(stem, "bias"), &format!("{stem}.bias"), &extents)?;
        Ok(bias.map(|bias| self.of_chosen(bias, all.chosen)))
    }
}
