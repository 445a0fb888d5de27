//! Functions of each element: arithmetic with broadcasting, unary functions, gates.

mod functions;

use orlop_backend::Step;
use orlop_graph::{DType, Glu, Graph, Op, TensorDesc, Unary};

use self::functions::{gelu_erf, hard_sigmoid, softplus};
use super::product::{Rounding, elements, round_elements};
use crate::access::{Dst, RowIndex, Src};
use crate::isa::Isa;
use crate::task::{
    self, Kernel, KernelBody, RowSpan, SPAN, StepKernel, StepOperand, StepOperands, Task, Thread, all_floats,
    merged, no_scratch, repeated, spans,
};
use crate::vector::function::{
    Add, Div, Exp, Gated, Gelu, GeluQuick, Mul, PerElement, Relu, Scale, Sigmoid, Silu, Sub,
};
use crate::vector::{Floats, FloatsMut, Map, Zip, on};

/// Gated values, rounded.
pub(crate) const GATED_VALUES: &str = "gated";

// SAFETY: the phase rule: each span of the result is one thread's. An operand that the result lies on has the same
// elements, so a thread reads only those that it writes.
pub(crate) const BINARY: Kernel = Kernel::simple(all_floats, no_scratch, unsafe { KernelBody::new(binary) });

// SAFETY: the phase rule: as for `BINARY`.
pub(crate) const UNARY: Kernel = Kernel::simple(all_floats, no_scratch, unsafe { KernelBody::new(unary) });

// SAFETY: the phase rule: as for `BINARY`.
pub(crate) const GATED: Kernel = Kernel::simple(all_floats, no_scratch, unsafe { KernelBody::new(gated) });

pub(crate) fn named(name: &str, rounding: Option<Rounding>) -> Option<StepKernel> {
    (name == GATED_VALUES && rounding.is_some()).then_some(StepKernel {
        operands: gated_operands,
        needs: |_| task::FloatScratch { scratch: 3 * SPAN as u64, shared: (0, 0) },
        check: None,
        // SAFETY: the phase rule: each span of the result is one thread's; the result, a temporary, lies apart.
        body: unsafe { KernelBody::new(gated_and_rounded) },
    })
}

/// Descriptions with longer rows, if all can have the same; else as they are.
fn in_line<const N: usize>(descs: [TensorDesc; N]) -> [TensorDesc; N] {
    let long = descs.map(|desc| merged(&desc));
    if long.iter().all(|desc| desc.extents == long[0].extents) { long } else { descs }
}

