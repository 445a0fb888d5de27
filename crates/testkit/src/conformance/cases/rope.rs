//! Rotary position embedding.

use orlop_graph::{DType, Rope, RopeMode};

use super::HALVES;
use crate::conformance::Tolerance::Rotation;
use crate::conformance::case::{Lie, Table};
use crate::fill::Fill;

pub(super) fn add(table: &mut Table) {
    let modes = [
        ("rope normal", RopeMode::Normal),
        ("rope neox", RopeMode::Neox),
        ("rope sections", RopeMode::Sections([4, 3, 3, 2])),
    ];
    for (kind, mode) in modes {
        for (detail, rope) in variants(mode) {
            for (length, heads, tokens, seqs) in [(32, 3, 4, 1), (40, 1, 1, 2)] {
                table.add(kind, format!("{detail}, {length} {heads} {tokens} {seqs}"), Rotation, |d| {
                    let x = d.f32(&[length, heads, tokens, seqs]);
                    let positions = d.indices(&[tokens * streams(mode)], 2000);
                    d.b.rope(x, positions, None, rope)
                });
            }
        }
        let plain = Rope { mode, dims: 32, ..Rope::default() };
        for dtype in HALVES {
            table.add(kind, dtype, Rotation, |d| {
                let x = d.input(dtype, &[32, 2, 3], Fill::SIGNED);
                let positions = d.indices(&[3 * streams(mode)], 500);
                d.b.rope(x, positions, None, plain)
            });
        }
        for lie in Lie::ODD {
            table.add(kind, lie, Rotation, |d| {
                let x = d.lying(lie, DType::F32, &[32, 2, 3, 2], Fill::SIGNED);
                let positions = d.indices(&[3 * streams(mode)], 500);
                d.b.rope(x, positions, None, plain)
            });
        }
        for factors in [16, 20] {
            table.add(kind, format!("{factors} frequency factors"), Rotation, |d| {
                let x = d.f32(&[32, 2, 3]);
                let positions = d.indices(&[3 * streams(mode)], 500);
                let factors = d.weight(DType::F32, &[factors], Fill::Uniform { low: 1.0, high: 8.0 });
                d.b.rope(x, positions, Some(factors), plain)
            });
        }
        table.add(kind, "in place", Rotation, |d| {
            let x = d.f32(&[32, 2, 3]);
            let made = d.b.scale(x, 2.0);
            let positions = d.indices(&[3 * streams(mode)], 500);
            d.b.rope(made, positions, None, plain)
        });
        table.add(kind, "no tokens", Rotation, |d| {
            let x = d.f32(&[32, 2, 0]);
            let positions = d.indices(&[0], 500);
            d.b.rope(x, positions, None, plain)
        });
    }
}

fn streams(mode: RopeMode) -> u64 {
    if matches!(mode, RopeMode::Sections(_)) { 4 } else { 1 }
}

fn variants(mode: RopeMode) -> [(&'static str, Rope); 7] {
    let plain = Rope { mode, dims: 32, ..Rope::default() };
    let yarn = Rope { freq_scale: 0.25, ext_factor: 1.0, original_context: 512, ..plain };
    [
        ("plain", plain),
        ("part of the head", Rope { dims: 20, ..plain }),
        ("one pair", Rope { dims: 2, ..plain }),
        ("slow base", Rope { freq_base: 1.0e6, ..plain }),
        ("linear", Rope { freq_scale: 0.5, ..plain }),
        ("yarn", yarn),
        ("half yarn, magnitude", Rope { ext_factor: 0.5, attn_factor: 0.8, dims: 24, ..yarn }),
    ]
}
