//! Functions of each element on the CPU device, against the reference.

use crate::compare::Case;
use orlop_graph::{DType, Glu, Op, TensorId, Unary};

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// What may be rounded away: storing F16 or BF16 may round the other way where F32 and F64 lie on two sides of a
/// tie.
fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-13,
        DType::F16 => 1e-8,
        _ => 1e-6,
    }
}

const GATES: [Glu; 5] = [Glu::Relu, Glu::Gelu, Glu::GeluErf, Glu::GeluQuick, Glu::Silu];

fn functions() -> Vec<Op> {
    let mut ops: Vec<Op> = Unary::ALL.into_iter().map(Op::Unary).collect();
    ops.push(Op::Scale { scale: -2.5, bias: 0.0 });
    ops.push(Op::Scale { scale: 1.5, bias: 0.25 });
    ops.push(Op::Clamp { min: -0.5, max: 0.25 });
    ops.push(Op::Clamp { min: 0.5, max: -0.25 });
    ops.push(Op::LeakyRelu { slope: 0.1 });
    ops
}

#[test]
fn every_function_on_every_layout() {
    type Operand = fn(&mut Case) -> TensorId;
    let operands: [(DType, Operand); 6] = [
        (DType::F32, |case| case.noise(DType::F32, &[7, 5, 3, 2])),
        (DType::F32, |case| case.gaps(DType::F32, [5, 3, 2, 2])),
        (DType::F32, |case| case.noise(DType::F32, &[3, 0])),
        (DType::F16, |case| case.transposed(DType::F16, [6, 5, 2, 1])),
        (DType::F16, |case| case.noise(DType::F16, &[1])),
        (DType::BF16, |case| case.gaps(DType::BF16, [5, 3, 2, 2])),
    ];
    for op in functions() {
        for (dtype, operand) in operands {
            let mut case = Case::new();
            let x = operand(&mut case);
            let y = case.b.node(op.clone(), &[x]);
            case.check(y, limit(dtype));
        }
    }
}

#[test]
fn every_function_over_its_range() {
    let mut values: Vec<f64> = (-2_400..2_400).map(|step| f64::from(step) / 200.0).collect();
    values.extend([1e-30, -1e-30, 1e-3, -1e-3, 1e20, -1e20, 50.0, -50.0, 200.0, -200.0]);
    for op in functions() {
        let mut case = Case::new();
        let x = case.values(DType::F32, &[values.len() as u64], &values);
        let y = case.b.node(op, &[x]);
        case.check(y, 1e-13);
    }
}

/// A large value must not hide what becomes of small ones.
#[test]
fn tails_are_as_accurate_as_the_rest() {
    for function in [Unary::Gelu, Unary::GeluErf, Unary::GeluQuick, Unary::Silu, Unary::Sigmoid, Unary::Exp] {
        for start in [-12.0, -8.0, -4.0, -1.0, -1e-3] {
            // There the reference's own sum of 1 and a hyperbolic tangent of almost -1 has no digits left.
            if function == Unary::Gelu && start < -4.0 {
                continue;
            }
            let mut case = Case::new();
            let values: Vec<f64> = (0..20).map(|step| start * (1.0 + f64::from(step) / 400.0)).collect();
            let x = case.values(DType::F32, &[20], &values);
            let y = case.b.unary(function, x);
            case.check(y, 1e-10);
        }
    }
}

#[test]
fn what_is_no_number() {
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0];
    for op in functions() {
        let mut case = Case::new();
        let x = case.values(DType::F32, &[6], &values);
        let y = case.b.node(op, &[x]);
        case.check(y, 1e-12);
    }
}

#[test]
fn arithmetic_repeats_the_second_operand() {
    let shapes: [([u64; 4], [u64; 4]); 9] = [
        ([8, 6, 4, 2], [8, 6, 4, 2]),
        ([8, 6, 4, 2], [8, 1, 1, 1]),
        ([8, 6, 4, 2], [1, 6, 1, 2]),
        ([8, 6, 4, 2], [4, 3, 2, 1]),
        ([8, 6, 4, 2], [1, 1, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([3_000, 2, 1, 1], [1_500, 1, 1, 1]),
        ([3_000, 2, 1, 1], [3, 2, 1, 1]),
        ([3, 0, 2, 1], [1, 0, 1, 1]),
    ];
    for (extents, repeated) in shapes {
        for op in [Op::Add, Op::Sub, Op::Mul, Op::Div] {
            for (left, right) in
                [(DType::F32, DType::F32), (DType::F16, DType::F32), (DType::F32, DType::BF16)]
            {
                let mut case = Case::new();
                let (a, b) = match (left, right) {
                    (DType::F32, DType::F32) => (case.noise(left, &extents), case.noise(right, &repeated)),
                    (DType::F32, _) => (case.gaps(left, extents), case.transposed(right, repeated)),
                    _ => (case.transposed(left, extents), case.gaps(right, repeated)),
                };
                let y = case.b.node(op.clone(), &[a, b]);
                case.check(y, limit(left));
            }
        }
    }
    for dtype in FLOATS {
        let mut case = Case::new();
        let a = case.gaps(dtype, [5, 3, 2, 1]);
        let b = case.noise(DType::F16, &[1]);
        let y = case.b.add1(a, b);
        case.check(y, limit(dtype));
    }
}

#[test]
fn an_operand_twice() {
    let mut case = Case::new();
    let x = case.noise(DType::F32, &[70, 3]);
    let y = case.b.mul(x, x);
    case.check(y, 1e-13);
}

#[test]
fn gates() {
    fn operand(case: &mut Case, dtype: DType, extents: [u64; 4]) -> TensorId {
        match dtype {
            DType::F32 => case.noise(dtype, &extents),
            DType::F16 => case.gaps(dtype, extents),
            _ => case.transposed(dtype, extents),
        }
    }
    for gate in GATES {
        for dtype in FLOATS {
            for extents in [[6, 5, 2, 2], [2, 1, 1, 1], [3_000, 3, 1, 1], [4, 0, 1, 1]] {
                let mut case = Case::new();
                let (a, b) = (operand(&mut case, dtype, extents), operand(&mut case, dtype, extents));
                let y = case.b.gated(gate, a, b);
                case.check(y, limit(dtype));
                for swapped in [false, true] {
                    let mut case = Case::new();
                    let x = operand(&mut case, dtype, extents);
                    let y = case.b.gated_fused(gate, x, swapped);
                    case.check(y, limit(dtype));
                }
            }
        }
    }
}

/// `Case::check` writes results over each operand that has their layout: here over either.
#[test]
fn results_over_either_operand() {
    for dtype in FLOATS {
        for extents in [[7, 5, 3, 2], [1, 1, 1, 1], [3_000, 3, 1, 1]] {
            for op in [Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Gated { gate: Glu::Silu, swapped: false }] {
                let mut case = Case::new();
                let (a, b) = (case.noise(dtype, &extents), case.noise(dtype, &extents));
                let y = case.b.node(op.clone(), &[a, b]);
                case.check(y, limit(dtype));
                // Over rows with gaps, what lies in the gaps stays out of it.
                let mut case = Case::new();
                let (a, b) = (case.gaps(dtype, extents), case.gaps(dtype, extents));
                let y = case.b.node(op, &[a, b]);
                case.check(y, limit(dtype));
            }
        }
    }
}
