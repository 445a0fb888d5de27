//! What lies around the products of [experts](https://arxiv.org/abs/2401.04088): which of them a token takes, and the sum of
//! what they have made of it.

use bytemuck::{Pod, Zeroable};
use orlop_backend::{DeviceError, Step};
use orlop_graph::{DType, Graph, NodeId, Op, TensorId};

use super::product::addend;
use super::rows::row_threads;
use super::{Launch, LaunchContext, Spread, misfit, wide_rows};
use crate::modules::{Source, Variant};

/// The router's product, a softmax, the largest of it, and those divided by their sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Routing {
    /// Matrix and activations, if the product is part of it.
    product: Option<[TensorId; 2]>,
    scores: TensorId,
    pub(crate) ids: TensorId,
    pub(crate) weights: TensorId,
    scale: f32,
    low: f32,
    high: f32,
    factor: f32,
}

/// Most experts of a token, and most that there are.
const MAX_USED: u64 = 32;
const MAX_EXPERTS: u64 = 2048;

impl Routing {
    /// What nodes mean as one step.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<Routing> {
        let product = nodes.first().map(|node| graph.node(*node)).filter(|node| node.op == Op::MulMat);
        let (_, rest) = nodes.split_at(usize::from(product.is_some()));
        let [soft_max, top_k, get_rows, sum_rows, clamp, div, scale @ ..] = rest else { return None };
        let [soft_max, top_k, get_rows, sum_rows, clamp, div] =
            [soft_max, top_k, get_rows, sum_rows, clamp, div].map(|node| graph.node(*node));
        let factor = match scale.iter().map(|node| graph.node(*node)).collect::<Vec<_>>()[..] {
            [] => Some((1.0, div.output)),
            [node] => match node.op {
                Op::Scale { scale, bias: 0.0 } if node.inputs[..] == [div.output] => {
                    Some((scale, node.output))
                }
                _ => None,
            },
            _ => None,
        };
        let (factor, weights) = factor?;
        let (Op::SoftMax(soft), Op::TopK { .. }, Op::GetRows, Op::SumRows, Op::Clamp { min, max }, Op::Div) =
            (&soft_max.op, &top_k.op, &get_rows.op, &sum_rows.op, &clamp.op, &div.op)
        else {
            return None;
        };
        let tensor = |id: TensorId| graph.tensor(id);
        // The same numbers in the same order, in other dimensions.
        let same = |id: TensorId, of: TensorId| {
            tensor(id).storage.root == of && tensor(id).storage.offset == 0 && tensor(id).desc.is_contiguous()
        };
        let [scores, ids] = [soft_max.inputs[0], top_k.output].map(|id| &tensor(id).desc);
        let [experts, tokens, ..] = scores.extents;
        let used = ids.extents[0];
        let fits = !soft.mask
            && !soft.sinks
            && soft.max_bias == 0.0
            && scores.dtype == DType::F32
            && scores.is_contiguous()
            && scores.extents[2..] == [1, 1]
            && experts <= MAX_EXPERTS
            && (1..=MAX_USED.min(experts)).contains(&used)
            && tokens > 0
            && ids.extents == [used, tokens, 1, 1]
            && ids.strides[0] == 4
            && top_k.inputs[0] == soft_max.output
            && same(get_rows.inputs[0], soft_max.output)
            && tensor(get_rows.inputs[0]).desc.extents == [1, experts, tokens, 1]
            && get_rows.inputs[1] == top_k.output
            && same(sum_rows.inputs[0], get_rows.output)
            && tensor(sum_rows.inputs[0]).desc.extents == [used, tokens, 1, 1]
            && clamp.inputs[0] == sum_rows.output
            && div.inputs[0] == sum_rows.inputs[0]
            && div.inputs[1] == clamp.output
            && tensor(weights).desc.is_contiguous()
            && tensor(weights).desc.dtype == DType::F32;
        let product = match product {
            None => None,
            Some(node) => {
                let [matrix, x] = [node.inputs[0], node.inputs[1]];
                let [w, desc] = [matrix, x].map(|id| &tensor(id).desc);
                let fits = node.output == soft_max.inputs[0]
                    && matches!(w.dtype, DType::F32 | DType::F16 | DType::BF16)
                    && desc.dtype == DType::F32
                    && desc.extents[0].is_multiple_of(8)
                    && desc.extents[2..] == [1, 1]
                    && w.extents[2..] == [1, 1]
                    && wide_rows(graph, matrix)
                    && wide_rows(graph, x);
                if !fits {
                    return None;
                }
                Some([matrix, x])
            }
        };
        fits.then_some(Routing {
            product,
            scores: soft_max.inputs[0],
            ids: top_k.output,
            weights,
            scale: soft.scale,
            low: *min,
            high: *max,
            factor,
        })
    }

    pub(crate) fn reads(&self) -> Vec<TensorId> {
        self.product.map_or_else(|| vec![self.scores], |both| both.to_vec())
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RouteParameter {
    x: u64,
    w: u64,
    scores: u64,
    ids: u64,
    weights: u64,
    x_row: i64,
    w_row: i64,
    scores_row: i64,
    ids_row: i64,
    k: i32,
    experts: i32,
    used: i32,
    tokens: i32,
    dtype: i32,
    scale: f32,
    low: f32,
    high: f32,
    factor: f32,
    gap: u32,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct MixParameter {
    x: u64,
    weights: u64,
    add: u64,
    y: u64,
    x_token: i64,
    x_slot: i64,
    add_row: i64,
    y_row: i64,
    k: i32,
    used: i32,
    tokens: i32,
    gap: u32,
}

/// Shared with `experts.cu`.
pub(super) const STRUCTURES: &[(&str, usize)] =
    &[("Route", size_of::<RouteParameter>()), ("Mix", size_of::<MixParameter>())];

/// Tokens of a block where there are many.
const TOKENS: u64 = 4;

pub(super) fn route(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let routing = Routing::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let [scores, ids] = [routing.scores, routing.ids].map(|id| site.desc(id));
    let [experts, tokens, ..] = scores.extents;
    let mut parameter = RouteParameter {
        ids: site.at(routing.ids)?,
        weights: site.at(routing.weights)?,
        scores_row: scores.strides[1] as i64,
        ids_row: ids.strides[1] as i64,
        experts: experts as i32,
        used: ids.extents[0] as i32,
        tokens: tokens as i32,
        scale: routing.scale,
        low: routing.low,
        high: routing.high,
        factor: routing.factor,
        ..RouteParameter::zeroed()
    };
    match routing.product {
        None => parameter.scores = site.at(routing.scores)?,
        Some([matrix, x]) => {
            (parameter.w, parameter.x) = (site.at(matrix)?, site.at(x)?);
            parameter.w_row = site.desc(matrix).strides[1] as i64;
            parameter.x_row = site.desc(x).strides[1] as i64;
            parameter.k = site.desc(x).extents[0] as i32;
            parameter.dtype = site.desc(matrix).dtype.gguf_id() as i32;
        }
    }
    let together = if tokens >= 2 * TOKENS { TOKENS } else { 1 };
    let variant = Variant { source: Source::Experts, defines: vec![format!("TOKENS={together}")] };
    let shared_bytes = (4 * together * experts) as u32;
    let spread = Spread { shared_bytes, ..Spread::new(tokens.div_ceil(together), 256) };
    launches.push(site.launch(&variant, "route", spread, &parameter)?);
    Ok(())
}

/// What the experts of each token have made of it, times their weights, added up; and a tensor added to that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mixture {
    /// `[width, used, tokens]`
    pub(crate) x: TensorId,
    pub(crate) weights: TensorId,
    pub(crate) used: u64,
    pub(crate) sum: Option<TensorId>,
    pub(crate) output: TensorId,
}

impl Mixture {
    /// What nodes mean as one step: a product with a weight for each expert, sums of its slices, a sum with another tensor.
    pub(crate) fn parse(graph: &Graph, nodes: &[NodeId]) -> Option<Mixture> {
        let (mul, adds) = nodes.split_first()?;
        let mul = graph.node(*mul);
        if mul.op != Op::Mul {
            return None;
        }
        let [x, weights] = [mul.inputs[0], mul.inputs[1]];
        let tensor = |id: TensorId| graph.tensor(id);
        let [desc, factors] = [x, weights].map(|id| &tensor(id).desc);
        let [width, used, tokens, _] = desc.extents;
        let plain = |id: TensorId| tensor(id).desc.dtype == DType::F32 && tensor(id).desc.is_contiguous();
        let fits = plain(x)
            && plain(weights)
            && desc.extents[3] == 1
            && width.is_multiple_of(4)
            && tokens > 0
            && (2..=MAX_USED).contains(&used)
            && factors.extents == [1, used, tokens, 1]
            && wide_rows(graph, x)
            && adds.len() as u64 + 1 >= used;
        if !fits {
            return None;
        }
        let slice = |id: TensorId, expert: u64| {
            let (view, all) = (tensor(id), tensor(mul.output));
            view.storage.root == mul.output
                && view.storage.offset == expert * all.desc.strides[1]
                && view.desc.extents == [width, tokens, 1, 1]
                && view.desc.strides[..2] == [4, all.desc.strides[2]]
        };
        let (slices, rest) = adds.split_at(used as usize - 1);
        let mut output = None;
        for (expert, add) in (1..).zip(slices) {
            let add = graph.node(*add);
            let before = output.map_or_else(|| slice(add.inputs[0], 0), |before| add.inputs[0] == before);
            if add.op != Op::Add || !before || !slice(add.inputs[1], expert) {
                return None;
            }
            output = Some(add.output);
        }
        let output = output.filter(|output| plain(*output) && wide_rows(graph, *output))?;
        match rest {
            [] => Some(Mixture { x, weights, used, sum: None, output }),
            [add] => {
                let add = graph.node(*add);
                let sum = addend(graph, add, output)?;
                // A row for all tokens is another's to add.
                let fits = tensor(sum).desc == tensor(output).desc && wide_rows(graph, sum);
                fits.then_some(Mixture { x, weights, used, sum: Some(sum), output: add.output })
            }
            _ => None,
        }
    }

    pub(crate) fn reads(&self) -> Vec<TensorId> {
        [Some(self.x), Some(self.weights), self.sum].into_iter().flatten().collect()
    }
}

pub(super) fn mix(
    site: &LaunchContext<'_>,
    step: &Step,
    launches: &mut Vec<Launch>,
) -> Result<(), DeviceError> {
    let mixture = Mixture::parse(site.graph(), &step.nodes).ok_or_else(|| misfit(site, step))?;
    let desc = site.desc(mixture.x);
    let [k, used, tokens, _] = desc.extents;
    let row = |id: TensorId| site.desc(id).strides[1] as i64;
    let parameter = MixParameter {
        x: site.at(mixture.x)?,
        weights: site.at(mixture.weights)?,
        add: mixture.sum.map_or(Ok(0), |sum| site.at(sum))?,
        y: site.at(mixture.output)?,
        x_token: desc.strides[2] as i64,
        x_slot: desc.strides[1] as i64,
        add_row: mixture.sum.map_or(0, row),
        y_row: row(mixture.output),
        k: k as i32,
        used: used as i32,
        tokens: tokens as i32,
        gap: 0,
    };
    let variant = Variant { source: Source::Experts, defines: vec!["TOKENS=1".to_owned()] };
    launches.push(site.launch(&variant, "mix", Spread::new(tokens, row_threads(k)), &parameter)?);
    Ok(())
}
