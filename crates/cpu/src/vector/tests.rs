use orlop_graph::DType;
use orlop_testkit::Random;

use super::function::{
    Add, Div, Exp, Gated, Gelu, GeluQuick, Mul, PerElement, Relu, Scale, Sigmoid, Silu, Sub,
};
use super::*;
use crate::simd::prefetch::Ahead;

const LENGTHS: [usize; 14] = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 1023];

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn numbers(length: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..length).map(|_| 8.0 * random.signed()).collect()
}

fn close(found: f32, exact: f64, what: &str) {
    let error = (f64::from(found) - exact).abs();
    assert!(error <= 3e-7 * exact.abs() + 1e-37, "{what}: {found} instead of {exact}");
}

/// Checks a function of vectors on all lengths, beside its operand and over it.
fn check_map(name: &str, function: impl maps::Unary, exact: impl Fn(f64) -> f64) {
    for isa in isas() {
        for length in LENGTHS {
            let x = numbers(length, 3);
            let (mut out, mut over) = (vec![0.0; length], x.clone());
            on(isa, Map { function, x: Floats::from(&x[..]), out: FloatsMut::from(&mut out[..]) });
            let floats = FloatsMut::from(&mut over[..]);
            on(isa, Map { function, x: floats.as_floats(), out: floats });
            assert_eq!(out, over, "{name} {isa} {length}");
            for (x, out) in x.iter().zip(&out) {
                close(*out, exact(f64::from(*x)), &format!("{name}({x}) {isa} {length}"));
            }
        }
    }
}

#[test]
fn functions_of_one_operand_are_exact_but_for_the_last_digits() {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    check_map("exp", Exp, f64::exp);
    check_map("relu", Relu, |x| x.max(0.0));
    check_map("sigmoid", Sigmoid, sigmoid);
    check_map("silu", Silu, |x| x * sigmoid(x));
    check_map("scale", Scale(0.3), |x| x * f64::from(0.3f32));
    check_map("each", PerElement(|x: f32| x * x), |x| x * x);
    for (isa, x) in isas().flat_map(|isa| numbers(100, 9).into_iter().map(move |x| (isa, x))) {
        let one = |function: &dyn Fn(Floats<'_>, FloatsMut<'_>)| {
            let mut out = [0.0];
            function(Floats::from(&[x][..]), FloatsMut::from(&mut out[..]));
            f64::from(out[0])
        };
        let wide = f64::from(x);
        let quick = one(&|x, out| on(isa, Map { function: GeluQuick, x, out }));
        assert!((quick - wide * sigmoid(1.702 * wide)).abs() <= 1e-6, "gelu_quick({x}) {isa}: {quick}");
        let gelu = one(&|x, out| on(isa, Map { function: Gelu, x, out }));
        let z = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044_715 * wide.powi(3));
        assert!((gelu - 0.5 * wide * (1.0 + z.tanh())).abs() <= 1e-6, "gelu({x}) {isa}: {gelu}");
    }
}

#[test]
fn functions_of_two_operands_work_over_either() {
    fn check(name: &str, function: impl maps::Binary, exact: impl Fn(f64, f64) -> f64) {
        for isa in isas() {
            for length in LENGTHS {
                let (a, b) = (numbers(length, 5), numbers(length, 6));
                let mut out = vec![0.0; length];
                let (x, y) = (Floats::from(&a[..]), Floats::from(&b[..]));
                on(isa, Zip { function, a: x, b: y, out: FloatsMut::from(&mut out[..]) });
                for ((a, b), out) in a.iter().zip(&b).zip(&out) {
                    let exact = exact(f64::from(*a), f64::from(*b));
                    let error = (f64::from(*out) - exact).abs();
                    assert!(error <= 3e-7 * exact.abs().max(1e-30), "{name}({a}, {b}) {isa}: {out}");
                }
                let (mut over_a, mut over_b) = (a.clone(), b.clone());
                let floats = FloatsMut::from(&mut over_a[..]);
                on(isa, Zip { function, a: floats.as_floats(), b: y, out: floats });
                let floats = FloatsMut::from(&mut over_b[..]);
                on(isa, Zip { function, a: x, b: floats.as_floats(), out: floats });
                assert!(over_a == out && over_b == out, "{name} {isa} {length}");
            }
        }
    }
    check("add", Add, |a, b| a + b);
    check("sub", Sub, |a, b| a - b);
    check("mul", Mul, |a, b| a * b);
    check("div", Div, |a, b| a / b);
    check("gate", Gated(Relu), |a, b| a.max(0.0) * b);
}

