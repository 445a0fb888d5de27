//! Elementwise functions: arithmetic with broadcasting, unary functions, GLUs, masks.

use orlop_graph::{Glu, TensorDesc, Unary};

use super::{Task, coordinates};
use crate::wgsl::{Kernel, Writer, float_bits};

fn writer(task: &Task<'_>) -> Writer {
    let mut writer = Writer::new();
    writer.read("x", &task.inputs[0]);
    if let Some(other) = task.inputs.get(1) {
        writer.read("b", other);
    }
    writer.write("y", &task.output);
    writer
}

/// A kernel that writes `value` for each element `x`, and `b` with two operands.
fn each(task: &Task<'_>, writer: Writer, value: &str) -> Kernel {
    let (place, second) = places(task);
    let loaded = if task.inputs.len() > 1 { second } else { "" };
    let body = format!("{place}{loaded}  y_put(y_at_row, i, {value});\n");
    writer.each(task.output.desc.elements(), &body)
}

pub(super) fn binary(task: &Task<'_>, value: &str) -> Kernel {
    each(task, writer(task), value)
}

pub(super) fn scale(task: &Task<'_>, scale: f32, bias: f32) -> Kernel {
    let mut writer = writer(task);
    writer.float("scale", scale).float("bias", bias);
    each(task, writer, &format!("{} * x + {}", float_bits("scale"), float_bits("bias")))
}

pub(super) fn clamp(task: &Task<'_>, min: f32, max: f32) -> Kernel {
    let mut writer = writer(task);
    writer.float("low", min).float("high", max);
    writer.function(
        "fn limited(x: f32) -> f32 {
  let below = select(x, bitcast<f32>(p.high), x > bitcast<f32>(p.high));
  return select(below, bitcast<f32>(p.low), below < bitcast<f32>(p.low));
}",
    );
    each(task, writer, "limited(x)")
}

pub(super) fn leaky_relu(task: &Task<'_>, slope: f32) -> Kernel {
    let mut writer = writer(task);
    writer.float("slope", slope);
    each(task, writer, &format!("select({} * x, x, x > 0.0)", float_bits("slope")))
}

pub(super) fn unary(task: &Task<'_>, function: Unary) -> Kernel {
    each(task, writer(task), function_text(function))
}

/// WGSL that loads the elements: without coordinates if the operands are contiguous.
fn places(task: &Task<'_>) -> (String, &'static str) {
    let x = &task.inputs[0].desc;
    let flat = x.is_contiguous() && task.output.desc.is_contiguous();
    let repeated = |desc: &TensorDesc| {
        // One row for all, or the same shape.
        desc.is_contiguous()
            && (desc.extents == x.extents
                || desc.rows() == 1 && desc.extents[0] == x.extents[0]
                || desc.is_scalar())
    };
    match task.inputs.get(1) {
        None if flat => (FLAT.to_owned(), ""),
        Some(other) if flat && repeated(&other.desc) => {
            let second = if other.desc.extents == x.extents {
                "  let b = b_at(p.b_o, index);\n"
            } else if other.desc.is_scalar() {
                "  let b = b_at(p.b_o, 0u);\n"
            } else {
                "  let b = b_at(p.b_o, index % p.b_n0);\n"
            };
            (FLAT.to_owned(), second)
        }
        _ => (
            format!(
                "{}  let x = x_at(x_row(j, k, l), i);\n  let y_at_row = y_row(j, k, l);\n",
                coordinates("y")
            ),
            "  let b = b_at(b_row(j % p.b_n1, k % p.b_n2, l % p.b_n3), i % p.b_n0);\n",
        ),
    }
}

const FLAT: &str = "  let i = index;
  let x = x_at(p.x_o, i);
  let y_at_row = p.y_o;
";

pub(super) fn gated(task: &Task<'_>, gate: Glu, swapped: bool) -> Kernel {
    let (mut writer, gate) = (writer(task), gate_text(gate));
    let two = task.inputs.len() == 2;
    let (first, second) = if swapped && !two { ("p.y_n0", "0u") } else { ("0u", "p.y_n0") };
    let flat = two && task.inputs.iter().chain([&task.output]).all(|place| place.desc.is_contiguous());
    writer.function(&format!("fn gate(x: f32) -> f32 {{ return {gate}; }}"));
    let body = match (flat, two) {
        (true, _) => "  y_put(p.y_o, index, gate(x_at(p.x_o, index)) * b_at(p.b_o, index));\n".to_owned(),
        (false, true) => format!(
            "{}  y_put(y_row(j, k, l), i, gate(x_at(x_row(j, k, l), i)) * b_at(b_row(j, k, l), i));\n",
            coordinates("y")
        ),
        (false, false) => format!(
            "{}  let row = x_row(j, k, l);
  y_put(y_row(j, k, l), i, gate(x_at(row, i + {first})) * x_at(row, i + {second}));\n",
            coordinates("y")
        ),
    };
    writer.each(task.output.desc.elements(), &body)
}

/// Elements whose column exceeds row + `past` become `hidden`.
pub(super) fn masked(task: &Task<'_>, past: u32, hidden: f32) -> Kernel {
    let mut writer = writer(task);
    writer.number("past", past.into()).float("hidden", hidden);
    let body = format!(
        "{}  let row = y_row(j, k, l);
  if (i > j && i - j > p.past) {{ y_put(row, i, bitcast<f32>(p.hidden)); }} else {{ y_put(row, i, x_at(x_row(j, k, l), i)); }}\n",
        coordinates("y")
    );
    writer.each(task.output.desc.elements(), &body)
}

fn function_text(function: Unary) -> &'static str {
    match function {
        Unary::Sqr => "x * x",
        Unary::Sqrt => "sqrt(x)",
        Unary::Log => "log(x)",
        Unary::Exp => "exp(x)",
        Unary::Sin => "turn(x).x",
        Unary::Cos => "turn(x).y",
        Unary::Neg => "-x",
        Unary::Abs => "abs(x)",
        Unary::Sgn => "sign(x)",
        Unary::Step => "select(0.0, 1.0, x > 0.0)",
        Unary::Relu => "max(x, 0.0)",
        Unary::Gelu => "gelu(x)",
        Unary::GeluErf => "gelu_erf(x)",
        Unary::GeluQuick => "gelu_quick(x)",
        Unary::Silu => "silu(x)",
        Unary::Sigmoid => "sigmoid(x)",
        Unary::Tanh => "tanh_of(x)",
        Unary::Elu => "select(exp_of(x) - 1.0, x, x > 0.0)",
        Unary::HardSwish => "x * hard_sigmoid(x)",
        Unary::HardSigmoid => "hard_sigmoid(x)",
        Unary::Softplus => "softplus(x)",
    }
}

fn gate_text(gate: Glu) -> &'static str {
    match gate {
        Glu::Relu => "max(x, 0.0)",
        Glu::Gelu => "gelu(x)",
        Glu::GeluErf => "gelu_erf(x)",
        Glu::GeluQuick => "gelu_quick(x)",
        Glu::Silu => "silu(x)",
    }
}
