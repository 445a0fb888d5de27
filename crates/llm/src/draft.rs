//! Building graphs: the parts that architectures are made of. A [`GraphSpec`] says what is wanted, a [`GraphDraft`] is the
//! graph under construction, a [`ModelGraph`] the result.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use orlop_gguf::GgufFile as File;
use orlop_graph::{DType, Graph, GraphBuilder, TensorDesc, TensorId, Unary};
use orlop_sched::DeviceId;

use crate::adapter::{AdapterFactors, EMBEDDINGS};
use crate::arch::{Facts, Norm, Positions};
use crate::cache::{CacheGroup, CacheSizes};
use crate::config::{Config, LayerConfig};
use crate::key_bias::{BiasPart, KeyBias};
use crate::pooling::Pooling;
use crate::{CacheTypes, CutType, Error, LayerPlacement};

mod adapters;
mod attention;
mod delta_net;
mod experts;
mod feed_forward;
mod latent;
mod layer_embeddings;
mod layers;
mod rwkv;
mod short_convolution;
mod state_space;
mod taps;
mod texts;

pub(crate) use feed_forward::FeedForward;
pub(crate) use taps::{Squares, Tap};
pub(crate) use texts::{TextInputs, TextRange};

/// What one run of a graph takes and gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Tokens that go in.
    pub tokens: u64,
    /// Tokens whose logits come out.
    pub outputs: u64,
}

/// The part of a model that a weight belongs to; parts are assigned to devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelPart {
    /// The embedding table.
    Input,
    /// A layer, without its routed experts.
    Layer(usize),
    /// The routed experts of a layer.
    Experts(usize),
    /// Those of them that are on another device.
    HotExperts(usize),
    /// What turns the last layer's result into logits.
    Output,
}

impl ModelPart {
    /// Its place among the parts as a run goes through them.
    fn order(self) -> (usize, usize) {
        match self {
            ModelPart::Input => (0, 0),
            ModelPart::Layer(layer) => (1 + layer, 0),
            ModelPart::Experts(layer) => (1 + layer, 1),
            ModelPart::HotExperts(layer) => (1 + layer, 2),
            ModelPart::Output => (usize::MAX, 0),
        }
    }
}

impl Ord for ModelPart {
    fn cmp(&self, other: &ModelPart) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for ModelPart {
    fn partial_cmp(&self, other: &ModelPart) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A graph of a model, with its inputs, outputs, weights and caches.
#[derive(Clone, Debug)]
pub(crate) struct ModelGraph {
    pub(crate) graph: Graph,
    pub(crate) shape: BatchShape,
    /// Token ids.
    pub(crate) tokens: TensorId,
    /// Their positions in their sequence.
    pub(crate) positions: TensorId,
    /// How many rows of its sequence each of them sees.
    pub(crate) seen: TensorId,
    /// The row of tables of pages that is about the sequence of each of them.
    pub(crate) sequences: TensorId,
    /// Where keys and values lie, for each group of layers.
    pub(crate) groups: Vec<GroupInputs>,
    /// Which tokens' logits are wanted, where that is not all.
    pub(crate) wanted: Option<TensorId>,
    /// Which sequence's state is continued, in models that keep one.
    pub(crate) slot: Option<TensorId>,
    /// Factors of queries, in models where these grow with their position.
    pub(crate) query_factors: Option<TensorId>,
    /// Factors of the changes that adapters make.
    pub(crate) adapter_scales: Option<TensorId>,
    /// What graphs of whole texts are told.
    pub(crate) texts: Option<TextInputs>,
    /// What matrices are multiplied with, if that was asked for.
    pub(crate) taps: Vec<Tap>,
    /// The experts that tokens choose, if that was asked for.
    pub(crate) routers: Vec<Router>,
    /// Experts of layers that are on two devices.
    pub(crate) parts_of_experts: Vec<PartOfExperts>,
    /// Results that are computed where a part is, whatever reads them.
    pub(crate) assigned: Vec<(TensorId, ModelPart)>,
    /// In graphs of texts, a row of each text.
    pub(crate) logits: TensorId,
    /// The likeliest token of each row of logits; in graphs of texts, their rows.
    pub(crate) best: TensorId,
    /// Weights, and the part and the name in the file of each.
    pub(crate) weights: Vec<GraphWeight>,
    pub(crate) caches: Vec<CacheTensor>,
}

/// What a graph is told of a group of layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupInputs {
    /// The row of each token's keys and values.
    pub(crate) rows: TensorId,
    /// The pages of each sequence of the run.
    pub(crate) pages: TensorId,
}

/// A tensor that stays from run to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheTensor {
    pub(crate) tensor: TensorId,
    pub(crate) layer: usize,
    /// The group whose rows it holds, if it holds rows.
    pub(crate) group: Option<usize>,
}

