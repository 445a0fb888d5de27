//! The blocks that architectures are drawn from.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_gguf::Model as File;
use orlop_graph::{DType, FlashAttention, Gate, Graph, GraphBuilder, Op, TensorDesc, TensorId, Unary};

use crate::config::{Config, Experts, Norm};
use crate::{CacheTypes, Error};

/// What one run of a graph takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Tokens that go in.
    pub tokens: u64,
    /// Tokens whose logits come out: the last ones, or any if there is one graph for it.
    pub outputs: u64,
}

/// Which part of a model a weight belongs to; parts are what is given to devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The embedding table.
    Input,
    /// A layer.
    Layer(usize),
    /// What turns the last layer's result into logits.
    Output,
}

/// A graph of a model, and its places for data.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) graph: Arc<Graph>,
    /// Token ids.
    pub(crate) tokens: TensorId,
    /// Where they stand in their text.
    pub(crate) positions: TensorId,
    /// Rows of the cache that their keys and values go to.
    pub(crate) rows: TensorId,
    /// How many rows of the cache each of them sees.
    pub(crate) seen: TensorId,
    /// Which tokens' logits are wanted, where that is not all.
    pub(crate) wanted: Option<TensorId>,
    pub(crate) logits: TensorId,
    /// Weights, and the part and the name in the file of each.
    pub(crate) weights: Vec<DrawnWeight>,
    /// Caches, and the layer of each.
    pub(crate) caches: Vec<(TensorId, usize)>,
}

#[derive(Clone, Debug)]
pub(crate) struct DrawnWeight {
    pub(crate) leaf: TensorId,
    pub(crate) part: Part,
    /// Its name in the file.
    pub(crate) source: String,
}

/// What a drawing goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sketch<'a> {
    pub(crate) config: &'a Config,
    pub(crate) file: &'a File,
    pub(crate) shape: Shape,
    /// Rows of the cache.
    pub(crate) context: u64,
    pub(crate) cache: CacheTypes,
    /// The embedding table is also the output matrix, and the two are on different devices: two leafs.
    pub(crate) untie: bool,
}

/// A graph in the making.
pub(crate) struct Draft<'a> {
    pub(crate) b: GraphBuilder,
    pub(crate) config: &'a Config,
    sketch: Sketch<'a>,
    part: Part,
    known: HashMap<String, TensorId>,
    weights: Vec<DrawnWeight>,
    caches: Vec<(TensorId, usize)>,
    tokens: TensorId,
    positions: TensorId,
    rows: TensorId,
    seen: TensorId,
    wanted: Option<TensorId>,
}

impl Sketch<'_> {
    /// Draws the graph.
    pub(crate) fn draw(self) -> Result<Drawn, Error> {
        let mut b = GraphBuilder::new();
        let Shape { tokens: count, outputs } = self.shape;
        let tokens = b.input("tokens", DType::I32, &[count]);
        let positions = b.input("positions", DType::I32, &[count]);
        let rows = b.input("cache rows", DType::I32, &[count]);
        let seen = b.input("rows seen", DType::I32, &[count]);
        let wanted = (outputs < count).then(|| b.input("wanted", DType::I32, &[outputs]));
        let mut draft = Draft {
            b,
            config: self.config,
            sketch: self,
            part: Part::Input,
            known: HashMap::new(),
            weights: Vec::new(),
            caches: Vec::new(),
            tokens,
            positions,
            rows,
            seen,
            wanted,
        };
        let logits = self.config.architecture.draw(&mut draft)?;
        draft.b.output(logits);
        let Draft { b, weights, caches, .. } = draft;
        let graph = Arc::new(b.build()?);
        Ok(Drawn { graph, tokens, positions, rows, seen, wanted, logits, weights, caches })
    }
}

