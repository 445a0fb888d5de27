use orlop_graph::{DType, TensorDesc};
use orlop_testkit::Random;

use super::*;
use crate::repack::{PackedLayout, ROWS};

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn repacked() -> impl Iterator<Item = DType> {
    DType::all().filter(|dtype| panel_kind(*dtype).is_some())
}

fn noise(random: &mut Random, length: usize) -> Vec<f32> {
    (0..length).map(|_| random.signed()).collect()
}

/// Sixteen rows in tiles, and as floats.
fn weights(dtype: DType, length: usize) -> (Vec<u8>, Vec<Vec<f32>>) {
    let desc = TensorDesc::contiguous(dtype, &[length as u64, ROWS as u64]).unwrap();
    let layout = PackedLayout::of(&desc).unwrap();
    let mut random = Random::new(length as u64);
    let row = desc.row_bytes() as usize;
    let mut bytes = vec![0; desc.bytes() as usize];
    let mut floats = Vec::new();
    for bytes in bytes.chunks_exact_mut(row) {
        orlop_quant::encode(dtype, &noise(&mut random, length), bytes).unwrap();
        let mut values = vec![0.0; length];
        orlop_quant::decode(dtype, bytes, &mut values).unwrap();
        floats.push(values);
    }
    let mut tiles = vec![0; layout.bytes()];
    layout.pack_rows(Isa::Scalar, &bytes, 0, &mut tiles);
    (tiles, floats)
}

/// Activations in 8 bits, and the numbers that these stand for.
fn activations(isa: Isa, length: usize, seed: u64, numbers: Numbers) -> (Vec<Block>, Vec<f64>) {
    let values: Vec<f32> = noise(&mut Random::new(seed), length).iter().map(|x| x * x * x * 30.0).collect();
    let mut blocks = vec![[0; BLOCK_BYTES]; length / 32];
    quantize(isa, &values, numbers, &mut blocks);
    let bias = f64::from(numbers.bias());
    let together = 32 * numbers.together();
    let decoded = blocks.iter().flat_map(|block| {
        let scale = f32::from_le_bytes([block[32], block[33], block[34], block[35]]);
        block[..32].iter().map(move |byte| {
            let number = if bias > 0.0 { f64::from(*byte) - bias } else { f64::from(*byte as i8) };
            number * f64::from(scale)
        })
    });
    let decoded: Vec<f64> = decoded.collect();
    for (value, decoded) in values.chunks(together).zip(decoded.chunks(together)) {
        let largest = value.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        for (value, decoded) in value.iter().zip(decoded) {
            assert!((f64::from(*value) - decoded).abs() <= f64::from(largest) / 253.9, "{value} {decoded}");
        }
    }
    (blocks, decoded)
}