#[test]
fn exponentials_are_good_to_the_last_place() {
    let x: Vec<f32> = (-1_040_000..887_200).map(|step| step as f32 / 10_000.0).collect();
    let edges = [f32::NEG_INFINITY, -1e30, -0.0, f32::INFINITY, 89.0, f32::NAN, -f32::NAN];
    for isa in isas() {
        let mut out = vec![0.0; x.len()];
        on(isa, Map { function: Exp, x: Floats::from(&x[..]), out: FloatsMut::from(&mut out[..]) });
        for (x, out) in x.iter().zip(&out) {
            let (found, exact) = (f64::from(*out), f64::from(*x).exp());
            let unit = (exact * f64::from(f32::EPSILON)).max(f64::from(f32::from_bits(1)));
            assert!((found - exact).abs() <= 1.5 * unit, "{isa}: exp({x}) = {found}, not {exact}");
        }
        let mut out = [0.0; 7];
        on(isa, Map { function: Exp, x: Floats::from(&edges[..]), out: FloatsMut::from(&mut out[..]) });
        assert_eq!(out[..5], [0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY], "{isa}");
        assert!(out[5].is_nan() && out[6].is_nan(), "{isa}");
    }
}

#[test]
fn weights_and_what_goes_before_them() {
    for isa in isas() {
        for length in LENGTHS {
            let x = numbers(length, 11);
            let mut weights = x.clone();
            let sum = on(isa, Weights { scores: &mut weights, max: 8.0 });
            let exact: Vec<f64> = x.iter().map(|x| (f64::from(*x) - 8.0).exp()).collect();
            let total: f64 = exact.iter().sum();
            assert!((f64::from(sum) - total).abs() <= 1e-5 * total, "{isa} {length}: {sum} {total}");
            weights.iter().zip(&exact).for_each(|(found, exact)| {
                assert!((f64::from(*found) - exact).abs() <= 2e-6 * exact, "{isa} {length}: {found} {exact}");
            });
            let mut scaled = x.clone();
            on(isa, Scaled { x: &mut scaled, factor: -0.7 });
            assert!(scaled.iter().zip(&x).all(|(scaled, x)| *scaled == x * -0.7), "{isa} {length}");
            let mut capped = x.clone();
            on(isa, SoftCapped { scores: &mut capped, cap: 3.0 });
            for (x, capped) in x.iter().zip(&capped) {
                assert!((capped - 3.0 * (x / 3.0).tanh()).abs() < 2e-6, "{isa} {length}: {x} {capped}");
            }
        }
    }
}

#[test]
fn moments_and_rows_without_them() {
    for isa in isas() {
        for length in LENGTHS {
            let row: Vec<f32> = numbers(length, 19).iter().map(|x| x + 1000.0).collect();
            let x = Floats::from(&row[..]);
            let sum: f64 = row.iter().map(|x| f64::from(*x)).sum();
            assert!((on(isa, Sum(x)) - sum).abs() <= 1e-12 * sum, "{isa} {length}");
            let squares: f64 = row.iter().map(|x| (f64::from(*x) - 1000.5).powi(2)).sum();
            assert!((on(isa, Squares(x, 1000.5)) - squares).abs() <= 1e-12 * squares, "{isa} {length}");
            let (mut out, mut over) = (vec![0.0; length], row.clone());
            on(isa, Shifted { x, mean: 1000.5, factor: 0.3, out: FloatsMut::from(&mut out[..]) });
            let floats = FloatsMut::from(&mut over[..]);
            on(isa, Shifted { x: floats.as_floats(), mean: 1000.5, factor: 0.3, out: floats });
            let exact: Vec<f32> = row.iter().map(|x| ((f64::from(*x) - 1000.5) * 0.3) as f32).collect();
            assert!(out == exact && over == exact, "{isa} {length}");
        }
    }
}