/// Experts of a layer that are on one device.
#[derive(Clone, Debug)]
pub(crate) struct PartOfExperts {
    pub(crate) layer: usize,
    /// What tokens choose of them, by their numbers among them.
    pub(crate) here: TensorId,
    pub(crate) experts: Arc<[u32]>,
}

/// The experts that a layer's router chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Router {
    pub(crate) layer: usize,
    /// `[used, tokens]`
    pub(crate) chosen: TensorId,
    pub(crate) used: u64,
    /// How many there are.
    pub(crate) count: u64,
    /// How many tokens the layer sees.
    pub(crate) tokens: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct GraphWeight {
    pub(crate) leaf: TensorId,
    pub(crate) part: ModelPart,
    /// Where it is wished.
    pub(crate) device: DeviceId,
    /// Its name in the file.
    pub(crate) source: String,
    pub(crate) content: WeightContent,
}

/// What a weight is of its tensor in the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WeightContent {
    Whole,
    /// The matrices of these experts.
    Experts(Arc<[u32]>),
    /// Numbers that no file has.
    Numbers(Arc<[i32]>),
    /// A matrix that no file has, which rotates rows of caches.
    Hadamard,
    /// Rows that no file has, which keys or queries are changed by.
    KeyBias(Box<KeyBias>, BiasPart),
}

/// What a graph is built from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphSpec<'a> {
    pub(crate) config: &'a Config,
    pub(crate) file: &'a File,
    /// Adapters whose tensors the file has, too.
    pub(crate) adapters: &'a [AdapterFactors],
    pub(crate) shape: BatchShape,
    pub(crate) sizes: CacheSizes,
    pub(crate) cache: CacheTypes,
    /// Whole texts go in, and a row of each comes out.
    pub(crate) pooling: Option<Pooling>,
    /// What matrices are multiplied with comes out.
    pub(crate) taps: bool,
    /// Which experts tokens choose comes out.
    pub(crate) counts: bool,
    /// Where the parts are.
    pub(crate) layout: &'a LayerPlacement,
    /// What passes from one device to another.
    pub(crate) cut: CutType,
}

/// A graph under construction.
pub(crate) struct GraphDraft<'a> {
    pub(crate) b: GraphBuilder,
    pub(crate) config: &'a Config,
    pub(crate) facts: &'static Facts,
    pub(crate) spec: GraphSpec<'a>,
    pub(crate) part: ModelPart,
    /// The layer that is drawn.
    pub(crate) layer: usize,
    known: HashMap<String, TensorId>,
    pub(crate) weights: Vec<GraphWeight>,
    caches: Vec<CacheTensor>,
    /// Keys and values of each layer that has them, with the rows of this run.
    stored: HashMap<usize, [TensorId; 2]>,
    /// Values that the first layer made, in models where later ones are mixed with them.
    first_values: Option<TensorId>,
    /// Factors of RoPE's frequencies.
    rope_factors: Option<TensorId>,
    /// Embeddings of each token for each layer.
    layer_embeddings: Option<TensorId>,
    groups: Vec<(CacheGroup, GroupInputs)>,
    tokens: TensorId,
    positions: TensorId,
    seen: TensorId,
    sequences: TensorId,
    wanted: Option<TensorId>,
    slot: Option<TensorId>,
    query_factors: Option<TensorId>,
    adapter_scales: Option<TensorId>,
    texts: Option<TextInputs>,
    taps: Vec<Tap>,
    routers: Vec<Router>,
    pub(crate) parts_of_experts: Vec<PartOfExperts>,
    pub(crate) assigned: Vec<(TensorId, ModelPart)>,
}

