//! Functions of each element: arithmetic with broadcasting, unary functions, gates.

mod functions;

use orlop_backend::Reason;
use orlop_graph::{Gate, Op, TensorDesc, Unary};

use self::functions::{exp, gelu, gelu_erf, gelu_quick, hard_sigmoid, sigmoid, silu, softplus};
use crate::access::{At, Src};
use crate::isa::Isa;
use crate::simd::widened;
use crate::task::{Kernel, SPAN, Task, Thread, all_floats, merged, no_scratch, repeated, spans};

pub(crate) fn kernel(op: &Op) -> Option<Kernel> {
    let run = match op {
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Add1 => binary,
        Op::Unary(_) | Op::Scale { .. } | Op::Clamp { .. } | Op::LeakyRelu { .. } => unary,
        Op::Gated { .. } => gated,
        _ => return None,
    };
    Some(Kernel::simple(known_functions, no_scratch, run))
}

/// Refuses functions that came with a newer graph crate, and types other than plain floats.
fn known_functions(op: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    let known = match op {
        Op::Gated { gate, .. } => apply_gate(Isa::Scalar, *gate, &mut [], &[]),
        op => apply(Isa::Scalar, op, &mut []),
    };
    if known { all_floats(op, operands, result) } else { Err(Reason::Op) }
}

/// Descriptions with longer rows, if all can have the same; else as they are.
fn in_line<const N: usize>(descs: [TensorDesc; N]) -> [TensorDesc; N] {
    let long = descs.map(|desc| merged(&desc));
    if long.iter().all(|desc| desc.extents == long[0].extents) { long } else { descs }
}

fn unary(task: &Task, thread: Thread, _: &mut [f32]) {
    let (mut src, mut dst) = (task.src[0].clone(), task.dst.clone());
    [src.desc, dst.desc] = in_line([src.desc, dst.desc]);
    let mut values = [0.0; SPAN];
    for span in spans(&dst.desc, thread) {
        let values = &mut values[..span.length];
        src.read_elements(span.column, span.at, values);
        apply(task.isa, &task.op, values);
        dst.write_elements(span.column, span.at, values);
    }
}

/// Replaces all elements by their function values; tells whether the op is known.
fn apply(isa: Isa, op: &Op, x: &mut [f32]) -> bool {
    match *op {
        Op::Unary(function) => return apply_function(isa, function, x),
        Op::Scale { scale, bias: 0.0 } => map(isa, x, |x| scale * x),
        Op::Scale { scale, bias } => {
            // What scale and bias cancel must not have been rounded.
            map(isa, x, |x| (f64::from(scale) * f64::from(x) + f64::from(bias)) as f32);
        }
        Op::Clamp { min, max } => map(isa, x, |x| {
            // NaN stays; in a range that is none, its beginning wins.
            let x = if x > max { max } else { x };
            if x < min { min } else { x }
        }),
        Op::LeakyRelu { slope } => map(isa, x, |x| if x > 0.0 { x } else { slope * x }),
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Add1 => {}
        _ => return false,
    }
    true
}

fn apply_function(isa: Isa, function: Unary, x: &mut [f32]) -> bool {
    match function {
        Unary::Sqr => map(isa, x, |x| x * x),
        Unary::Sqrt => map(isa, x, f32::sqrt),
        Unary::Log => map(isa, x, f32::ln),
        Unary::Exp => map(isa, x, exp),
        Unary::Sin => map(isa, x, f32::sin),
        Unary::Cos => map(isa, x, f32::cos),
        Unary::Neg => map(isa, x, |x| -x),
        Unary::Abs => map(isa, x, f32::abs),
        Unary::Sgn => map(isa, x, |x| f32::from(i8::from(x > 0.0) - i8::from(x < 0.0))),
        Unary::Step => map(isa, x, |x| f32::from(u8::from(x > 0.0))),
        Unary::Relu => map(isa, x, relu),
        Unary::Gelu => map(isa, x, gelu),
        Unary::GeluErf => map(isa, x, gelu_erf),
        Unary::GeluQuick => map(isa, x, gelu_quick),
        Unary::Silu => map(isa, x, silu),
        Unary::Sigmoid => map(isa, x, sigmoid),
        Unary::Tanh => map(isa, x, f32::tanh),
        Unary::Elu => map(isa, x, |x| if x > 0.0 { x } else { x.exp_m1() }),
        Unary::HardSwish => map(isa, x, |x| x * hard_sigmoid(x)),
        Unary::HardSigmoid => map(isa, x, hard_sigmoid),
        Unary::Softplus => map(isa, x, softplus),
        _ => return false,
    }
    true
}

