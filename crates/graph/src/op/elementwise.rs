//! Ops that compute each element of the result from the elements at the same place.

use super::checks::{dtype, extents_of, floats, repeats};
use super::info::Arity;
use super::movement::same;
use super::sample::one_of;
use crate::{GraphBuilder, Op, OpError, OpInfo, TensorDesc, TensorId};

/// An enum of functions with the list of its values and the names of the ops that compute them.
macro_rules! functions {
    ($(#[$attribute:meta])* $type:ident { $($(#[$doc:meta])* $function:ident = $name:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
        #[allow(missing_docs)] // the names say it
        pub enum $type {
            $($(#[$doc])* $function,)*
        }

        impl $type {
            /// Every function.
            pub const ALL: [$type; [$($type::$function),*].len()] = [$($type::$function),*];

            const NAMES: &[&str] = &[$($name),*];

            /// The name of the op that computes the function.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$function => $name,)*
                }
            }
        }
    };
}

functions! {
    /// Functions of one element.
    Unary {
        Sqr = "sqr",
        Sqrt = "sqrt",
        Log = "log",
        Exp = "exp",
        Sin = "sin",
        Cos = "cos",
        Neg = "neg",
        Abs = "abs",
        /// -1, 0 or 1.
        Sgn = "sgn",
        /// 1 for positive elements, else 0.
        Step = "step",
        Relu = "relu",
        /// The tanh approximation of [GELU](https://arxiv.org/abs/1606.08415).
        Gelu = "gelu",
        /// GELU with the error function.
        GeluErf = "gelu_erf",
        /// `x * sigmoid(1.702 x)`.
        GeluQuick = "gelu_quick",
        Silu = "silu",
        Sigmoid = "sigmoid",
        Tanh = "tanh",
        Elu = "elu",
        HardSwish = "hard_swish",
        HardSigmoid = "hard_sigmoid",
        Softplus = "softplus",
    }
}

functions! {
    /// The function of a [gated linear unit](https://arxiv.org/abs/2002.05202)'s first half.
    Glu {
        Relu = "reglu",
        Gelu = "geglu",
        GeluErf = "geglu_erf",
        GeluQuick = "geglu_quick",
        Silu = "swiglu",
    }
}

const ANY: OpInfo = OpInfo { overwrites: &[0], ..OpInfo::of_family("elementwise") };

const BINARY: OpInfo = OpInfo { operands: Arity::exactly(2), overwrites: &[0, 1], ..ANY };

pub(super) const ADD: OpInfo = OpInfo { name: "add", sample: |_| Op::Add, ..BINARY };
pub(super) const SUB: OpInfo = OpInfo { name: "sub", sample: |_| Op::Sub, ..BINARY };
pub(super) const MUL: OpInfo = OpInfo { name: "mul", sample: |_| Op::Mul, ..BINARY };
pub(super) const DIV: OpInfo = OpInfo { name: "div", sample: |_| Op::Div, ..BINARY };

pub(super) fn binary(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    floats(x, 1)?;
    if !repeats(&x[1].extents, &x[0].extents) {
        return Err(extents_of(x, 1, "must divide the first operand's"));
    }
    same(x)
}

pub(super) const ADD1: OpInfo =
    OpInfo { name: "add1", operands: Arity::exactly(2), sample: |_| Op::Add1, ..ANY };

pub(super) fn add1(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    floats(x, 1)?;
    if !x[1].is_scalar() {
        return Err(extents_of(x, 1, "must be one element"));
    }
    same(x)
}

pub(super) const SCALE: OpInfo = OpInfo {
    name: "scale",
    sample: |source| Op::Scale { scale: source.float(), bias: source.float() },
    ..ANY
};

pub(super) const CLAMP: OpInfo =
    OpInfo { name: "clamp", sample: |source| Op::Clamp { min: source.float(), max: source.float() }, ..ANY };

pub(super) const UNARY: OpInfo = OpInfo {
    name: "unary",
    functions: Some(Unary::NAMES),
    sample: |source| Op::Unary(one_of(source, &Unary::ALL)),
    ..ANY
};

pub(super) const LEAKY_RELU: OpInfo =
    OpInfo { name: "leaky_relu", sample: |source| Op::LeakyRelu { slope: source.float() }, ..ANY };

/// A floating-point result of the operand's type and extents, also for other families' ops.
pub(super) fn each(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    same(x)
}

/// With one operand the rows are twice as long as the result's, so layouts never agree and nothing is overwritten.
pub(super) const GATED: OpInfo = OpInfo {
    name: "gated",
    functions: Some(Glu::NAMES),
    operands: Arity { min: 1, max: 2, text: "1 or 2" },
    sample: |source| Op::Gated { gate: one_of(source, &Glu::ALL), swapped: source.flag() },
    ..BINARY
};

pub(super) fn gated(x: &[TensorDesc]) -> Result<TensorDesc, OpError> {
    floats(x, 0)?;
    let mut extents = x[0].extents;
    if let Some(other) = x.get(1) {
        dtype(x, 1, other.dtype == x[0].dtype, "the first operand's type")?;
        if other.extents != extents {
            return Err(extents_of(x, 1, "must be the first operand's"));
        }
    } else if !extents[0].is_multiple_of(2) {
        return Err(extents_of(x, 0, "rows must have two halves"));
    } else {
        extents[0] /= 2;
    }
    Ok(TensorDesc::contiguous(x[0].dtype, &extents)?)
}

/// Functions of elements.
impl GraphBuilder {
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
}