impl Draft<'_> {
    pub(crate) fn layers(&self) -> usize {
        self.config.layers.len()
    }

    /// Weights from here on belong to a layer.
    pub(crate) fn enter(&mut self, layer: usize) {
        self.part = Part::Layer(layer);
    }

    fn token_count(&self) -> u64 {
        self.sketch.shape.tokens
    }

    /// A weight that the file need not have.
    fn optional(&mut self, name: &str, extents: &[u64]) -> Result<Option<TensorId>, Error> {
        self.weight_from(name, name, extents)
    }

    /// A weight of these extents; whoever asks again gets the same.
    pub(crate) fn weight(&mut self, name: &str, extents: &[u64]) -> Result<TensorId, Error> {
        self.optional(name, extents)?.ok_or_else(|| Error::MissingTensor(name.to_owned()))
    }

    fn weight_from(&mut self, name: &str, source: &str, extents: &[u64]) -> Result<Option<TensorId>, Error> {
        if let Some(known) = self.known.get(name) {
            return Ok(Some(*known));
        }
        let Some(tensor) = self.sketch.file.tensor(source) else { return Ok(None) };
        let expected = TensorDesc::contiguous(tensor.desc.dtype, extents);
        if expected.as_ref().ok() != Some(&tensor.desc) {
            return Err(Error::TensorShape {
                name: source.to_owned(),
                expected: extents.to_vec(),
                found: tensor.extents().to_vec(),
            });
        }
        let leaf = self.b.weight(name, tensor.desc.dtype, extents);
        self.known.insert(name.to_owned(), leaf);
        self.weights.push(DrawnWeight { leaf, part: self.part, source: source.to_owned() });
        Ok(Some(leaf))
    }

    /// Rows of the embedding table.
    pub(crate) fn embedding(&mut self) -> Result<TensorId, Error> {
        let table = self.weight("token_embd.weight", &[self.config.width, self.config.vocabulary])?;
        let x = self.b.get_rows(table, self.tokens);
        Ok(self.b.name(x, "embedding"))
    }

    /// Norm and output matrix, which is the embedding table where the file has no other.
    pub(crate) fn logits(&mut self, x: TensorId) -> Result<TensorId, Error> {
        self.part = Part::Output;
        let x = self.norm("output_norm", x)?;
        let extents = [self.config.width, self.config.vocabulary];
        let matrix = match self.optional("output.weight", &extents)? {
            Some(matrix) => matrix,
            None if self.sketch.untie => self
                .weight_from("output.weight", "token_embd.weight", &extents)?
                .ok_or_else(|| Error::MissingTensor("output.weight".to_owned()))?,
            None => self.weight("token_embd.weight", &extents)?,
        };
        let product = self.b.mul_mat(matrix, x);
        let logits = self.biased("output", product)?;
        Ok(self.b.name(logits, "logits"))
    }

    /// The norm that the architecture uses, times a weight, plus a bias if there is one.
    pub(crate) fn norm(&mut self, stem: &str, x: TensorId) -> Result<TensorId, Error> {
        let width = self.b.desc(x).extents[0];
        let normed = match self.config.architecture.norm() {
            Norm::Rms => self.b.rms_norm(x, self.config.epsilon),
            Norm::Mean => self.b.norm(x, self.config.epsilon),
        };
        let weight = self.weight(&format!("{stem}.weight"), &[width])?;
        let scaled = self.b.mul(normed, weight);
        let shifted = match self.optional(&format!("{stem}.bias"), &[width])? {
            Some(bias) => self.b.add(scaled, bias),
            None => scaled,
        };
        Ok(self.b.name(shifted, stem))
    }

    /// A product with `stem.weight`, scaled by `stem.scale` where there is one.
    fn product(&mut self, stem: &str, x: TensorId, into: u64) -> Result<TensorId, Error> {
        let from = self.b.desc(x).extents[0];
        let matrix = self.weight(&format!("{stem}.weight"), &[from, into])?;
        Ok(self.b.mul_mat(matrix, x))
    }

    fn scaled(&mut self, stem: &str, x: TensorId) -> Result<TensorId, Error> {
        Ok(match self.optional(&format!("{stem}.scale"), &[1])? {
            Some(scale) => self.b.mul(x, scale),
            None => x,
        })
    }

    fn biased(&mut self, stem: &str, x: TensorId) -> Result<TensorId, Error> {
        let width = self.b.desc(x).extents[0];
        Ok(match self.optional(&format!("{stem}.bias"), &[width])? {
            Some(bias) => self.b.add(x, bias),
            None => x,
        })
    }

    /// A product with what goes with it: the weight's scale, then the bias.
    pub(crate) fn linear(&mut self, stem: &str, x: TensorId, into: u64) -> Result<TensorId, Error> {
        let product = self.product(stem, x, into)?;
        let scaled = self.scaled(stem, product)?;
        let biased = self.biased(stem, scaled)?;
        Ok(self.b.name(biased, stem))
    }

    /// As [`Draft::linear`], but the scale comes last, as files of feed-forward parts mean it.
    fn linear_scaled_last(&mut self, stem: &str, x: TensorId, into: u64) -> Result<TensorId, Error> {
        let product = self.product(stem, x, into)?;
        let biased = self.biased(stem, product)?;
        let scaled = self.scaled(stem, biased)?;
        Ok(self.b.name(scaled, stem))
    }

    /// Queries, keys and values, as heads: `[head, heads, tokens]`. Some files keep their three matrices as one.
    pub(crate) fn queries_keys_values(&mut self, layer: usize, x: TensorId) -> Result<[TensorId; 3], Error> {
        let sizes = self.config.layers[layer];
        let (key, value) = (self.config.key, self.config.value);
        let heads = [(key, sizes.heads), (key, sizes.kv_heads), (value, sizes.kv_heads)];
        if self.sketch.file.tensor(&format!("blk.{layer}.attn_qkv.weight")).is_some() {
            let all = heads.iter().map(|(head, heads)| head * heads).sum();
            let fused = self.linear(&format!("blk.{layer}.attn_qkv"), x, all)?;
            let mut offset = 0;
            return Ok(heads.map(|(head, heads)| {
                let part = self.heads_at(fused, offset, [head, heads]);
                offset += head * heads;
                part
            }));
        }
        let [q, k, v] = ["attn_q", "attn_k", "attn_v"].map(|stem| format!("blk.{layer}.{stem}"));
        let tokens = self.token_count();
        let mut one = |stem: &str, (head, heads): (u64, u64)| {
            let rows = self.linear(stem, x, head * heads)?;
            Ok::<_, Error>(self.b.reshape(rows, &[head, heads, tokens]))
        };
        Ok([one(&q, heads[0])?, one(&k, heads[1])?, one(&v, heads[2])?])
    }

    /// Heads that lie side by side in longer rows, from an element on.
    fn heads_at(&mut self, rows: TensorId, first: u64, [head, heads]: [u64; 2]) -> TensorId {
        let strides = self.b.desc(rows).strides;
        let extents = [head, heads, self.token_count(), 1];
        self.b.view(
            rows,
            extents,
            [strides[0], head * strides[0], strides[1], strides[2]],
            first * strides[0],
        )
    }

    /// Heads as rows, one a token.
    fn rows_of(&mut self, x: TensorId) -> TensorId {
        let desc = self.b.desc(x);
        let [head, heads, tokens, _] = desc.extents;
        if desc.is_contiguous() {
            return self.b.reshape(x, &[head * heads, tokens]);
        }
        let [element, _, token, outer] = desc.strides;
        self.b.view(x, [head * heads, tokens, 1, 1], [element, token, outer, outer], 0)
    }

    /// Factors of the rotation's frequencies, where the file has any: some have one set for contexts up to what they
    /// were first trained for and one for longer ones.
    pub(crate) fn rope_factors(&mut self) -> Result<Option<TensorId>, Error> {
        let rope = self.config.rope;
        let length = [u64::from(rope.dims) / 2];
        let long = self.sketch.context > u64::from(rope.original_context);
        let chosen = if long { "rope_factors_long.weight" } else { "rope_factors_short.weight" };
        self.part = Part::Layer(0);
        let factors = match self.optional("rope_freqs.weight", &length)? {
            Some(factors) => Some(factors),
            None => self.optional(chosen, &length)?,
        };
        self.part = Part::Input;
        Ok(factors)
    }

    /// Turns heads by their positions.
    pub(crate) fn rope(&mut self, x: TensorId, factors: Option<TensorId>) -> TensorId {
        self.b.rope(x, self.positions, factors, self.config.rope)
    }

    /// Writes keys and values to the layer's cache, attends to all of it that each token sees, and multiplies with the
    /// output matrix.
    pub(crate) fn attention(&mut self, layer: usize, [q, k, v]: [TensorId; 3]) -> Result<TensorId, Error> {
        let sizes = self.config.layers[layer];
        let (context, types) = (self.sketch.context, self.sketch.cache);
        let k = self.cached(layer, "k", k, types.k, context);
        let v = self.cached(layer, "v", v, types.v, context);
        let q = self.b.permute(q, [0, 2, 1, 3]);
        let parameters = FlashAttention {
            scale: self.config.attention_scale,
            max_bias: 0.0,
            soft_cap: 0.0,
            window: 0,
            kv_len: true,
            mask: false,
            sinks: false,
        };
        // [value, heads, tokens]
        let attended = self.b.node(Op::FlashAttention(parameters), &[q, k, v, self.seen]);
        let rows = self.b.reshape(attended, &[self.config.value * sizes.heads, self.token_count()]);
        self.linear(&format!("blk.{layer}.attn_output"), rows, self.config.width)
    }

    /// All rows of a cache, `[head, rows, heads]`, after those of these tokens are written.
    fn cached(&mut self, layer: usize, which: &str, x: TensorId, dtype: DType, context: u64) -> TensorId {
        let [head, heads, ..] = self.b.desc(x).extents;
        let cache = self.b.state(&format!("cache.{which}.{layer}"), dtype, &[head * heads, context]);
        self.caches.push((cache, layer));
        let rows = self.rows_of(x);
        let written = self.b.set_rows(cache, rows, self.rows);
        let split = self.b.reshape(written, &[head, heads, context]);
        self.b.permute(split, [0, 2, 1, 3])
    }

    /// After the last layer's attention only those tokens go on whose logits are wanted: what it gave, and what is
    /// added to it.
    pub(crate) fn wanted_rows(&mut self, layer: usize, x: TensorId, kept: TensorId) -> (TensorId, TensorId) {
        match self.wanted {
            Some(wanted) if layer + 1 == self.layers() => {
                (self.b.get_rows(x, wanted), self.b.get_rows(kept, wanted))
            }
            _ => (x, kept),
        }
    }

    /// Adds an embedding of each token's position.
    pub(crate) fn position_embedding(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let positions = self.config.context;
        if self.sketch.context > positions {
            return Err(Error::BadSetting {
                setting: "the context",
                value: self.sketch.context.to_string(),
                rule: "this model has embeddings only for the positions it was trained for",
            });
        }
        let table = self.weight("position_embd.weight", &[self.config.width, positions])?;
        let rows = self.b.get_rows(table, self.positions);
        Ok(self.b.add(x, rows))
    }

    /// Up, activation, down.
    pub(crate) fn feed_forward(
        &mut self,
        layer: usize,
        function: Unary,
        x: TensorId,
    ) -> Result<TensorId, Error> {
        let hidden = self.config.layers[layer].hidden;
        let up = self.linear_scaled_last(&format!("blk.{layer}.ffn_up"), x, hidden)?;
        let activated = self.b.unary(function, up);
        self.linear_scaled_last(&format!("blk.{layer}.ffn_down"), activated, self.config.width)
    }

    /// Gate and up in one matrix, then down.
    pub(crate) fn fused_feed_forward(
        &mut self,
        layer: usize,
        gate: Gate,
        x: TensorId,
    ) -> Result<TensorId, Error> {
        let hidden = self.config.layers[layer].hidden;
        let both = self.linear_scaled_last(&format!("blk.{layer}.ffn_up"), x, 2 * hidden)?;
        let activated = self.b.gated_fused(gate, both, false);
        self.linear_scaled_last(&format!("blk.{layer}.ffn_down"), activated, self.config.width)
    }

    /// Gate and up, then down.
    pub(crate) fn gated_feed_forward(
        &mut self,
        layer: usize,
        gate: Gate,
        x: TensorId,
    ) -> Result<TensorId, Error> {
        let hidden = self.config.layers[layer].hidden;
        let gated = self.linear_scaled_last(&format!("blk.{layer}.ffn_gate"), x, hidden)?;
        let up = self.linear_scaled_last(&format!("blk.{layer}.ffn_up"), x, hidden)?;
        let activated = self.b.gated(gate, gated, up);
        self.linear_scaled_last(&format!("blk.{layer}.ffn_down"), activated, self.config.width)
    }

    /// The best few experts of each token, weighted by how sure the router is of them, weights adding up to one.
    pub(crate) fn experts(
        &mut self,
        layer: usize,
        gate: Gate,
        experts: &Experts,
        x: TensorId,
    ) -> Result<TensorId, Error> {
        let Experts { count, used, hidden, scale } = *experts;
        let (width, tokens) = (self.config.width, self.b.desc(x).extents[1]);
        let router = self.weight(&format!("blk.{layer}.ffn_gate_inp.weight"), &[width, count])?;
        let scores = self.b.mul_mat(router, x);
        let sure = self.b.soft_max(scores, None, 1.0, 0.0);
        // [used, tokens]
        let chosen = self.b.top_k(sure, used);
        let sure = self.b.reshape(sure, &[1, count, tokens]);
        let weights = self.b.get_rows(sure, chosen);
        let weights = self.b.reshape(weights, &[used, tokens]);
        let sum = self.b.sum_rows(weights);
        let sum = self.b.clamp(sum, SMALLEST_SUM, f32::INFINITY);
        let mut weights = self.b.div(weights, sum);
        if scale != 1.0 {
            weights = self.b.scale(weights, scale);
        }
        let weights = self.b.reshape(weights, &[1, used, tokens]);
        let each = self.b.reshape(x, &[width, 1, tokens]);
        let gated =
            self.expert_product(&format!("blk.{layer}.ffn_gate_exps"), each, chosen, [width, hidden, count])?;
        let up =
            self.expert_product(&format!("blk.{layer}.ffn_up_exps"), each, chosen, [width, hidden, count])?;
        let activated = self.b.gated(gate, gated, up);
        let down = [hidden, width, count];
        let down = self.expert_product(&format!("blk.{layer}.ffn_down_exps"), activated, chosen, down)?;
        let weighted = self.b.mul(down, weights);
        let desc = self.b.desc(weighted);
        let mut sum = None;
        for expert in 0..used {
            let one = self.b.view(
                weighted,
                [width, tokens, 1, 1],
                [desc.strides[0], desc.strides[2], desc.strides[3], desc.strides[3]],
                expert * desc.strides[1],
            );
            sum = Some(match sum {
                Some(sum) => self.b.add(sum, one),
                None if used == 1 => self.b.cont(one),
                None => one,
            });
        }
        sum.map(|sum| self.b.name(sum, format!("blk.{layer}.ffn_out")))
            .ok_or_else(|| Error::MissingTensor(format!("blk.{layer}.ffn_down_exps.weight")))
    }

    fn expert_product(
        &mut self,
        stem: &str,
        x: TensorId,
        chosen: TensorId,
        [from, into, count]: [u64; 3],
    ) -> Result<TensorId, Error> {
        let matrices = self.weight(&format!("{stem}.weight"), &[from, into, count])?;
        let product = self.b.mul_mat_id(matrices, x, chosen);
        let Some(scale) = self.optional(&format!("{stem}.scale"), &[count])? else { return Ok(product) };
        let [used, tokens, ..] = self.b.desc(chosen).extents;
        let scale = self.b.reshape(scale, &[1, count]);
        let ids = self.b.reshape(chosen, &[used * tokens]);
        let scales = self.b.get_rows(scale, ids);
        let scales = self.b.reshape(scales, &[1, used, tokens]);
        Ok(self.b.mul(product, scales))
    }
}

/// Below this, a sum of weights does not divide them.
const SMALLEST_SUM: f32 = 6.103_515_6e-5;