fn close(got: &[f32], weights: &[Vec<f32>], act: &[f64], what: &str) {
    for (got, row) in got.iter().zip(weights) {
        let products = row.iter().zip(act).map(|(w, a)| f64::from(*w) * a);
        let (exact, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
        assert!((f64::from(*got) - exact).abs() <= 1e-5 * size, "{what}: {got} {exact}");
    }
}

#[test]
fn tiles_are_taken_apart_alike_by_all_instructions() {
    for dtype in repacked() {
        let (tiles, _) = weights(dtype, 512);
        let mut expected = vec![0.0; 16 * panel_floats(dtype)];
        expand(Isa::Scalar, dtype, Numbers::Signed, &tiles, &mut expected);
        for isa in isas() {
            let mut panel = vec![0.0; expected.len()];
            expand(isa, dtype, Numbers::Signed, &tiles, &mut panel);
            assert!(as_bits(&panel) == as_bits(&expected), "{dtype} {isa}");
        }
    }
}

fn as_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn activations_are_rounded_alike_by_all_instructions() {
    for (numbers, length) in [(Numbers::Signed, 640), (Numbers::Biased, 640), (Numbers::Joint, 768)] {
        let (expected, _) = activations(Isa::Scalar, length, 3, numbers);
        for isa in isas() {
            assert!(activations(isa, length, 3, numbers).0 == expected, "{isa} {numbers:?}");
        }
    }
}

#[test]
fn blocks_that_are_not_finite_or_too_small_stay_what_they_are() {
    for isa in isas() {
        let mut values = vec![1.0; 128];
        (values[3], values[40]) = (f32::NAN, f32::INFINITY);
        values[64..96].fill(1e-42);
        values[96..].fill(0.0);
        let mut blocks = [[0; BLOCK_BYTES]; 4];
        quantize(isa, &values, Numbers::Signed, &mut blocks);
        let scales = blocks.map(|block| f32::from_le_bytes([block[32], block[33], block[34], block[35]]));
        assert!(
            scales[0].is_nan() && scales[1].is_nan() && scales[2] == 0.0 && scales[3] == 0.0,
            "{scales:?}"
        );
        let mut values = vec![1.0; 512];
        values[200] = f32::NEG_INFINITY;
        let mut blocks = [[0; BLOCK_BYTES]; 16];
        quantize(isa, &values, Numbers::Joint, &mut blocks);
        for (number, block) in blocks.iter().enumerate() {
            let scale = f32::from_le_bytes([block[32], block[33], block[34], block[35]]);
            assert_eq!(scale.is_nan(), number < 8, "{number}: {scale}");
        }
    }
}

#[test]
fn panels_and_tiles_give_the_products_of_what_is_stored() {
    for dtype in repacked() {
        let (tiles, weights) = weights(dtype, 768);
        let mut panel_memory = vec![0.0; 24 * panel_floats(dtype)];
        for isa in isas() {
            expand(isa, dtype, Numbers::Signed, &tiles, &mut panel_memory);
            for rows in 1..=13 {
                let numbers = numbers(isa, FEW as u64 + 1, false);
                let acts: Vec<_> = (0..rows).map(|row| activations(isa, 768, row as u64, numbers)).collect();
                let blocks: Vec<&[Block]> = acts.iter().map(|(blocks, _)| &blocks[..]).collect();
                let mut out = vec![[0.0; 16]; 2 * rows];
                let panels = [&panel_memory[..]; 2];
                panel(isa, numbers, panel_kind(dtype).unwrap(), panels, &blocks, &tiles, &mut out);
                for ((_, act), out) in acts.iter().zip(out.chunks(2)) {
                    assert_eq!(out[0], out[1]);
                    close(&out[0], &weights, act, &format!("{dtype} {isa} panel"));
                }
                if !has_tile_products(isa) || rows > FEW {
                    continue;
                }
                let acts: Vec<_> =
                    (0..rows).map(|row| activations(isa, 768, row as u64, Numbers::Signed)).collect();
                let blocks: Vec<&[Block]> = acts.iter().map(|(blocks, _)| &blocks[..]).collect();
                dot_tiles(isa, dtype, &tiles, &blocks, &mut out);
                for ((_, act), out) in acts.iter().zip(&out) {
                    close(out, &weights, act, &format!("{dtype} {isa} tiles"));
                }
            }
        }
    }
}

/// Weights are rounded to 255 multiples of one scale for 256 of them: by at most half of it, and more or less at random.
#[test]
fn joint_panels_give_the_products_of_what_is_stored_but_for_rounding() {
    for dtype in repacked().filter(|dtype| wants_joint(*dtype)) {
        let (mut tiles, weights) = weights(dtype, 768);
        let mut panel_memory = vec![f32::NAN; 24 * panel_floats(dtype)];
        for isa in isas().filter(|isa| numbers(*isa, 100, true) == Numbers::Joint) {
            expand(isa, dtype, Numbers::Joint, &tiles, &mut panel_memory);
            for rows in 1..=13 {
                let acts: Vec<_> =
                    (0..rows).map(|row| activations(isa, 768, row as u64, Numbers::Joint)).collect();
                let blocks: Vec<&[Block]> = acts.iter().map(|(blocks, _)| &blocks[..]).collect();
                let mut out = vec![[0.0; 16]; 2 * rows];
                let panels = [&panel_memory[..]; 2];
                panel(isa, Numbers::Joint, panel_kind(dtype).unwrap(), panels, &blocks, &tiles, &mut out);
                for ((_, act), out) in acts.iter().zip(out.chunks(2)) {
                    assert_eq!(out[0], out[1]);
                    for (got, row) in out[0].iter().zip(&weights) {
                        let exact: f64 = row.iter().zip(act).map(|(w, a)| f64::from(*w) * a).sum();
                        let largest = row.iter().fold(0.0f32, |largest, w| largest.max(w.abs()));
                        let length = act.iter().map(|a| a * a).sum::<f64>().sqrt();
                        let deviation = f64::from(largest) / 127.0 * length / 12f64.sqrt();
                        let error = (f64::from(*got) - exact).abs();
                        assert!(error < 4.0 * deviation, "{dtype}: {got} {exact}, {error} of {deviation}");
                    }
                }
            }
            // Scales of 0 are no reason to divide by 0.
            tiles.fill(0);
            expand(isa, dtype, Numbers::Joint, &tiles, &mut panel_memory);
            let (blocks, _) = activations(isa, 768, 1, Numbers::Joint);
            let mut out = [[1.0; 16]; 2];
            let panels = [&panel_memory[..]; 2];
            panel(isa, Numbers::Joint, panel_kind(dtype).unwrap(), panels, &[&blocks], &[], &mut out);
            assert_eq!(out, [[0.0; 16]; 2]);
        }
    }
}

/// The largest weights and activations there are: sums of products must not saturate anywhere.
#[test]
fn extreme_numbers_do_not_saturate() {
    let (mut tiles, weights) = weights(DType::Q8_0, 64);
    let tile = tile_spec(DType::Q8_0).unwrap();
    let codes = tile.fields[0].bytes * ROWS;
    tiles.iter_mut().enumerate().filter(|(at, _)| at % tile.bytes < codes).for_each(|(at, byte)| {
        *byte = if at % 3 == 0 { 127 } else { 128 };
    });
    let mut expected = None;
    for isa in isas() {
        let mut panel_memory = vec![0.0; 2 * panel_floats(DType::Q8_0)];
        expand(isa, DType::Q8_0, Numbers::Signed, &tiles, &mut panel_memory);
        let numbers = numbers(isa, 100, false);
        let values: Vec<f32> = (0..64).map(|i| if i % 5 == 0 { -3.0 } else { 3.0 }).collect();
        let mut blocks = [[0; BLOCK_BYTES]; 2];
        quantize(isa, &values, numbers, &mut blocks);
        let mut out = [[0.0; 16]; 2];
        let kind = panel_kind(DType::Q8_0).unwrap();
        panel(isa, numbers, kind, [&panel_memory; 2], &[&blocks], &[], &mut out);
        let first = *expected.get_or_insert(out[0]);
        for (out, first) in out[0].iter().zip(first) {
            assert!((out - first).abs() <= 1e-4 * first.abs().max(1.0), "{isa}: {out} {first}");
        }
    }
    assert_eq!(weights.len(), ROWS);
}

/// The smallest and the largest weight of a type, before scales.
fn extremes(dtype: DType) -> [i8; 2] {
    let (low, high) = orlop_quant::block_layout(dtype).unwrap().weights();
    [low, high].map(|weight| i8::try_from(weight).unwrap())
}

#[test]
fn sums_of_extreme_weights_of_any_type_do_not_overflow() {
    let isas = || isas().filter(|isa| numbers(*isa, 100, false) == Numbers::Signed);
    for dtype in repacked() {
        let (tiles, _) = weights(dtype, 256);
        let mut panel_memory = vec![0.0; 8 * panel_floats(dtype)];
        expand(Isa::Scalar, dtype, Numbers::Signed, &tiles, &mut panel_memory);
        for (weight, sign) in extremes(dtype).into_iter().flat_map(|weight| [(weight, 1.0), (weight, -1.0)]) {
            for block in panel_memory.chunks_mut(panel_floats(dtype)) {
                block[..128].fill(f32::from_le_bytes([weight as u8; 4]));
            }
            let mut blocks = [[0; BLOCK_BYTES]; 8];
            quantize(Isa::Scalar, &[3.0 * sign; 256], Numbers::Signed, &mut blocks);
            let products = |isa| {
                let mut out = [[0.0; 16]; 2];
                panel(
                    isa,
                    Numbers::Signed,
                    panel_kind(dtype).unwrap(),
                    [&panel_memory; 2],
                    &[&blocks],
                    &[],
                    &mut out,
                );
                out[0]
            };
            let expected = products(Isa::Scalar);
            for isa in isas() {
                for (got, expected) in products(isa).iter().zip(expected) {
                    let close = (got - expected).abs() <= 1e-4 * expected.abs().max(1.0);
                    assert!(close, "{dtype} {isa} {weight}: {got} {expected}");
                }
            }
        }
    }
}

#[test]
fn float_products_agree_with_their_scalar_twins() {
    for length in [1, 7, 16, 33, 64, 250] {
        let mut random = Random::new(length as u64);
        let rows = noise(&mut random, 16 * length);
        let acts: Vec<Vec<u8>> = (0..FLOAT_ROWS)
            .map(|_| noise(&mut random, length).iter().flat_map(|x| x.to_le_bytes()).collect())
            .collect();
        let acts: Vec<&[[u8; 4]]> = acts.iter().map(|act| act.as_chunks().0).collect();
        let act = |number: usize| -> Vec<f64> {
            acts[number].iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
        };
        let floats: Vec<Vec<f32>> = rows.chunks(length).map(<[f32]>::to_vec).collect();
        for isa in isas() {
            let mut panel = vec![[0.0; 16]; length];
            transpose(isa, &rows, length, &mut panel);
            for (k, panel) in panel.iter().enumerate() {
                assert!(panel.iter().enumerate().all(|(row, x)| *x == rows[row * length + k]), "{isa}");
            }
            for count in 1..=FLOAT_ROWS {
                let mut out = vec![[0.0; 16]; 2 * count];
                panel_f32(isa, [&panel; 2], &acts[..count], &mut out);
                for (number, out) in out.chunks(2).enumerate() {
                    assert_eq!(out[0], out[1]);
                    close(&out[0], &floats, &act(number), &format!("{isa} {length}"));
                }
            }
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let encoded: Vec<Vec<u8>> = floats[..6]
                    .iter()
                    .map(|row| {
                        let mut bytes = vec![0; dtype.row_bytes(length as u64).unwrap() as usize];
                        orlop_quant::encode(dtype, row, &mut bytes).unwrap();
                        bytes
                    })
                    .collect();
                let decoded: Vec<Vec<f32>> = encoded
                    .iter()
                    .map(|bytes| {
                        let mut values = vec![0.0; length];
                        orlop_quant::decode(dtype, bytes, &mut values).unwrap();
                        values
                    })
                    .collect();
                let (rows, bytes) = (encoded.concat(), encoded[0].len());
                for count in 1..=FEW_FLOATS {
                    for taken in 1..=encoded.len() {
                        let mut out = [[0.0; 8]; FEW_FLOATS];
                        dot_rows(isa, dtype, &rows[..taken * bytes], bytes, &acts[..count], 4, &mut out);
                        for (number, out) in out[..count].iter().enumerate() {
                            let what = format!("{isa} {dtype} {length}");
                            close(&out[..taken], &decoded[..taken], &act(number), &what);
                        }
                    }
                }
            }
        }
    }
}

