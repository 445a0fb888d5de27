//! Attention: queries, keys and values, [rotary positions](https://arxiv.org/abs/2104.09864) (RoPE, with
//! [YaRN](https://arxiv.org/abs/2309.00071) for long contexts), the KV cache, and
//! [grouped queries](https://arxiv.org/abs/2305.13245) (GQA), where several heads of queries share one of keys and values.

use orlop_graph::{DType, FlashAttention, PagedRows, TensorId};

use super::{CacheTensor, GraphDraft, ModelPart};
use crate::Error;
use crate::arch::AttentionGate;
use crate::cache::CacheGroup;
use crate::pages::PAGE_ROWS;

impl GraphDraft<'_> {
    /// Queries, keys and values, as heads: `[head, heads, tokens]`. Some files keep their three matrices as one.
    pub(super) fn queries_keys_values(&mut self, x: TensorId) -> Result<[TensorId; 3], Error> {
        let sizes = self.sizes();
        let heads = [(self.query(), sizes.heads), (sizes.key, sizes.kv_heads), (sizes.value, sizes.kv_heads)];
        if self.spec.file.tensor(&self.blk("attn_qkv.weight")).is_some() {
            let all = heads.iter().map(|(head, heads)| head * heads).sum();
            let fused = self.linear(&self.blk("attn_qkv"), x, all)?;
            let mut offset = 0;
            return Ok(heads.map(|(head, heads)| {
                let part = self.columns(fused, offset, [head, heads]);
                offset += head * heads;
                part
            }));
        }
        let [q, k, v] = ["attn_q", "attn_k", "attn_v"].map(|stem| self.blk(stem));
        let tokens = self.token_count();
        let has_values = !self.facts.norms_values || self.has(&format!("{v}.weight"));
        let mut one = |stem: &str, (head, heads): (u64, u64)| {
            let rows = self.linear(stem, x, head * heads)?;
            Ok::<_, Error>(self.b.reshape(rows, &[head, heads, tokens]))
        };
        let (q, k) = (one(&q, heads[0])?, one(&k, heads[1])?);
        let v = if has_values { one(&v, heads[2])? } else { k };
        Ok([q, k, v])
    }

    /// Queries alone, in layers without keys and values of their own.
    pub(super) fn queries(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let (query, heads) = (self.query(), self.sizes().heads);
        let rows = self.linear(&self.blk("attn_q"), x, query * heads)?;
        Ok(self.b.reshape(rows, &[query, heads, self.token_count()]))
    }

    /// Elements of a head that the matrix of queries makes.
    pub(crate) fn query(&self) -> u64 {
        let key = self.sizes().key;
        if self.facts.attention_gate == AttentionGate::InQueries { 2 * key } else { key }
    }

    /// Factors of RoPE's frequencies, where the file has any; for
    /// [LongRoPE](https://arxiv.org/abs/2402.13753) there are two sets, for contexts up to the original one and beyond.
    pub(super) fn rope_factors(&mut self) -> Result<Option<TensorId>, Error> {
        let counts = |window: Option<u32>| window.is_none() || self.facts.factors_in_windows;
        let mut ropes =
            self.config.layers.iter().filter(|layer| counts(layer.window)).filter_map(|layer| layer.rope);
        let Some(rope) = ropes.next() else { return Ok(None) };
        let length = [u64::from(rope.dims) / 2];
        let long = self.spec.sizes.context > u64::from(rope.original_context);
        let chosen = if long { "rope_factors_long.weight" } else { "rope_factors_short.weight" };
        self.part = ModelPart::Layer(0);
        let factors = match self.optional("rope_freqs.weight", &length)? {
            Some(factors) => Some(factors),
            None => self.optional(chosen, &length)?,
        };
        self.part = ModelPart::Input;
        Ok(factors)
    }

    /// Turns heads by their positions, in layers that do.
    pub(super) fn rope(&mut self, x: TensorId) -> TensorId {
        match self.sizes().rope {
            Some(rope) => self.b.rope(x, self.positions, self.turning_factors(), rope),
            None => x,
        }
    }

    /// The group of layers that have the pages of this one.
    fn group(&self) -> usize {
        let window = self.sizes().window;
        self.groups.iter().position(|(group, _)| group.window == window).unwrap_or(0)
    }

    /// Writes keys and values to the layer's cache; those of whole texts stay as they are.
    pub(super) fn store(&mut self, [k, v]: [TensorId; 2]) {
        if self.texts.is_some() {
            let rows = [k, v].map(|x| self.b.permute(x, [0, 2, 1, 3]));
            self.stored.insert(self.layer, rows);
            return;
        }
        let (types, group) = (self.spec.cache, self.group());
        let (k, v) = (self.keys_to_cache(k), self.rotated(v, types.v));
        let k = self.cached("k", k, types.k, group);
        let v = self.cached("v", v, types.v, group);
        self.stored.insert(self.layer, [k, v]);
    }

    /// Attends to the rows of each token's sequence, in the layer's cache or that of the layer whose rows it shares:
    /// `[value, heads, tokens]`.
    pub(super) fn attended(&mut self, q: TensorId) -> Result<TensorId, Error> {
        let sizes = self.sizes();
        let [k, v] = self.stored[&sizes.shares.unwrap_or(self.layer)];
        if let Some(texts) = self.texts.clone() {
            let q = self.b.permute(q, [0, 2, 1, 3]);
            return Ok(self.attended_texts(q, [k, v], &texts));
        }
        let group = self.group();
        let q = self.grown(q);
        let q = self.queries_to_cache(q);
        let q = self.b.permute(q, [0, 2, 1, 3]);
        let rows = PagedRows {
            kv_len: self.seen,
            pages: self.groups[group].1.pages,
            sequences: self.sequences,
            page_rows: PAGE_ROWS as u32,
        };
        let parameters = FlashAttention { window: sizes.window.unwrap_or(0), ..self.scores() };
        let sinks = self.optional(&self.blk("attn_sinks.weight"), &[sizes.heads])?;
        let attended = self.b.paged_attention([q, k, v], rows, sinks, parameters);
        Ok(self.rotated(attended, self.spec.cache.v))
    }

    /// How scores are made of queries and keys.
    pub(super) fn scores(&self) -> FlashAttention {
        let soft_cap = self.config.attention_cap.unwrap_or(0.0);
        FlashAttention { soft_cap, ..FlashAttention::scaled(self.config.attention_scale) }
    }

    /// Queries times the factors of their positions, where these are not 1.
    fn grown(&mut self, q: TensorId) -> TensorId {
        let turned = self.sizes().rope.is_some();
        if self.config.query_growth.is_none_or(|growth| growth.unturned && turned) {
            return q;
        }
        let factors = match self.query_factors {
            Some(factors) => factors,
            None => self.b.input("query factors", DType::F32, &[1, 1, self.token_count()]),
        };
        self.query_factors = Some(factors);
        self.b.mul(q, factors)
    }

    /// A cache, `[head, rows, heads]`, after the rows of these tokens are written. The rows of a head are contiguous, so
    /// attention reads memory in order.
    fn cached(&mut self, which: &str, x: TensorId, dtype: DType, group: usize) -> TensorId {
        let [head, heads, ..] = self.b.desc(x).extents;
        let (CacheGroup { pages, .. }, inputs) = self.groups[group];
        let extents = [head, pages * PAGE_ROWS, heads];
        let tensor = self.b.state(&format!("cache.{which}.{}", self.layer), dtype, &extents);
        self.caches.push(CacheTensor { tensor, layer: self.layer, group: Some(group) });
        let rows = self.b.permute(x, [0, 2, 1, 3]);
        self.b.set_rows(tensor, rows, inputs.rows)
    }
}