#[test]
fn rows_of_halves_leave_what_is_between_them() {
    for isa in isas() {
        for (rows, length, gap) in [(1, 1, 0), (3, 64, 5), (5, 37, 2)] {
            let distance = 2 * length + gap;
            let values = numbers(rows * length, 23);
            let mut bytes = vec![0xff; rows * distance];
            for (row, bytes) in values.chunks(length).zip(bytes.chunks_mut(distance)) {
                orlop_quant::encode(DType::F16, row, &mut bytes[..2 * length]).unwrap();
            }
            let (stride, mut out) = (length + 3, vec![7.0; rows * (length + 3)]);
            // SAFETY: `new` asks for rows that can be read, and these are what the bytes were made of.
            let from = unsafe { Strided::new(bytes.as_ptr(), distance, (rows, length)) };
            on(isa, HalfRows::new(from, &mut out, stride));
            for (row, out) in bytes.chunks(distance).zip(out.chunks(stride)) {
                let mut exact = vec![7.0; stride];
                orlop_quant::decode(DType::F16, &row[..2 * length], &mut exact[..length]).unwrap();
                assert_eq!(out, exact, "{isa} {rows}x{length}");
            }
        }
    }
}

#[test]
fn the_largest_element_is_found_wherever_it_is() {
    for isa in isas() {
        for length in LENGTHS {
            let x = numbers(length, 13);
            let exact = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(on(isa, LargestOf(Floats::from(&x[..]))), exact, "{isa} {length}");
            for place in 0..length {
                let mut x = vec![f32::NAN; length];
                assert_eq!(on(isa, LargestOf(Floats::from(&x[..]))), f32::NEG_INFINITY);
                x[place] = -7.0;
                assert_eq!(on(isa, LargestOf(Floats::from(&x[..]))), -7.0, "{isa} {length} {place}");
                for (limit, expected) in [(-8.0, -7.0), (-7.0, -7.0), (1.0, 1.0)] {
                    assert_eq!(
                        on(isa, LargestAbove(Floats::from(&x[..]), limit)),
                        expected,
                        "{isa} {length}"
                    );
                }
                assert!(on(isa, LargestAbove(Floats::from(&x[..]), f32::NAN)).is_nan());
            }
        }
    }
}

#[test]
fn products_of_small_matrices() {
    for isa in isas() {
        for (rows, columns, depth) in [(1, 16, 1), (3, 64, 64), (4, 80, 5), (6, 32, 0), (32, 128, 33)] {
            let (left_stride, right_stride, stride) = (depth + 3, columns + 5, columns + 7);
            let (left, right) = (numbers(rows * left_stride, 1), numbers(depth * right_stride, 2));
            for fresh in [true, false] {
                let before = numbers(rows * stride, 3);
                let mut sums = before.clone();
                let product = Product {
                    left: Matrix { floats: &left, stride: left_stride },
                    right: Strided::floats(&right, right_stride, (depth, columns)),
                    sums: &mut sums,
                    stride,
                    rows,
                    fresh,
                    ahead: Ahead::none(),
                };
                on(isa, product);
                for (index, (found, before)) in sums.iter().zip(&before).enumerate() {
                    let (i, j) = (index / stride, index % stride);
                    let terms = (0..depth).map(|k| {
                        f64::from(left[i * left_stride + k]) * f64::from(right[k * right_stride + j])
                    });
                    let exact = match (j < columns, fresh) {
                        (false, _) => f64::from(*before),
                        (true, true) => terms.sum(),
                        (true, false) => f64::from(*before) + terms.sum::<f64>(),
                    };
                    let error = (f64::from(*found) - exact).abs();
                    assert!(error <= 2e-3, "{isa} {rows}x{columns}x{depth}: {found} {exact}");
                }
            }
        }
    }
}

#[test]
fn scores_of_a_few_rows() {
    for isa in isas() {
        for (count, rows, depth) in [(1, 1, 16), (3, 64, 64), (4, 33, 80), (8, 7, 128)] {
            let (left, right) = (numbers(count * (depth + 3), 1), numbers(rows * (depth + 5), 2));
            let stride = rows.next_multiple_of(16);
            let mut scores = vec![0.0; count * stride];
            let left_matrix = Matrix { floats: &left, stride: depth + 3 };
            let right_rows = Strided::floats(&right, depth + 5, (rows, depth));
            on(
                isa,
                Scores {
                    left: left_matrix,
                    right: right_rows,
                    scores: &mut scores,
                    stride,
                    count,
                    ahead: Ahead::none(),
                },
            );
            for (i, j) in (0..count).flat_map(|i| (0..rows).map(move |j| (i, j))) {
                let terms = left[i * (depth + 3)..].iter().zip(&right[j * (depth + 5)..]).take(depth);
                let exact: f64 = terms.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                let found = scores[i * stride + j];
                assert!((f64::from(found) - exact).abs() <= 2e-3, "{isa} {i} {j}: {found} {exact}");
            }
        }
    }
}