impl GraphSpec<'_> {
    /// Builds the graph.
    pub(crate) fn build(self) -> Result<ModelGraph, Error> {
        self.check_context()?;
        let mut b = GraphBuilder::new();
        let BatchShape { tokens: count, outputs } = self.shape;
        let tokens = b.input("tokens", DType::I32, &[count]);
        let positions = b.input("positions", DType::I32, &[count]);
        // Whole texts have ranges of rows instead; nothing reads these there.
        let of_cache = |b: &mut GraphBuilder, name: &str| match self.pooling {
            Some(_) => tokens,
            None => b.input(name, DType::I32, &[count]),
        };
        let seen = of_cache(&mut b, "rows seen");
        let sequences = of_cache(&mut b, "sequences");
        // A row for each sequence that a run can have.
        let table = [self.sizes.pages_of_sequence(), self.sizes.sequences.min(count)];
        let groups = match self.pooling {
            Some(_) => Vec::new(),
            None => self.sizes.groups(self.config),
        };
        let groups = groups.into_iter().map(|group| {
            let of = group.window.map_or(String::new(), |window| format!(" of a window of {window}"));
            let rows = b.input(&format!("cache rows{of}"), DType::I32, &[count]);
            (group, GroupInputs { rows, pages: b.input(&format!("pages{of}"), DType::I32, &table) })
        });
        let groups: Vec<(CacheGroup, GroupInputs)> = groups.collect();
        let wanted =
            (outputs < count && self.pooling.is_none()).then(|| b.input("wanted", DType::I32, &[outputs]));
        let mut draft = GraphDraft {
            b,
            config: self.config,
            facts: self.config.architecture.facts(),
            spec: self,
            part: ModelPart::Input,
            layer: 0,
            known: HashMap::new(),
            weights: Vec::new(),
            caches: Vec::new(),
            stored: HashMap::new(),
            first_values: None,
            rope_factors: None,
            layer_embeddings: None,
            groups,
            tokens,
            positions,
            seen,
            sequences,
            wanted,
            slot: None,
            query_factors: None,
            adapter_scales: None,
            texts: None,
            taps: Vec::new(),
            routers: Vec::new(),
            parts_of_experts: Vec::new(),
            assigned: Vec::new(),
        };
        draft.texts = self.pooling.map(|pooling| draft.text_inputs(pooling));
        let logits = draft.model()?;
        draft.b.output(logits);
        let best = if self.pooling.is_some() { logits } else { draft.best(logits) };
        let GraphDraft { b, weights, caches, groups, wanted, slot, query_factors, .. } = draft;
        let GraphDraft { adapter_scales, texts, taps, routers, parts_of_experts, assigned, .. } = draft;
        let graph = b.build()?;
        Ok(ModelGraph {
            graph,
            shape: self.shape,
            tokens,
            positions,
            seen,
            sequences,
            groups: groups.into_iter().map(|(_, inputs)| inputs).collect(),
            wanted,
            slot,
            query_factors,
            adapter_scales,
            texts,
            taps,
            routers,
            parts_of_experts,
            assigned,
            logits,
            best,
            weights,
            caches,
        })
    }

    /// Some models see no tokens beyond those that they were trained for.
    fn check_context(&self) -> Result<(), Error> {
        let facts = self.config.architecture.facts();
        let (context, trained) = (self.sizes.context, self.config.context);
        let (most, rule) = match (facts.chunk, facts.positions) {
            (Some(chunk), _) => {
                (u64::from(chunk), "this model sees chunks of tokens, and only the first is supported")
            }
            (None, Positions::Embedded) => {
                (trained, "this model has embeddings only for the positions it was trained for")
            }
            _ => return Ok(()),
        };
        if context <= most {
            return Ok(());
        }
        Err(Error::BadSetting { setting: "the context", value: context.to_string(), rule })
    }
}

