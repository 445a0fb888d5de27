use std::sync::Arc;

use crate::graph::Parts;
use crate::{
    DIMS, DType, DescError, FlashAttention, Glu, Graph, GraphError, Interpolation, Leaf, Node, NodeId, Op,
    OpError, Origin, Patch, Pool, Rope, SoftMax, SortDirection, Storage, Tensor, TensorDesc, TensorId, Unary,
    Window, infer,
};

/// Builds a [`Graph`], one tensor after the other.
///
/// Methods never fail: a call that cannot be meant remembers its error, later ones go on from there, and
/// [`GraphBuilder::build`] returns the first. So code that builds a model reads like the model.
///
/// ```
/// use orlop_graph::{DType, GraphBuilder};
/// let mut b = GraphBuilder::new();
/// let x = b.input("x", DType::F32, &[64, 2]);
/// let w = b.weight("w", DType::Q4_0, &[64, 32]);
/// let h = b.mul_mat(w, x);
/// let y = b.silu(h);
/// b.output(y);
/// let graph = b.build()?;
/// assert_eq!(graph.tensor(y).desc.extents, [32, 2, 1, 1]);
/// # Ok::<(), orlop_graph::GraphError>(())
/// ```
#[derive(Debug, Default)]
pub struct GraphBuilder {
    graph: Parts,
    /// Tensors that stand for results of refused calls; what reads them is passed over in silence.
    poisoned: Vec<bool>,
    error: Option<GraphError>,
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new() -> GraphBuilder {
        GraphBuilder::default()
    }

