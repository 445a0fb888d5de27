//! Transformer blocks at tiny sizes.

use orlop_graph::{DType, FlashAttention, Glu, Graph, GraphBuilder, GraphError, Rope, RopeMode, TensorId};

use crate::fill::{Fill, feeds};
use crate::{Feeds, OpFailure};

/// Sizes of a transformer block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Tokens of one run. Default 3.
    pub tokens: u64,
    /// Elements of a head. Default 32.
    pub head: u64,
    /// Query heads. Default 4.
    pub heads: u64,
    /// Heads of K and V. Default 2.
    pub kv_heads: u64,
    /// Rows of the cache, at least the tokens. Default 8.
    pub context: u64,
    /// Elements between the feed-forward products. Default 96.
    pub hidden: u64,
    /// Element type of the matrices. Default F32.
    pub weights: DType,
    /// Element type of the cache. Default F16.
    pub cache: DType,
    /// A mixture of experts instead of one feed-forward part. Default none.
    pub experts: Option<ExpertShape>,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertShape {
    /// How many there are.
    pub count: u64,
    /// How many a token uses.
    pub used: u64,
}

impl Default for BlockSize {
    fn default() -> BlockSize {
        BlockSize {
            tokens: 3,
            head: 32,
            heads: 4,
            kv_heads: 2,
            context: 8,
            hidden: 96,
            weights: DType::F32,
            cache: DType::F16,
            experts: None,
        }
    }
}

