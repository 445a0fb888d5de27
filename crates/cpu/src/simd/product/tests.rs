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

/// Rounded activations, and the numbers that these stand for.
fn activations<const B: usize>(isa: Isa, length: usize, seed: u64) -> (Vec<Block<B>>, Vec<f64>) {
    let values: Vec<f32> = noise(&mut Random::new(seed), length).iter().map(|x| x * x * x * 30.0).collect();
    let mut blocks = vec![[0; B]; length / 32];
    quantize(isa, &values, &mut blocks);
    let number = |block: &Block<B>, k: usize| match B {
        BYTES_8 => i32::from(block[k] as i8),
        _ => 256 * i32::from(block[k] as i8) + i32::from(block[32 + k] as i8),
    };
    let decoded: Vec<f64> = blocks
        .iter()
        .flat_map(|block| (0..32).map(move |k| f64::from(number(block, k)) * f64::from(scale(block))))
        .collect();
    // A lower byte of -128 is avoided, at the price of another half of the step.
    let step = if B == BYTES_8 { 0.5001 / 127.0 } else { 1.501 / 32512.0 };
    for (value, decoded) in values.chunks(32).zip(decoded.chunks(32)) {
        let largest = value.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        for (value, decoded) in value.iter().zip(decoded) {
            assert!((f64::from(*value) - decoded).abs() <= f64::from(largest) * step, "{value} {decoded}");
        }
    }
    (blocks, decoded)
}

fn scale<const B: usize>(block: &Block<B>) -> f32 {
    f32::from_le_bytes(*block[B - 4..].first_chunk().unwrap())
}