#[test]
fn scores_of_columns_are_those_of_rows() {
    for isa in isas() {
        for (count, rows, depth) in [(1, 16, 16), (3, 64, 64), (9, 48, 80), (64, 64, 128)] {
            let (left, right) = (numbers(count * depth, 1), numbers(rows * depth, 2));
            let (mut columns, mut scores) = (vec![0.0; depth * rows], vec![0.0; count * rows]);
            let from = Matrix { floats: &right, stride: depth };
            on(isa, Transposition { from, out: &mut columns, stride: rows, rows, columns: depth });
            let left = Matrix { floats: &left, stride: depth };
            let by_rows = Scores {
                left,
                right: Strided::floats(&right, depth, (rows, depth)),
                scores: &mut scores,
                stride: rows,
                count,
                ahead: Ahead::none(),
            };
            on(isa, by_rows);
            let mut found = vec![0.0; count * rows];
            let right = Matrix { floats: &columns, stride: rows };
            let by_columns =
                ColumnScores { left, right, depth, columns: rows, scores: &mut found, stride: rows, count };
            on(isa, by_columns);
            assert_eq!(found, scores, "{isa} {count} {rows} {depth}");
        }
    }
}

#[test]
fn transposed_rows_are_columns() {
    for isa in isas() {
        for (rows, columns) in [(16, 16), (64, 32), (16, 80)] {
            let (from_stride, stride) = (columns + 3, rows + 1);
            let (from, mut out) = (numbers(rows * from_stride, 4), vec![0.0; columns * stride]);
            let matrix = Matrix { floats: &from, stride: from_stride };
            on(isa, Transposition { from: matrix, out: &mut out, stride, rows, columns });
            for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                assert_eq!(out[j * stride + i], from[i * from_stride + j], "{isa} {i} {j}");
            }
        }
    }
}

#[test]
fn conversions_give_what_the_codecs_give() {
    let special = [0.0, -0.0, 1e-8, 65504.0, 1e30, f32::INFINITY, f32::NEG_INFINITY, 6e-8, 1e-40];
    for isa in isas() {
        let blocks: &[usize] = &[0, 32, 96, 1024];
        for (dtype, lengths) in [(DType::F16, &LENGTHS[..]), (DType::Q8_0, blocks), (DType::Q4_0, blocks)] {
            for (length, odd) in lengths.iter().flat_map(|length| [(*length, 0), (*length, 1), (*length, 2)])
            {
                let mut values = numbers(length, 17);
                match odd {
                    1 => values.iter_mut().zip(special).for_each(|(value, special)| *value = special),
                    // Halves between two integers, and blocks without a scale of their own.
                    2 => values.iter_mut().enumerate().for_each(|(i, x)| {
                        *x = if i / 32 % 2 == 0 { (i % 32) as f32 * 0.5 + 111.5 } else { i as f32 * 1e-42 };
                    }),
                    _ => {}
                }
                let bytes = length as u64 / dtype.block_elements() * dtype.block_bytes();
                let (mut found, mut exact) = (vec![0; bytes as usize], vec![0; bytes as usize]);
                orlop_quant::encode(dtype, &values, &mut exact).unwrap();
                let encodes = encode(isa, dtype, &values, &mut found);
                assert_eq!(encodes, dtype != DType::Q4_0);
                assert!(!encodes || found == exact, "{isa} {dtype} {length} {odd}");
                let (mut floats, mut expected) = (vec![0.0; length], vec![0.0; length]);
                assert!(decode(isa, dtype, &exact, &mut floats));
                orlop_quant::decode(dtype, &exact, &mut expected).unwrap();
                let same = floats.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{isa} {dtype} {length} {odd}");
            }
        }
        assert!(!decode(isa, DType::Q4_1, &[], &mut []) && !encode(isa, DType::F32, &[], &mut []));
    }
}