    /// The finished graph.
    ///
    /// # Errors
    /// The first thing that was wrong, with the tensor's name and the numbers.
    pub fn build(self) -> Result<Graph, GraphError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(Graph(Arc::new(self.graph))),
        }
    }

    /// The description of a tensor built so far; an empty one after a refused call or for a foreign id.
    pub fn desc(&self, id: TensorId) -> TensorDesc {
        self.graph.tensors.get(id.index()).map_or(EMPTY, |tensor| tensor.desc)
    }

    // --- leaves ---

    /// A tensor to be set before each run.
    pub fn input(&mut self, name: &str, dtype: DType, extents: &[u64]) -> TensorId {
        self.leaf(Leaf::Input, name, TensorDesc::contiguous(dtype, extents))
    }

    /// A tensor that keeps its contents between runs.
    pub fn persistent(&mut self, name: &str, dtype: DType, extents: &[u64]) -> TensorId {
        self.leaf(Leaf::Persistent, name, TensorDesc::contiguous(dtype, extents))
    }

    /// A tensor in memory of the caller's that is only read.
    pub fn weight(&mut self, name: &str, dtype: DType, extents: &[u64]) -> TensorId {
        self.leaf(Leaf::Weight, name, TensorDesc::contiguous(dtype, extents))
    }

    /// A tensor in memory of the caller's that is read and written.
    pub fn state(&mut self, name: &str, dtype: DType, extents: &[u64]) -> TensorId {
        self.leaf(Leaf::State, name, TensorDesc::contiguous(dtype, extents))
    }

    /// A leaf of any description, such as one with padded rows.
    pub fn leaf(&mut self, leaf: Leaf, name: &str, desc: Result<TensorDesc, DescError>) -> TensorId {
        let Some(id) = self.next_tensor() else { return TensorId(0) };
        // The fields are public, so a description made by hand is checked like any other.
        let desc = desc.and_then(|desc| TensorDesc::strided(desc.dtype, desc.extents, desc.strides));
        let (desc, poisoned) = match desc {
            Ok(desc) => (desc, false),
            Err(error) => {
                self.fail(GraphError::Leaf { name: name.to_owned(), source: error.into() });
                (EMPTY, true)
            }
        };
        let storage = Storage { root: id, offset: 0 };
        self.graph.tensors.push(Tensor { name: name.to_owned(), desc, storage, origin: Origin::Leaf(leaf) });
        self.poisoned.push(poisoned);
        id
    }

    // --- flags and names ---

    /// Declares an output: its contents are there after a run. Once one is declared, results that nobody
    /// reads and that are no outputs are not kept.
    pub fn output(&mut self, id: TensorId) -> TensorId {
        if self.known(id) && !self.graph.outputs.contains(&id) {
            self.graph.outputs.push(id);
        }
        id
    }

    /// Names a tensor.
    pub fn name(&mut self, id: TensorId, name: impl Into<String>) -> TensorId {
        if self.known(id) {
            let tensor = &mut self.graph.tensors[id.index()];
            tensor.name = name.into();
            // A refused node gets its name only now, so the error does too.
            if let Some(GraphError::Op { node, name, .. }) = &mut self.error
                && tensor.origin == Origin::Node(*node)
            {
                name.clone_from(&tensor.name);
            }
        }
        id
    }

    // --- nodes ---

    /// A node with any op; the named methods are shorthand for this one.
    pub fn node(&mut self, op: Op, inputs: &[TensorId]) -> TensorId {
        self.checked_node(op, inputs, Ok(()))
    }

    /// A node whose parameters were checked before by `so_far`.
    fn checked_node(&mut self, op: Op, inputs: &[TensorId], so_far: Result<(), DescError>) -> TensorId {
        let Some(id) = self.next_tensor() else { return TensorId(0) };
        let node = NodeId(self.graph.nodes.len() as u32);
        let name = id.to_string();
        let mut poisoned = false;
        for input in inputs {
            poisoned |= !self.known(*input) || self.poisoned[input.index()];
        }
        let mut desc = EMPTY;
        let mut storage = Storage { root: id, offset: 0 };
        if !poisoned {
            let operands: Vec<TensorDesc> = inputs.iter().map(|input| self.desc(*input)).collect();
            match so_far.map_err(OpError::from).and_then(|()| infer(&op, &operands)) {
                Ok(result) => {
                    desc = result;
                    storage = self.storage(&op, inputs).unwrap_or(storage);
                }
                Err(source) => {
                    poisoned = true;
                    self.fail(GraphError::Op { node, op: op.name().to_owned(), name: name.clone(), source });
                }
            }
        }
        if storage.root != id && !op.is_view() {
            let root = &self.graph.tensors[storage.root.index()];
            if root.origin == Origin::Leaf(Leaf::Weight) {
                let error =
                    GraphError::WritesWeight { node, op: op.name().to_owned(), name: root.name.clone() };
                self.fail(error);
            }
        }
        self.graph.tensors.push(Tensor { name, desc, storage, origin: Origin::Node(node) });
        self.graph.nodes.push(Node { op, inputs: inputs.to_vec(), output: id });
        self.poisoned.push(poisoned);
        id
    }

    fn storage(&self, op: &Op, inputs: &[TensorId]) -> Option<Storage> {
        let operand = &self.graph.tensors[inputs[op.storage_operand()?].index()];
        let shift = if let Op::View { offset, .. } = op { *offset } else { 0 };
        // Cannot overflow: the view ends within the operand, and that one within its root.
        Some(Storage { root: operand.storage.root, offset: operand.storage.offset + shift })
    }

    fn next_tensor(&mut self) -> Option<TensorId> {
        match u32::try_from(self.graph.tensors.len()) {
            Ok(index) if index < u32::MAX => Some(TensorId(index)),
            _ => {
                self.fail(GraphError::Full);
                None
            }
        }
    }

    fn known(&mut self, id: TensorId) -> bool {
        let tensors = self.graph.tensors.len();
        if id.index() < tensors {
            return true;
        }
        self.fail(GraphError::ForeignTensor { tensor: id, tensors });
        false
    }

    #[cfg(feature = "serde")]
    pub(crate) fn failed(&self) -> bool {
        self.error.is_some()
    }

    pub(crate) fn fail(&mut self, error: GraphError) {
        self.error.get_or_insert(error);
    }
}

const EMPTY: TensorDesc = TensorDesc { dtype: DType::F32, extents: [0; DIMS], strides: [4; DIMS] };