fn close(got: &[f32], weights: &[Vec<f32>], act: &[f64], what: &str) {
    for (got, row) in got.iter().zip(weights) {
        let products = row.iter().zip(act).map(|(w, a)| f64::from(*w) * a);
        let (exact, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
        assert!((f64::from(*got) - exact).abs() <= 1e-5 * size, "{what}: {got} {exact}");
    }
}

/// What the weights of a panel are too large by.
fn excess(isa: Isa, dtype: DType) -> u8 {
    if isa == Isa::Avx512 && !panel_kind(dtype).unwrap().min { 128 } else { 0 }
}

#[test]
fn tiles_are_taken_apart_alike_by_all_instructions() {
    for dtype in repacked() {
        let (tiles, _) = weights(dtype, 512);
        let mut expected = vec![0.0; 16 * panel_floats(dtype)];
        expand(Isa::Scalar, dtype, &tiles, &mut expected);
        for isa in isas() {
            let mut panel = vec![0.0; expected.len()];
            expand(isa, dtype, &tiles, &mut panel);
            for block in panel.chunks_mut(panel_floats(dtype)) {
                for weights in &mut block[..128] {
                    let signed = |byte: u8| byte.wrapping_sub(excess(isa, dtype));
                    *weights = f32::from_le_bytes(weights.to_le_bytes().map(signed));
                }
            }
            assert!(as_bits(&panel) == as_bits(&expected), "{dtype} {isa}");
        }
    }
}

#[test]
fn tiles_are_decoded_alike_by_all_instructions_and_have_the_products_of_their_panels() {
    for dtype in repacked() {
        let (tiles, floats) = weights(dtype, 768);
        let mut expected = vec![[0.0; 16]; 768];
        decode(Isa::Scalar, dtype, &tiles, &mut expected);
        for (k, expected) in expected.iter().enumerate() {
            for (got, row) in expected.iter().zip(&floats) {
                assert!((got - row[k]).abs() <= 1e-6, "{dtype} {k}: {got} {}", row[k]);
            }
        }
        let mut random = Random::new(5);
        let acts: Vec<Vec<u8>> = (0..FEW_FLOAT_TILES)
            .map(|_| noise(&mut random, 768).iter().flat_map(|x| x.to_le_bytes()).collect())
            .collect();
        let acts: Vec<&[[u8; 4]]> = acts.iter().map(|act| act.as_chunks().0).collect();
        for isa in isas() {
            let mut panel = vec![[0.0; 16]; 768];
            decode(isa, dtype, &tiles, &mut panel);
            let bits = [&panel, &expected].map(|panel| as_bits(panel.as_flattened()));
            assert!(bits[0] == bits[1], "{dtype} {isa}");
            for count in (1..=FEW_FLOAT_TILES).filter(|_| has_tile_products(isa)) {
                let mut products = [(); 2].map(|()| vec![[0.0; 16]; 2 * count]);
                panel_f32(isa, [&panel; 2], &acts[..count], &mut products[0]);
                dot_tiles_f32(isa, dtype, [&tiles; 2], &acts[..count], &mut products[1]);
                let bits = products.map(|products| as_bits(products.as_flattened()));
                assert!(bits[0] == bits[1], "{dtype} {isa}: tiles differ from panels");
            }
        }
    }
}

fn as_bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn rounded_alike<const B: usize>() {
    let (expected, _) = activations::<B>(Isa::Scalar, 640, 3);
    for isa in isas() {
        assert!(activations::<B>(isa, 640, 3).0 == expected, "{isa}");
    }
}

#[test]
fn activations_are_rounded_alike_by_all_instructions() {
    rounded_alike::<BYTES_8>();
    rounded_alike::<BYTES_16>();
}

fn not_finite_or_too_small<const B: usize>() {
    for isa in isas() {
        let mut values = vec![1.0; 160];
        (values[3], values[40]) = (f32::NAN, f32::INFINITY);
        values[64..96].fill(1e-42);
        values[96..128].fill(0.0);
        let mut blocks = [[0; B]; 5];
        quantize(isa, &values, &mut blocks);
        let scales = blocks.map(|block| scale(&block));
        assert!(scales[0].is_nan() && scales[1].is_nan() && scales[2..4] == [0.0, 0.0], "{scales:?}");
        assert!(scales[4] > 0.0);
    }
}

#[test]
fn blocks_that_are_not_finite_or_too_small_stay_what_they_are() {
    not_finite_or_too_small::<BYTES_8>();
    not_finite_or_too_small::<BYTES_16>();
}

/// The products of each row of activations, with a panel of all of them.
fn panel_products<const B: usize>(
    isa: Isa,
    dtype: DType,
    tiles: &[u8],
    blocks: &[&[Block<B>]],
) -> Vec<[f32; 16]> {
    let mut panel_memory = vec![f32::NAN; blocks[0].len() * panel_floats(dtype)];
    expand(isa, dtype, tiles, &mut panel_memory);
    let mut out = vec![[0.0; 16]; 2 * blocks.len()];
    let panels = [&panel_memory[..]; 2];
    panel(isa, panel_kind(dtype).unwrap(), panels, blocks, tiles, &mut out);
    out.chunks(2)
        .map(|out| {
            assert_eq!(as_bits(&out[0]), as_bits(&out[1]));
            out[0]
        })
        .collect()
}

fn products_of_what_is_stored<const B: usize>() {
    for dtype in repacked() {
        let (tiles, weights) = weights(dtype, 768);
        for isa in isas() {
            for rows in 1..=17 {
                let acts: Vec<_> = (0..rows).map(|row| activations::<B>(isa, 768, row)).collect();
                let blocks: Vec<&[Block<B>]> = acts.iter().map(|(blocks, _)| &blocks[..]).collect();
                let got = panel_products(isa, dtype, &tiles, &blocks);
                for ((_, act), got) in acts.iter().zip(&got) {
                    close(got, &weights, act, &format!("{dtype} {isa} panel"));
                }
                if !has_tile_products(isa) || rows > FEW as u64 {
                    continue;
                }
                let mut few = FewProducts::new(blocks.len());
                dot_tiles(isa, dtype, &tiles, &blocks, 3, &mut few);
                for (row, got) in got.iter().enumerate() {
                    let few = &few.row(row)[48..64];
                    assert!(as_bits(few) == as_bits(got), "{dtype} {isa} {rows}: tiles differ from panels");
                }
            }
        }
    }
}

#[test]
fn panels_and_tiles_give_the_products_of_what_is_stored_and_the_same_bits() {
    products_of_what_is_stored::<BYTES_8>();
    products_of_what_is_stored::<BYTES_16>();
}

/// The smallest and the largest weight of a type, before scales.
fn extremes(dtype: DType) -> [i8; 2] {
    let (low, high) = orlop_quant::block_layout(dtype).unwrap().weights();
    [low, high].map(|weight| i8::try_from(weight).unwrap())
}

/// The largest weights and activations there are: sums of products must not overflow or saturate anywhere.
fn extreme_products<const B: usize>() {
    for dtype in repacked() {
        let (tiles, _) = weights(dtype, 256);
        for (weight, sign) in extremes(dtype).into_iter().flat_map(|weight| [(weight, 1.0), (weight, -1.0)]) {
            let products = |isa| {
                let mut panel_memory = vec![0.0; 8 * panel_floats(dtype)];
                expand(isa, dtype, &tiles, &mut panel_memory);
                let weight = (weight as u8).wrapping_add(excess(isa, dtype));
                for block in panel_memory.chunks_mut(panel_floats(dtype)) {
                    block[..128].fill(f32::from_le_bytes([weight; 4]));
                }
                // The lower byte is as large as it gets in all but the largest.
                let mut values = [126.996 / 127.0 * sign; 256];
                values.iter_mut().step_by(32).for_each(|value| *value = sign);
                let mut blocks = [[0; B]; 8];
                quantize(isa, &values, &mut blocks);
                let (mut out, kind) = ([[0.0; 16]; 2], panel_kind(dtype).unwrap());
                panel(isa, kind, [&panel_memory; 2], &[&blocks], &[], &mut out);
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
fn sums_of_extreme_weights_of_any_type_do_not_overflow() {
    extreme_products::<BYTES_8>();
    extreme_products::<BYTES_16>();
}

#[test]
fn float_products_agree_with_their_scalar_twins() {
    for length in [1, 7, 16, 33, 64, 250, 576] {
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
                let what = format!("{isa} {dtype} {length}");
                let alone = |number: usize, row: usize| {
                    let mut out = [[0.0; 4]];
                    let row = &rows[row * bytes..][..bytes];
                    dot_rows(isa, dtype, row, bytes, &acts[number..=number], 0, &mut out);
                    out[0][0]
                };
                for count in 1..=FEW_FLOATS {
                    for taken in 1..=encoded.len() {
                        let mut out = [[0.0; 8]; FEW_FLOATS];
                        dot_rows(isa, dtype, &rows[..taken * bytes], bytes, &acts[..count], 4, &mut out);
                        for (number, out) in out[..count].iter().enumerate() {
                            close(&out[..taken], &decoded[..taken], &act(number), &what);
                            for (row, out) in out[..taken].iter().enumerate() {
                                assert_eq!(out.to_bits(), alone(number, row).to_bits(), "{what}");
                            }
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

fn all_products<const B: usize>(isa: Isa, dtype: DType, tiles: &[u8]) -> Vec<[f32; 16]> {
    let acts: Vec<_> = (0..13).map(|row| activations::<B>(isa, 768, row).0).collect();
    let blocks: Vec<&[Block<B>]> = acts.iter().map(|blocks| &blocks[..]).collect();
    panel_products(isa, dtype, tiles, &blocks)
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
            expand(isa, dtype, &tiles, &mut panel_memory);
            add(&panel_memory);
            add(all_products::<BYTES_8>(isa, dtype, &tiles).as_flattened());
            add(all_products::<BYTES_16>(isa, dtype, &tiles).as_flattened());
            // AMX gives the bits of AVX-512.
            let key = format!("{} {dtype} ", isa.vectors());
            let line = format!("{key}{hash:016x}");
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
