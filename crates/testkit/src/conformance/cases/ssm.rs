//! State-space models.

use orlop_graph::{DType, Op};

use crate::conformance::Tolerance::Product;
use crate::conformance::case::{Draft, Lie, Table};
use crate::fill::Fill;

pub(super) fn add(table: &mut Table) {
    for [size, inner, tokens, seqs] in [[1, 1, 1, 1], [4, 6, 5, 1], [4, 7, 1, 3], [3, 16, 9, 2], [4, 5, 0, 2]]
    {
        table.add("ssm_conv", format!("{size} {inner} {tokens} {seqs}"), Product, |d| {
            let x = d.f32(&[size - 1 + tokens, inner, seqs]);
            let kernel = d.weight(DType::F32, &[size, inner], Fill::SIGNED);
            d.b.node(Op::SsmConv, &[x, kernel])
        });
    }
    for lie in Lie::ODD {
        table.add("ssm_conv", lie, Product, |d| {
            let x = d.lying(lie, DType::F32, &[8, 6, 2], Fill::SIGNED);
            let kernel = d.weight(DType::F32, &[4, 6], Fill::SIGNED);
            d.b.node(Op::SsmConv, &[x, kernel])
        });
    }
    scan(table);
    delta_scan(table);
}

fn delta_scan(table: &mut Table) {
    for (decay, per_key) in [("a decay a head", false), ("a decay a key", true)] {
        for (detail, [value, key, heads, tokens, seqs]) in [
            ("one of each", [1, 1, 1, 1, 1]),
            ("one sequence", [8, 8, 4, 7, 1]),
            ("more values than keys", [70, 5, 2, 3, 2]),
            ("fewer values than keys", [3, 40, 3, 4, 2]),
            ("one token", [8, 16, 2, 1, 3]),
        ] {
            for lie in [Lie::Plain, Lie::Padded] {
                table.add("delta_scan", format!("{detail}, {decay}, {lie}"), Product, |d| {
                    let kept = seqs + 1;
                    let small = Fill::Uniform { low: -0.5, high: 0.5 };
                    let row = |d: &mut Draft, length: u64, fill: &Fill| {
                        d.lying(lie, DType::F32, &[length, heads, tokens, seqs], fill.clone())
                    };
                    let decays = Fill::Uniform { low: 0.3, high: 1.0 };
                    let operands = [
                        d.state(DType::F32, &[value, key, heads, kept], small.clone()),
                        row(d, key, &Fill::SIGNED),
                        row(d, if per_key { key } else { 1 }, &decays),
                        row(d, key, &Fill::SIGNED),
                        row(d, value, &Fill::SIGNED),
                        row(d, key, &small),
                        row(d, key, &small),
                        d.input(DType::I32, &[seqs], Fill::Distinct { run: seqs, below: kept }),
                    ];
                    d.b.node(Op::DeltaScan, &operands)
                });
            }
        }
    }
}

fn scan(table: &mut Table) {
    for (decay, per_state) in [("a decay a head", false), ("a decay a state", true)] {
        for (detail, [state, head, heads, tokens, seqs, groups]) in [
            ("one of each", [1, 1, 1, 1, 1, 1]),
            ("one group", [8, 4, 4, 5, 1, 1]),
            ("two groups", [8, 3, 4, 5, 2, 2]),
            ("a group a head", [16, 1, 3, 4, 2, 3]),
            ("one token", [8, 4, 2, 1, 3, 1]),
        ] {
            for lie in [Lie::Plain, Lie::Padded] {
                table.add("ssm_scan", format!("{detail}, {decay}, {lie}"), Product, |d| {
                    let kept = seqs + 1;
                    let small = Fill::Uniform { low: -0.5, high: 0.5 };
                    let operands = [
                        d.state(DType::F32, &[state, head, heads, kept], small.clone()),
                        d.lying(lie, DType::F32, &[head, heads, tokens, seqs], Fill::SIGNED),
                        d.lying(
                            lie,
                            DType::F32,
                            &[heads, tokens, seqs],
                            Fill::Uniform { low: -2.0, high: 1.0 },
                        ),
                        d.weight(
                            DType::F32,
                            &[if per_state { state } else { 1 }, heads],
                            Fill::Uniform { low: -2.0, high: -0.1 },
                        ),
                        d.lying(lie, DType::F32, &[state, groups, tokens, seqs], Fill::SIGNED),
                        d.lying(lie, DType::F32, &[state, groups, tokens, seqs], Fill::SIGNED),
                        d.input(DType::I32, &[seqs], Fill::Distinct { run: seqs, below: kept }),
                    ];
                    d.b.node(Op::SsmScan, &operands)
                });
            }
        }
    }
}