/// FNV-1a.
fn checksum(hash: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Tiles, panels and products of every type, as one number for each kind of instructions. Changes of the loops must keep
/// every bit; `UPDATE_GOLDEN=1` writes what this machine can compute and keeps the other lines.
#[test]
fn tiles_panels_and_products_keep_every_bit() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/simd/product/checksums.txt");
    let known = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines: Vec<String> = known.lines().map(str::to_owned).collect();
    let mut wrong = Vec::new();
    for dtype in repacked() {
        let (tiles, _) = weights(dtype, 768);
        for isa in isas() {
            let mut hash = checksum(0xcbf2_9ce4_8422_2325, tiles.iter().copied());
            let mut add = |values: &[f32]| {
                hash = checksum(hash, values.iter().flat_map(|value| value.to_bits().to_le_bytes()));
            };
            let mut panel_memory = vec![0.0; 24 * panel_floats(dtype)];
            let choices = [Numbers::Signed, numbers(isa, 100, wants_joint(dtype)), numbers(isa, 100, false)];
            for numbers in choices {
                expand(isa, dtype, numbers, &tiles, &mut panel_memory);
                add(&panel_memory);
                let acts: Vec<_> = (0..13).map(|row| activations(isa, 768, row as u64, numbers).0).collect();
                let blocks: Vec<&[Block]> = acts.iter().map(|blocks| &blocks[..]).collect();
                let mut out = vec![[0.0; 16]; 26];
                panel(
                    isa,
                    numbers,
                    panel_kind(dtype).unwrap(),
                    [&panel_memory; 2],
                    &blocks,
                    &tiles,
                    &mut out,
                );
                add(out.as_flattened());
            }
            for rows in 1..=FEW {
                let acts: Vec<_> =
                    (0..rows).map(|row| activations(isa, 768, row as u64, Numbers::Signed).0).collect();
                let blocks: Vec<&[Block]> = acts.iter().map(|blocks| &blocks[..]).collect();
                let mut out = vec![[0.0; 32]; rows];
                if has_tile_products(isa) {
                    dot_tiles(isa, dtype, &tiles.repeat(2), &blocks, &mut out);
                }
                add(out.as_flattened());
            }
            let (key, line) = (format!("{isa} {dtype} "), format!("{isa} {dtype} {hash:016x}"));
            if !lines.contains(&line) {
                lines.retain(|line| !line.starts_with(&key));
                lines.push(line.clone());
                wrong.push(line);
            }
        }
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        lines.sort();
        std::fs::write(path, lines.join("\n") + "\n").unwrap();
    } else {
        assert!(wrong.is_empty(), "other bits than before: {wrong:#?}");
    }
}