impl GraphDraft<'_> {
    fn layers(&self) -> usize {
        self.config.layers.len()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.spec.file.tensor(name).is_some()
    }

    /// Factors of RoPE's frequencies, in layers where they count.
    pub(crate) fn turning_factors(&self) -> Option<TensorId> {
        let counts = self.facts.factors_in_windows || self.sizes().window.is_none();
        self.rope_factors.filter(|_| counts)
    }

    /// The parts of a layer are drawn from here on.
    fn enter(&mut self, layer: usize) {
        self.layer = layer;
        self.part = ModelPart::Layer(layer);
    }

    /// What this layer does, and its sizes.
    pub(crate) fn sizes(&self) -> LayerConfig {
        self.config.layers[self.layer]
    }

    /// The name of a part of this layer.
    pub(crate) fn blk(&self, part: &str) -> String {
        format!("blk.{}.{part}", self.layer)
    }

    fn token_count(&self) -> u64 {
        self.spec.shape.tokens
    }

    /// A weight that the file need not have.
    fn optional(&mut self, name: &str, extents: &[u64]) -> Result<Option<TensorId>, Error> {
        self.weight_from(name, name, extents)
    }

    /// A weight of these extents; the same leaf for the same name.
    pub(crate) fn weight(&mut self, name: &str, extents: &[u64]) -> Result<TensorId, Error> {
        self.optional(name, extents)?.ok_or_else(|| Error::MissingTensor(name.to_owned()))
    }

    pub(crate) fn weight_from(
        &mut self,
        name: &str,
        source: &str,
        extents: &[u64],
    ) -> Result<Option<TensorId>, Error> {
        self.weight_of(name, source, extents, WeightContent::Whole)
    }

    /// What a weight has of a tensor of these extents.
    pub(crate) fn weight_of(
        &mut self,
        name: &str,
        source: &str,
        extents: &[u64],
        content: WeightContent,
    ) -> Result<Option<TensorId>, Error> {
        if let Some(known) = self.known.get(name) {
            return Ok(Some(*known));
        }
        let Some(tensor) = self.spec.file.tensor(source) else { return Ok(None) };
        let expected = TensorDesc::contiguous(tensor.desc.dtype, extents);
        if expected.as_ref().ok() != Some(&tensor.desc) {
            return Err(Error::TensorShape {
                name: source.to_owned(),
                expected: extents.to_vec(),
                found: tensor.extents().to_vec(),
            });
        }
        let mut extents = extents.to_vec();
        if let (WeightContent::Experts(experts), [_, _, count]) = (&content, extents.as_mut_slice()) {
            *count = experts.len() as u64;
        }
        let leaf = self.b.weight(name, tensor.desc.dtype, &extents);
        self.known.insert(name.to_owned(), leaf);
        let (part, device) = (self.part, self.spec.layout.device(self.part));
        self.weights.push(GraphWeight { leaf, part, device, source: source.to_owned(), content });
        Ok(Some(leaf))
    }

    /// A weight that no file has; the same leaf for the same name.
    pub(crate) fn made(
        &mut self,
        name: &str,
        (dtype, extents): (DType, &[u64]),
        device: DeviceId,
        content: WeightContent,
    ) -> TensorId {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let leaf = self.b.weight(name, dtype, extents);
        self.known.insert(name.to_owned(), leaf);
        self.weights.push(GraphWeight { leaf, part: self.part, device, source: name.to_owned(), content });
        leaf
    }

    /// A row of numbers for each index, which no file has.
    pub(crate) fn table(&mut self, name: &str, numbers: Arc<[i32]>) -> TensorId {
        let (extents, device) = ([1, numbers.len() as u64], self.spec.layout.device(self.part));
        self.made(name, (DType::I32, &extents), device, WeightContent::Numbers(numbers))
    }

    /// Rows of the embedding table.
    fn embedding(&mut self) -> Result<TensorId, Error> {
        let table = self.weight(EMBEDDINGS, &[self.config.width, self.config.vocabulary])?;
        let x = self.b.get_rows(table, self.tokens);
        let x = self.scaled("token_embd", x)?;
        let mut x = self.adapted_rows("token_embd", x)?;
        if self.config.embedding_scale != 1.0 {
            x = self.b.scale(x, self.config.embedding_scale);
        }
        if self.facts.encoder && self.has("token_types.weight") {
            let types = self.spec.file.tensor("token_types.weight").map_or(0, |types| types.desc.extents[1]);
            let table = self.weight("token_types.weight", &[self.config.width, types])?;
            // Texts are of the first type.
            let strides = self.b.desc(table).strides;
            let first = self.b.view(table, [self.config.width, 1, 1, 1], strides, 0);
            x = self.b.add(x, first);
        }
        if self.facts.norms_embedding {
            x = self.b.rms_norm(x, self.config.epsilon);
        }
        if self.facts.positions == Positions::Embedded {
            x = self.position_embedding(x)?;
        }
        let stem = "token_embd_norm";
        if stem != self.facts.output_norm && self.has(&format!("{stem}.weight")) {
            x = self.norm(stem, x)?;
        }
        Ok(self.b.name(x, "embedding"))
    }

    /// The last norm and the output matrix, which is the embedding table where the file has no other.
    fn logits(&mut self, x: TensorId) -> Result<TensorId, Error> {
        self.part = ModelPart::Output;
        let x = self.norm(self.facts.output_norm, x)?;
        let extents = [self.config.width, self.config.vocabulary];
        let matrix = match self.optional("output.weight", &extents)? {
            Some(matrix) => matrix,
            // On two devices, the embedding table and the output matrix are two leaves.
            None if self.spec.layout.input != self.spec.layout.output => self
                .weight_from("output.weight", "token_embd.weight", &extents)?
                .ok_or_else(|| Error::MissingTensor("output.weight".to_owned()))?,
            None => self.weight("token_embd.weight", &extents)?,
        };
        let product = self.b.mul_mat(matrix, x);
        let scaled = self.scaled(if self.has("output.weight") { "output" } else { "token_embd" }, product)?;
        let adapted = self.adapted("output", scaled, x, None)?;
        let mut logits = self.biased("output", adapted)?;
        if self.config.logit_scale != 1.0 {
            logits = self.b.scale(logits, self.config.logit_scale);
        }
        if let Some(cap) = self.config.logit_cap {
            logits = self.b.scale(logits, 1.0 / cap);
            logits = self.b.unary(Unary::Tanh, logits);
            logits = self.b.scale(logits, cap);
        }
        Ok(self.b.name(logits, "logits"))
    }

    /// The index of the largest logit of each row, as an output, so that the logits need not be read.
    fn best(&mut self, logits: TensorId) -> TensorId {
        let best = self.b.argmax(logits);
        self.b.output(best);
        self.b.name(best, "likeliest tokens")
    }

    /// The norm that the architecture uses, times a weight, plus a bias if there is one.
    fn norm(&mut self, stem: &str, x: TensorId) -> Result<TensorId, Error> {
        let width = self.b.desc(x).extents[0];
        self.norm_with(stem, x, &[width], self.config.epsilon)
    }

    /// As that, with weights of these extents.
    fn norm_with(
        &mut self,
        stem: &str,
        x: TensorId,
        weights: &[u64],
        epsilon: f32,
    ) -> Result<TensorId, Error> {
        let normed = match self.facts.norm {
            Norm::Rms => self.b.rms_norm(x, epsilon),
            Norm::Mean => self.b.norm(x, epsilon),
        };
        let width = self.b.desc(x).extents[0];
        // Some files of Falcon H1 have a norm without the ending.
        let name = if self.has(stem) { stem.to_owned() } else { format!("{stem}.weight") };
        let weight = self.weight(&name, weights)?;
        let scaled = self.b.mul(normed, weight);
        let shifted = match self.optional(&format!("{stem}.bias"), &[width])? {
            Some(bias) => self.b.add(scaled, bias),
            None => scaled,
        };
        Ok(self.b.name(shifted, stem))
    }

    /// A product with `stem.weight` and its scale, changed by adapters.
    fn product(&mut self, stem: &str, x: TensorId, into: u64) -> Result<TensorId, Error> {
        let from = self.b.desc(x).extents[0];
        let name = format!("{stem}.weight");
        let matrix = self.weight(&name, &[from, into])?;
        self.tap(&name, x);
        let product = self.b.mul_mat(matrix, x);
        let scaled = self.scaled(stem, product)?;
        self.adapted(stem, scaled, x, None)
    }

    /// What was made of `stem.weight`, times the one number that goes with its type; longer scales are something else.
    fn scaled(&mut self, stem: &str, x: TensorId) -> Result<TensorId, Error> {
        let name = format!("{stem}.scale");
        match self.spec.file.tensor(&name).map(|scale| scale.desc.elements()) {
            Some(1) => {
                let scale = self.weight(&name, &[1])?;
                Ok(self.b.mul(x, scale))
            }
            _ => Ok(x),
        }
    }

    fn biased(&mut self, stem: &str, x: TensorId) -> Result<TensorId, Error> {
        let width = self.b.desc(x).extents[0];
        Ok(match self.optional(&format!("{stem}.bias"), &[width])? {
            Some(bias) => self.b.add(x, bias),
            None => x,
        })
    }

    /// A product and its bias.
    fn linear(&mut self, stem: &str, x: TensorId, into: u64) -> Result<TensorId, Error> {
        let product = self.product(stem, x, into)?;
        let biased = self.biased(stem, product)?;
        Ok(self.b.name(biased, stem))
    }

    /// After the last layer's attention, only the rows of tokens whose logits are wanted: of its result, and of the
    /// residual that is added.
    fn wanted_rows(&mut self, x: TensorId, kept: TensorId) -> (TensorId, TensorId) {
        match self.wanted {
            Some(wanted) if self.layer + 1 == self.layers() => {
                (self.b.get_rows(x, wanted), self.b.get_rows(kept, wanted))
            }
            _ => (x, kept),
        }
    }

    /// Adds an embedding of each token's position.
    fn position_embedding(&mut self, x: TensorId) -> Result<TensorId, Error> {
        let table = self.weight("position_embd.weight", &[self.config.width, self.config.context])?;
        let rows = self.b.get_rows(table, self.positions);
        Ok(self.b.add(x, rows))
    }

    /// Part of each row, from an element on, as heads: `[head, heads, tokens]`.
    fn columns(&mut self, rows: TensorId, first: u64, [head, heads]: [u64; 2]) -> TensorId {
        let strides = self.b.desc(rows).strides;
        let extents = [head, heads, self.token_count(), 1];
        self.b.view(
            rows,
            extents,
            [strides[0], head * strides[0], strides[1], strides[2]],
            first * strides[0],
        )
    }
}