/// Shorthand for [`GraphBuilder::node`]; see [`Op`] for what each computes.
impl GraphBuilder {
    /// [`Op::View`].
    pub fn view(&mut self, x: TensorId, extents: [u64; DIMS], strides: [u64; DIMS], offset: u64) -> TensorId {
        self.node(Op::View { extents, strides, offset }, &[x])
    }

    /// [`Op::Reshape`]; extents that are left out are 1.
    pub fn reshape(&mut self, x: TensorId, extents: &[u64]) -> TensorId {
        self.checked_node(Op::Reshape { extents: padded(extents) }, &[x], few_enough(extents))
    }

    /// [`Op::Permute`].
    pub fn permute(&mut self, x: TensorId, axes: [u8; DIMS]) -> TensorId {
        self.node(Op::Permute { axes }, &[x])
    }

    /// [`Op::Transpose`].
    pub fn transpose(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Transpose, &[x])
    }

    /// [`Op::Dup`].
    pub fn dup(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Dup, &[x])
    }

    /// [`Op::Cast`].
    pub fn cast(&mut self, x: TensorId, dtype: DType) -> TensorId {
        self.node(Op::Cast { dtype }, &[x])
    }

    /// [`Op::Copy`].
    pub fn copy(&mut self, source: TensorId, destination: TensorId) -> TensorId {
        self.node(Op::Copy, &[source, destination])
    }

    /// [`Op::Cont`].
    pub fn cont(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Cont, &[x])
    }

    /// [`Op::GetRows`].
    pub fn get_rows(&mut self, table: TensorId, indices: TensorId) -> TensorId {
        self.node(Op::GetRows, &[table, indices])
    }

    /// [`Op::SetRows`].
    pub fn set_rows(&mut self, destination: TensorId, rows: TensorId, indices: TensorId) -> TensorId {
        self.node(Op::SetRows, &[destination, rows, indices])
    }

    /// [`Op::Set`].
    pub fn set(&mut self, base: TensorId, patch: TensorId, at: Patch) -> TensorId {
        self.node(Op::Set(at), &[base, patch])
    }

    /// [`Op::Acc`].
    pub fn acc(&mut self, base: TensorId, patch: TensorId, at: Patch) -> TensorId {
        self.node(Op::Acc(at), &[base, patch])
    }

    /// [`Op::Repeat`].
    pub fn repeat(&mut self, x: TensorId, extents: [u64; DIMS]) -> TensorId {
        self.node(Op::Repeat { extents }, &[x])
    }

    /// [`Op::Concat`].
    pub fn concat(&mut self, parts: &[TensorId], axis: u8) -> TensorId {
        self.node(Op::Concat { axis }, parts)
    }

    /// [`Op::Pad`].
    pub fn pad(&mut self, x: TensorId, before: [u64; DIMS], after: [u64; DIMS]) -> TensorId {
        self.node(Op::Pad { before, after }, &[x])
    }

    /// [`Op::Roll`].
    pub fn roll(&mut self, x: TensorId, shifts: [i64; DIMS]) -> TensorId {
        self.node(Op::Roll { shifts }, &[x])
    }

    /// [`Op::Arange`].
    pub fn arange(&mut self, start: f32, stop: f32, step: f32) -> TensorId {
        self.node(Op::Arange { start, stop, step }, &[])
    }

    /// [`Op::Add`].
    pub fn add(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::Add, &[a, b])
    }

    /// [`Op::Add1`].
    pub fn add1(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::Add1, &[a, b])
    }

    /// [`Op::Sub`].
    pub fn sub(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::Sub, &[a, b])
    }

    /// [`Op::Mul`].
    pub fn mul(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::Mul, &[a, b])
    }

    /// [`Op::Div`].
    pub fn div(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::Div, &[a, b])
    }

    /// [`Op::Scale`] without a bias.
    pub fn scale(&mut self, x: TensorId, scale: f32) -> TensorId {
        self.node(Op::Scale { scale, bias: 0.0 }, &[x])
    }

    /// [`Op::Clamp`].
    pub fn clamp(&mut self, x: TensorId, min: f32, max: f32) -> TensorId {
        self.node(Op::Clamp { min, max }, &[x])
    }

    /// [`Op::Unary`].
    pub fn unary(&mut self, function: Unary, x: TensorId) -> TensorId {
        self.node(Op::Unary(function), &[x])
    }

    /// [`Unary::Sqr`].
    pub fn sqr(&mut self, x: TensorId) -> TensorId {
        self.unary(Unary::Sqr, x)
    }

    /// [`Unary::Relu`].
    pub fn relu(&mut self, x: TensorId) -> TensorId {
        self.unary(Unary::Relu, x)
    }

    /// [`Unary::Gelu`].
    pub fn gelu(&mut self, x: TensorId) -> TensorId {
        self.unary(Unary::Gelu, x)
    }

    /// [`Unary::Silu`].
    pub fn silu(&mut self, x: TensorId) -> TensorId {
        self.unary(Unary::Silu, x)
    }

    /// [`Op::LeakyRelu`].
    pub fn leaky_relu(&mut self, x: TensorId, slope: f32) -> TensorId {
        self.node(Op::LeakyRelu { slope }, &[x])
    }

    /// [`Op::Gated`] with two operands.
    pub fn gated(&mut self, gate: Glu, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::Gated { gate, swapped: false }, &[a, b])
    }

    /// [`Op::Gated`] with both halves in one operand's rows.
    pub fn gated_fused(&mut self, gate: Glu, x: TensorId, swapped: bool) -> TensorId {
        self.node(Op::Gated { gate, swapped }, &[x])
    }

    /// [`Op::Sum`].
    pub fn sum(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Sum, &[x])
    }

    /// [`Op::SumRows`].
    pub fn sum_rows(&mut self, x: TensorId) -> TensorId {
        self.node(Op::SumRows, &[x])
    }

    /// [`Op::Mean`].
    pub fn mean(&mut self, x: TensorId) -> TensorId {
        self.node(Op::Mean, &[x])
    }

    /// [`Op::CumSum`].
    pub fn cumsum(&mut self, x: TensorId) -> TensorId {
        self.node(Op::CumSum, &[x])
    }

    /// [`Op::ArgMax`].
    pub fn argmax(&mut self, x: TensorId) -> TensorId {
        self.node(Op::ArgMax, &[x])
    }

    /// [`Op::ArgSort`].
    pub fn argsort(&mut self, x: TensorId, direction: SortDirection) -> TensorId {
        self.node(Op::ArgSort { direction }, &[x])
    }

    /// [`Op::TopK`].
    pub fn top_k(&mut self, x: TensorId, k: u64) -> TensorId {
        self.node(Op::TopK { k }, &[x])
    }

    /// [`Op::Norm`].
    pub fn norm(&mut self, x: TensorId, eps: f32) -> TensorId {
        self.node(Op::Norm { eps }, &[x])
    }

    /// [`Op::RmsNorm`].
    pub fn rms_norm(&mut self, x: TensorId, eps: f32) -> TensorId {
        self.node(Op::RmsNorm { eps }, &[x])
    }

    /// [`Op::GroupNorm`].
    pub fn group_norm(&mut self, x: TensorId, groups: u32, eps: f32) -> TensorId {
        self.node(Op::GroupNorm { groups, eps }, &[x])
    }

    /// [`Op::L2Norm`].
    pub fn l2_norm(&mut self, x: TensorId, eps: f32) -> TensorId {
        self.node(Op::L2Norm { eps }, &[x])
    }

    /// [`Op::SoftMax`] with an optional mask.
    pub fn soft_max(&mut self, x: TensorId, mask: Option<TensorId>, scale: f32, max_bias: f32) -> TensorId {
        let params = SoftMax { scale, max_bias, mask: mask.is_some(), sinks: false };
        let operands: Vec<TensorId> = [Some(x), mask].into_iter().flatten().collect();
        self.node(Op::SoftMax(params), &operands)
    }

    /// [`Op::DiagMaskInf`].
    pub fn diag_mask_inf(&mut self, x: TensorId, past: u32) -> TensorId {
        self.node(Op::DiagMaskInf { past }, &[x])
    }

    /// [`Op::DiagMaskZero`].
    pub fn diag_mask_zero(&mut self, x: TensorId, past: u32) -> TensorId {
        self.node(Op::DiagMaskZero { past }, &[x])
    }

    /// [`Op::MulMat`].
    pub fn mul_mat(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::MulMat, &[a, b])
    }

    /// [`Op::MulMatId`].
    pub fn mul_mat_id(&mut self, a: TensorId, b: TensorId, ids: TensorId) -> TensorId {
        self.node(Op::MulMatId, &[a, b, ids])
    }

    /// [`Op::OutProd`].
    pub fn out_prod(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.node(Op::OutProd, &[a, b])
    }

    /// [`Op::Rope`] with optional frequency factors.
    pub fn rope(
        &mut self,
        x: TensorId,
        positions: TensorId,
        factors: Option<TensorId>,
        rope: Rope,
    ) -> TensorId {
        let operands: Vec<TensorId> = [Some(x), Some(positions), factors].into_iter().flatten().collect();
        self.node(Op::Rope(rope), &operands)
    }

    /// [`Op::FlashAttention`]; the flags for optional operands are set from what is given.
    pub fn flash_attention(
        &mut self,
        [q, k, v]: [TensorId; 3],
        kv_len: Option<TensorId>,
        mask: Option<TensorId>,
        sinks: Option<TensorId>,
        params: FlashAttention,
    ) -> TensorId {
        let params = FlashAttention {
            kv_len: kv_len.is_some(),
            mask: mask.is_some(),
            sinks: sinks.is_some(),
            ..params
        };
        let operands: Vec<TensorId> =
            [Some(q), Some(k), Some(v), kv_len, mask, sinks].into_iter().flatten().collect();
        self.node(Op::FlashAttention(params), &operands)
    }

    /// [`Op::Conv1d`].
    pub fn conv_1d(&mut self, kernel: TensorId, data: TensorId, window: Window) -> TensorId {
        self.node(Op::Conv1d(window), &[kernel, data])
    }

    /// [`Op::Conv2d`].
    pub fn conv_2d(&mut self, kernel: TensorId, data: TensorId, window: Window) -> TensorId {
        self.node(Op::Conv2d(window), &[kernel, data])
    }

    /// [`Op::Im2Col`].
    pub fn im2col(
        &mut self,
        kernel: TensorId,
        data: TensorId,
        window: Window,
        two_d: bool,
        dtype: DType,
    ) -> TensorId {
        self.node(Op::Im2Col { window, two_d, dtype }, &[kernel, data])
    }

    /// [`Op::Pool2d`].
    pub fn pool_2d(&mut self, x: TensorId, pool: Pool) -> TensorId {
        self.node(Op::Pool2d(pool), &[x])
    }

    /// [`Op::Upscale`].
    pub fn upscale(&mut self, x: TensorId, extents: [u64; DIMS], mode: Interpolation) -> TensorId {
        self.node(Op::Upscale { extents, mode }, &[x])
    }

    /// [`Op::Custom`].
    pub fn custom(
        &mut self,
        name: &str,
        inputs: &[TensorId],
        dtype: DType,
        extents: &[u64],
        overwrites: &[u8],
    ) -> TensorId {
        let op = Op::Custom {
            name: name.to_owned(),
            dtype,
            extents: padded(extents),
            overwrites: overwrites.to_vec(),
        };
        self.checked_node(op, inputs, few_enough(extents))
    }
}

/// Extents filled up with 1.
fn padded(extents: &[u64]) -> [u64; DIMS] {
    let mut full = [1; DIMS];
    for (slot, extent) in full.iter_mut().zip(extents) {
        *slot = *extent;
    }
    full
}

fn few_enough(extents: &[u64]) -> Result<(), DescError> {
    if extents.len() <= DIMS { Ok(()) } else { Err(DescError::TooManyDimensions(extents.len())) }
}