/// Why there is no block of these sizes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The sizes do not fit each other.
    #[error("the sizes do not make a graph")]
    Graph(#[from] GraphError),
    /// A type cannot be filled.
    #[error("the leaves cannot be filled")]
    Fill(#[from] OpFailure),
}

/// One transformer block as a decoder runs it: norm, attention over a cache that is written at given rows, norm,
/// feed-forward or a mixture of experts. The token's rows are the last of what the cache holds by then.
///
/// Outputs are the block's result; the cache's two tensors are states.
///
/// # Errors
/// [`BlockError`] if the sizes do not fit each other or a type has no codec.
pub fn block(size: &BlockSize) -> Result<(Graph, Feeds), BlockError> {
    let (builder, fills) = draw(size);
    let graph = builder.build()?;
    let feeds = feeds(&graph, "block", &fills)?;
    Ok((graph, feeds))
}

/// Several such blocks, one after the other, as a model has them: names of what belongs to one of them begin with
/// `blk.` and its number, and all write the same rows of their caches.
///
/// # Errors
/// As [`block`].
pub fn blocks(size: &BlockSize, count: usize) -> Result<(Graph, Feeds), BlockError> {
    let mut drawing = Drawing::new(size);
    let mut x = drawing.begin();
    for number in 0..count {
        drawing.prefix = format!("blk.{number}.");
        x = drawing.block(x);
    }
    let (builder, fills) = drawing.finish(x);
    let graph = builder.build()?;
    let feeds = feeds(&graph, "blocks", &fills)?;
    Ok((graph, feeds))
}

/// The block before it is checked, and what its leaves are filled with.
pub(crate) fn draw(size: &BlockSize) -> (GraphBuilder, Vec<(TensorId, Fill)>) {
    let mut drawing = Drawing::new(size);
    let x = drawing.begin();
    let result = drawing.block(x);
    drawing.finish(result)
}

struct Drawing {
    b: GraphBuilder,
    fills: Vec<(TensorId, Fill)>,
    size: BlockSize,
    /// What names of weights and states begin with.
    prefix: String,
    /// Positions, rows of the cache, and how many of them count; for all blocks.
    rows: Option<[TensorId; 3]>,
}

impl Drawing {
    fn new(size: &BlockSize) -> Drawing {
        let (b, fills, prefix) = (GraphBuilder::new(), Vec::new(), String::new());
        Drawing { b, fills, size: *size, prefix, rows: None }
    }

    fn begin(&mut self) -> TensorId {
        let BlockSize { head, heads, tokens, .. } = self.size;
        self.input("x", DType::F32, &[head * heads, tokens], Fill::SIGNED)
    }

    fn finish(mut self, result: TensorId) -> (GraphBuilder, Vec<(TensorId, Fill)>) {
        self.b.name(result, "result");
        self.b.output(result);
        (self.b, self.fills)
    }

    fn block(&mut self, x: TensorId) -> TensorId {
        let attended = self.attention(x);
        let residual = self.b.add(x, attended);
        let normed = self.norm("ffn_norm.weight", residual);
        let fed = match self.size.experts {
            None => self.feed_forward(normed),
            Some(experts) => self.mixture(normed, experts),
        };
        self.b.add(residual, fed)
    }

    fn weight(&mut self, name: &str, dtype: DType, extents: &[u64]) -> TensorId {
        self.b.weight(&format!("{}{name}", self.prefix), dtype, extents)
    }

    fn input(&mut self, name: &str, dtype: DType, extents: &[u64], fill: Fill) -> TensorId {
        let id = self.b.input(name, dtype, extents);
        self.fills.push((id, fill));
        id
    }

    /// A matrix whose products keep the size of what they are multiplied with.
    fn matrix(&mut self, name: &str, extents: &[u64]) -> TensorId {
        let id = self.weight(name, self.size.weights, extents);
        let limit = 1.5 / (extents[0] as f64).sqrt();
        self.fills.push((id, Fill::Uniform { low: -limit, high: limit }));
        id
    }

    fn norm(&mut self, name: &str, x: TensorId) -> TensorId {
        let weight = self.weight(name, DType::F32, &[self.size.head * self.size.heads]);
        self.fills.push((weight, Fill::Uniform { low: 0.5, high: 1.5 }));
        let normed = self.b.rms_norm(x, 1e-5);
        self.b.mul(normed, weight)
    }

    /// A product, cut into heads.
    fn heads(&mut self, name: &str, x: TensorId, heads: u64) -> TensorId {
        let BlockSize { head, heads: all, tokens, .. } = self.size;
        let weight = self.matrix(name, &[head * all, head * heads]);
        let product = self.b.mul_mat(weight, x);
        self.b.reshape(product, &[head, heads, tokens])
    }

    /// Writes rows into a cache and returns all of it as `head context kv_heads`.
    fn cached(&mut self, name: &str, rows: TensorId, indices: TensorId) -> TensorId {
        let BlockSize { head, kv_heads, tokens, context, cache, .. } = self.size;
        let state = self.b.state(&format!("{}{name}", self.prefix), cache, &[head * kv_heads, context]);
        self.fills.push((state, Fill::SIGNED));
        let rows = self.b.reshape(rows, &[head * kv_heads, tokens]);
        let written = self.b.set_rows(state, rows, indices);
        let cut = self.b.reshape(written, &[head, kv_heads, context]);
        self.b.permute(cut, [0, 2, 1, 3])
    }

    fn rows(&mut self) -> [TensorId; 3] {
        if let Some(rows) = self.rows {
            return rows;
        }
        let BlockSize { tokens, context, .. } = self.size;
        let past = context.saturating_sub(tokens);
        let from = |first: u64| Fill::Values((0..tokens).map(|token| (first + token) as f64).collect());
        let positions = self.input("positions", DType::I32, &[tokens], from(past));
        let indices = self.input("rows", DType::I64, &[tokens], from(past));
        let kv_len = self.input("kv_len", DType::I32, &[tokens], from(past + 1));
        *self.rows.insert([positions, indices, kv_len])
    }

    fn attention(&mut self, x: TensorId) -> TensorId {
        let BlockSize { head, heads, kv_heads, tokens, .. } = self.size;
        let [positions, indices, kv_len] = self.rows();
        let normed = self.norm("attn_norm.weight", x);
        let rope = Rope { mode: RopeMode::Normal, dims: head as u32, ..Rope::default() };
        let q = self.heads("attn_q.weight", normed, heads);
        let k = self.heads("attn_k.weight", normed, kv_heads);
        let v = self.heads("attn_v.weight", normed, kv_heads);
        let [q, k] = [q, k].map(|x| self.b.rope(x, positions, None, rope));
        let k = self.cached("cache_k", k, indices);
        let v = self.cached("cache_v", v, indices);
        let q = self.b.permute(q, [0, 2, 1, 3]);
        let params = FlashAttention::scaled(1.0 / (head as f32).sqrt());
        let attended = self.b.flash_attention([q, k, v], Some(kv_len), None, None, params);
        let joined = self.b.reshape(attended, &[head * heads, tokens]);
        let output = self.matrix("attn_output.weight", &[head * heads, head * heads]);
        self.b.mul_mat(output, joined)
    }

    fn feed_forward(&mut self, x: TensorId) -> TensorId {
        let width = self.size.head * self.size.heads;
        let [gate, up] = ["ffn_gate.weight", "ffn_up.weight"].map(|name| {
            let weight = self.matrix(name, &[width, self.size.hidden]);
            self.b.mul_mat(weight, x)
        });
        let gated = self.b.gated(Glu::Silu, gate, up);
        let down = self.matrix("ffn_down.weight", &[self.size.hidden, width]);
        self.b.mul_mat(down, gated)
    }

    fn mixture(&mut self, x: TensorId, experts: ExpertShape) -> TensorId {
        let BlockSize { tokens, hidden, .. } = self.size;
        let width = self.size.head * self.size.heads;
        let ExpertShape { count, used } = experts;
        let router = self.weight("ffn_gate_inp.weight", DType::F32, &[width, count]);
        self.fills.push((router, Fill::SIGNED));
        let scores = self.b.mul_mat(router, x);
        let shares = self.b.soft_max(scores, None, 1.0, 0.0);
        let chosen = self.b.top_k(shares, used);
        let each = self.b.reshape(x, &[width, 1, tokens]);
        let [gate, up] = ["ffn_gate_exps.weight", "ffn_up_exps.weight"].map(|name| {
            let weight = self.matrix(name, &[width, hidden, count]);
            self.b.mul_mat_id(weight, each, chosen)
        });
        let gated = self.b.gated(Glu::Silu, gate, up);
        let down = self.matrix("ffn_down_exps.weight", &[hidden, width, count]);
        let results = self.b.mul_mat_id(down, gated, chosen);
        let shares = self.b.reshape(shares, &[1, count, tokens]);
        let shares = self.b.get_rows(shares, chosen);
        let weighted = self.b.mul(results, shares);
        // The sum over the experts used, by views of one after the other.
        let [s0, s1, s2, s3] = self.b.desc(weighted).strides;
        let part = |b: &mut GraphBuilder, expert: u64| {
            b.view(weighted, [width, tokens, 1, 1], [s0, s2, s3, s3], expert * s1)
        };
        let first = part(&mut self.b, 0);
        let mut sum = self.b.cont(first);
        for expert in 1..used {
            let next = part(&mut self.b, expert);
            sum = self.b.add(sum, next);
        }
        sum
    }
}