/// Computes a part of the result where it lies, if it is F32 without gaps, or else in a buffer.
fn compute(dst: &Dst, isa: Isa, span: RowSpan, buffer: &mut [f32; SPAN], work: impl FnOnce(FloatsMut<'_>)) {
    match dst.floats(span.column, span.at, span.length) {
        Some(out) => work(out),
        None => {
            let values = &mut buffer[..span.length];
            work(FloatsMut::from(&mut *values));
            dst.write(isa, span.column, span.at, values);
        }
    }
}

fn unary(task: &Task, thread: Thread, _: &mut [f32]) {
    let [from, to] = in_line([task.src[0].desc, task.dst.desc]);
    let (src, dst) = (task.src[0].viewed(from), task.dst.viewed(to));
    let (mut operand, mut result) = ([0.0; SPAN], [0.0; SPAN]);
    for span in spans(&dst.desc, thread) {
        let x = src.floats_by(task.isa, span.column, span.at, &mut operand[..span.length]);
        compute(&dst, task.isa, span, &mut result, |out| {
            apply(task.isa, &task.op, x, out);
        });
    }
}

/// Writes the function values of all elements.
fn apply(isa: Isa, op: &Op, x: Floats<'_>, out: FloatsMut<'_>) {
    match *op {
        Op::Unary(function) => apply_function(isa, function, x, out),
        Op::Scale { scale, bias: 0.0 } => on(isa, Map { function: Scale(scale), x, out }),
        Op::Scale { scale, bias } => {
            // In f64, as the bias may cancel most of the product.
            each(isa, x, out, move |x| (f64::from(scale) * f64::from(x) + f64::from(bias)) as f32);
        }
        Op::Clamp { min, max } => each(isa, x, out, move |x| {
            // NaN stays NaN. Where the range is empty, its lower end wins.
            let x = if x > max { max } else { x };
            if x < min { min } else { x }
        }),
        Op::LeakyRelu { slope } => each(isa, x, out, move |x| if x > 0.0 { x } else { slope * x }),
        // Other ops have other kernels.
        _ => {}
    }
}

fn apply_function(isa: Isa, function: Unary, x: Floats<'_>, out: FloatsMut<'_>) {
    match function {
        Unary::Sqr => each(isa, x, out, |x| x * x),
        Unary::Sqrt => each(isa, x, out, f32::sqrt),
        Unary::Log => each(isa, x, out, f32::ln),
        Unary::Exp => on(isa, Map { function: Exp, x, out }),
        Unary::Sin => each(isa, x, out, f32::sin),
        Unary::Cos => each(isa, x, out, f32::cos),
        Unary::Neg => each(isa, x, out, |x| -x),
        Unary::Abs => each(isa, x, out, f32::abs),
        Unary::Sgn => each(isa, x, out, |x| f32::from(i8::from(x > 0.0) - i8::from(x < 0.0))),
        Unary::Step => each(isa, x, out, |x| f32::from(u8::from(x > 0.0))),
        Unary::Relu => on(isa, Map { function: Relu, x, out }),
        Unary::Gelu => on(isa, Map { function: Gelu, x, out }),
        Unary::GeluErf => each(isa, x, out, gelu_erf),
        Unary::GeluQuick => on(isa, Map { function: GeluQuick, x, out }),
        Unary::Silu => on(isa, Map { function: Silu, x, out }),
        Unary::Sigmoid => on(isa, Map { function: Sigmoid, x, out }),
        Unary::Tanh => each(isa, x, out, f32::tanh),
        Unary::Elu => each(isa, x, out, |x| if x > 0.0 { x } else { x.exp_m1() }),
        Unary::HardSwish => each(isa, x, out, |x| x * hard_sigmoid(x)),
        Unary::HardSigmoid => each(isa, x, out, hard_sigmoid),
        Unary::Softplus => each(isa, x, out, softplus),
    }
}

/// A function of one element at a time.
fn each(isa: Isa, x: Floats<'_>, out: FloatsMut<'_>, function: impl Fn(f32) -> f32 + Copy) {
    on(isa, Map { function: PerElement(function), x, out });
}

fn binary(task: &Task, thread: Thread, _: &mut [f32]) {
    let mut descs = [task.src[0].desc, task.src[1].desc, task.dst.desc];
    if descs[0].extents == descs[1].extents {
        descs = in_line(descs);
    }
    let (a, b, dst) = (task.src[0].viewed(descs[0]), task.src[1].viewed(descs[1]), task.dst.viewed(descs[2]));
    let (isa, mut left, mut right, mut result) = (task.isa, [0.0; SPAN], [0.0; SPAN], [0.0; SPAN]);
    for span in spans(&dst.desc, thread) {
        let x = a.floats_by(isa, span.column, span.at, &mut left[..span.length]);
        let (at, right) = (repeated(&b.desc, span.at), &mut right[..span.length]);
        let y = if b.desc.extents[0] == dst.desc.extents[0] {
            b.floats_by(isa, span.column, at, right)
        } else {
            read_repeated(&b, isa, span.column, at, right);
            Floats::from(&*right)
        };
        compute(&dst, isa, span, &mut result, |out| match task.op {
            Op::Sub => on(isa, Zip { function: Sub, a: x, b: y, out }),
            Op::Mul => on(isa, Zip { function: Mul, a: x, b: y, out }),
            Op::Div => on(isa, Zip { function: Div, a: x, b: y, out }),
            _ => on(isa, Zip { function: Add, a: x, b: y, out }),
        });
    }
}

/// Reads from `column` on in a row that is repeated without end.
fn read_repeated(src: &Src, isa: Isa, column: u64, at: RowIndex, out: &mut [f32]) {
    let period = src.desc.extents[0];
    if period == 1 {
        return out.fill(src.value(0, at));
    }
    let (mut column, mut out) = (column % period, out);
    while !out.is_empty() {
        let count = ((period - column) as usize).min(out.len());
        let (now, rest) = out.split_at_mut(count);
        src.read(isa, column, at, now);
        (column, out) = (0, rest);
    }
}

fn gated(task: &Task, thread: Thread, _: &mut [f32]) {
    let Op::Gated { gate, swapped } = task.op else { return };
    let (mut dst, mut a) = (task.dst.clone(), task.src[0].clone());
    let (b, a_column, b_column) = if let Some(b) = task.src.get(1) {
        let descs = in_line([dst.desc, a.desc, b.desc]);
        (dst, a) = (dst.viewed(descs[0]), a.viewed(descs[1]));
        (b.viewed(descs[2]), 0, 0)
    } else {
        let half = dst.desc.extents[0];
        let (a_column, b_column) = if swapped { (half, 0) } else { (0, half) };
        (a.clone(), a_column, b_column)
    };
    let (mut gates, mut values, mut result) = ([0.0; SPAN], [0.0; SPAN], [0.0; SPAN]);
    for span in spans(&dst.desc, thread) {
        let gates = &mut gates[..span.length];
        let gates = a.floats_by(task.isa, a_column + span.column, span.at, gates);
        let values = b.floats_by(task.isa, b_column + span.column, span.at, &mut values[..span.length]);
        compute(&dst, task.isa, span, &mut result, |out| {
            apply_gate(task.isa, gate, gates, values, out);
        });
    }
}

fn gated_operands(graph: &Graph, step: &Step) -> Option<StepOperands> {
    let [node] = step.nodes[..] else { return None };
    let node = graph.nodes().get(node.index())?;
    let rounding = Rounding::of_kernel(&step.kernel)?;
    let fits = matches!(node.op, Op::Gated { .. }) && graph.tensor(node.output).desc.dtype == DType::F32;
    fits.then(|| StepOperands {
        reads: node.inputs.iter().copied().map(StepOperand::Tensor).collect(),
        writes: vec![StepOperand::Rounded(node.output, rounding)],
    })
}

fn gated_and_rounded(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let Op::Gated { gate, swapped } = task.op else { return };
    let (a, mut result) = (&task.src[0], task.src[0].desc);
    result.extents[0] = elements(&task.dst.desc);
    let b = task.src.get(1).unwrap_or(a);
    let [a_column, b_column] = match (task.src.len(), swapped) {
        (2, _) => [0, 0],
        (_, false) => [0, result.extents[0]],
        (_, true) => [result.extents[0], 0],
    };
    let (gates, rest) = scratch.split_at_mut(SPAN);
    let (values, out) = rest.split_at_mut(SPAN);
    for RowSpan { column, at, length } in spans(&result, thread) {
        let gates = a.floats_by(task.isa, a_column + column, at, &mut gates[..length]);
        let values = b.floats_by(task.isa, b_column + column, at, &mut values[..length]);
        let out = &mut out[..length];
        apply_gate(task.isa, gate, gates, values, FloatsMut::from(&mut *out));
        round_elements(task, &task.dst, column, at, out);
    }
}

/// Writes `gate(a) * b`.
fn apply_gate(isa: Isa, gate: Glu, a: Floats<'_>, b: Floats<'_>, out: FloatsMut<'_>) {
    match gate {
        Glu::Relu => on(isa, Zip { function: Gated(Relu), a, b, out }),
        Glu::Gelu => on(isa, Zip { function: Gated(Gelu), a, b, out }),
        Glu::GeluErf => on(isa, Zip { function: Gated(PerElement(gelu_erf)), a, b, out }),
        Glu::GeluQuick => on(isa, Zip { function: Gated(GeluQuick), a, b, out }),
        Glu::Silu => on(isa, Zip { function: Gated(Silu), a, b, out }),
    }
}