fn map(isa: Isa, x: &mut [f32], function: impl Fn(f32) -> f32) {
    widened(isa, || x.iter_mut().for_each(|x| *x = function(*x)));
}

fn relu(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.0 }
}

fn binary(task: &Task, thread: Thread, _: &mut [f32]) {
    let (mut a, mut b, mut dst) = (task.src[0].clone(), task.src[1].clone(), task.dst.clone());
    if a.desc.extents == b.desc.extents {
        [a.desc, b.desc, dst.desc] = in_line([a.desc, b.desc, dst.desc]);
    }
    let (isa, mut left, mut right) = (task.isa, [0.0; SPAN], [0.0; SPAN]);
    for span in spans(&dst.desc, thread) {
        let (left, right) = (&mut left[..span.length], &mut right[..span.length]);
        a.read_elements(span.column, span.at, left);
        read_repeated(&b, span.column, repeated(&b.desc, span.at), right);
        match task.op {
            Op::Sub => zip(isa, left, right, |a, b| a - b),
            Op::Mul => zip(isa, left, right, |a, b| a * b),
            Op::Div => zip(isa, left, right, |a, b| a / b),
            _ => zip(isa, left, right, |a, b| a + b),
        }
        dst.write_elements(span.column, span.at, left);
    }
}

fn zip(isa: Isa, a: &mut [f32], b: &[f32], function: impl Fn(f32, f32) -> f32) {
    widened(isa, || a.iter_mut().zip(b).for_each(|(a, b)| *a = function(*a, *b)));
}

/// Reads from `column` on in a row that is repeated without end.
fn read_repeated(src: &Src, column: u64, at: At, out: &mut [f32]) {
    let period = src.desc.extents[0];
    if period == 1 {
        return out.fill(src.value(0, at));
    }
    let (mut column, mut out) = (column % period, out);
    while !out.is_empty() {
        let count = ((period - column) as usize).min(out.len());
        let (now, rest) = out.split_at_mut(count);
        src.read_elements(column, at, now);
        (column, out) = (0, rest);
    }
}

fn gated(task: &Task, thread: Thread, _: &mut [f32]) {
    let Op::Gated { gate, swapped } = task.op else { return };
    let (mut dst, mut a) = (task.dst.clone(), task.src[0].clone());
    let (b, a_column, b_column) = if let Some(b) = task.src.get(1) {
        let mut b = b.clone();
        [dst.desc, a.desc, b.desc] = in_line([dst.desc, a.desc, b.desc]);
        (b, 0, 0)
    } else {
        let half = dst.desc.extents[0];
        let (a_column, b_column) = if swapped { (half, 0) } else { (0, half) };
        (a.clone(), a_column, b_column)
    };
    let (mut gates, mut values) = ([0.0; SPAN], [0.0; SPAN]);
    for span in spans(&dst.desc, thread) {
        let (gates, values) = (&mut gates[..span.length], &mut values[..span.length]);
        a.read_elements(a_column + span.column, span.at, gates);
        b.read_elements(b_column + span.column, span.at, values);
        apply_gate(task.isa, gate, gates, values);
        dst.write_elements(span.column, span.at, gates);
    }
}

/// Replaces gates by products of their function values and other values; tells whether the function is known.
fn apply_gate(isa: Isa, gate: Gate, gates: &mut [f32], values: &[f32]) -> bool {
    match gate {
        Gate::Relu => zip(isa, gates, values, |a, b| relu(a) * b),
        Gate::Gelu => zip(isa, gates, values, |a, b| gelu(a) * b),
        Gate::GeluErf => zip(isa, gates, values, |a, b| gelu_erf(a) * b),
        Gate::GeluQuick => zip(isa, gates, values, |a, b| gelu_quick(a) * b),
        Gate::Silu => zip(isa, gates, values, |a, b| silu(a) * b),
        _ => return false,
    }
    true
}
