//! Values of the `rows` ops, computed by hand.

use orlop_backend::DeviceError;
use orlop_graph::{DType, Op};
use orlop_testkit::{
    Elements, Interpreter, OpFailure, Packed, RowWrite, encode_elements, i32_bytes, i64_bytes, set_rows,
};

use crate::support::{Bench, f32, i32, result, try_result};

#[test]
fn get_rows_picks_rows_in_any_order() {
    let table = f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let y = result(Op::GetRows, &[table, i32(&[3], &[2.0, 0.0, 2.0])]);
    assert_eq!(y, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
}

#[test]
fn get_rows_has_a_table_for_each_outer_index() {
    let table = f32(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(result(Op::GetRows, &[table, i32(&[1, 2], &[1.0, 0.0])]), [2.0, 3.0]);
}

#[test]
fn get_rows_keeps_integers_and_decodes_blocks() {
    let table = i32(&[1, 2], &[16777217.0, 3.0]);
    assert_eq!(result(Op::GetRows, &[table, i32(&[1], &[0.0])]), [16777217.0]);
    let mut rows = [[0.0; 32]; 2];
    rows[1][0] = 127.0;
    rows[1][31] = -5.0;
    let table = (DType::Q8_0, &[32, 2][..], &rows.concat()[..]);
    assert_eq!(result(Op::GetRows, &[table, i32(&[1], &[1.0])]), rows[1]);
}

#[test]
fn get_rows_refuses_rows_that_are_not_there() {
    let table = f32(&[1, 3], &[1.0, 2.0, 3.0]);
    for index in [-1, 3] {
        let error = try_result(Op::GetRows, &[table, i32(&[1], &[f64::from(index)])]).unwrap_err();
        let (op, tensor) = ("get_rows".to_owned(), "y".to_owned());
        assert_eq!(error, DeviceError::BadIndex { op, tensor, index: index.into(), rows: 3 });
    }
}

#[test]
fn set_rows_converts_and_skips() {
    let mut bench = Bench::new();
    let cache = bench.leaf(DType::F16, &[2, 4], &[9.0; 8]);
    let rows = bench.f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 0.1]);
    let at = bench.leaf(DType::I64, &[3], &[3.0, -1.0, 0.0]);
    let y = bench.b.set_rows(cache, rows, at);
    let outputs = bench.run().unwrap();
    let expected = [5.0, 0.099_975_586, 9.0, 9.0, 9.0, 9.0, 1.0, 2.0];
    assert_eq!(outputs.f32s(cache).unwrap(), expected);
    assert_eq!(outputs.f32s(y).unwrap(), expected);
}

#[test]
fn set_rows_writes_through_views_and_touches_nothing_else() {
    let mut bench = Bench::new();
    let cache = bench.f32(&[3, 2], &[0.0; 6]);
    // Columns 1 and 2 of the cache.
    let columns = bench.b.view(cache, [2, 2, 1, 1], [4, 12, 24, 24], 4);
    let rows = bench.f32(&[2, 1], &[7.0, 8.0]);
    let at = bench.i32(&[1], &[1.0]);
    bench.b.set_rows(columns, rows, at);
    assert_eq!(bench.read(cache), [0.0, 0.0, 0.0, 0.0, 7.0, 8.0]);
}

#[test]
fn set_rows_writes_into_a_transposed_cache() {
    let mut bench = Bench::new();
    let cache = bench.f32(&[3, 2], &[0.0; 6]);
    let transposed = bench.b.transpose(cache);
    let rows = bench.f32(&[2, 1], &[7.0, 8.0]);
    let at = bench.i32(&[1], &[2.0]);
    bench.b.set_rows(transposed, rows, at);
    assert_eq!(bench.read(cache), [0.0, 0.0, 7.0, 0.0, 0.0, 8.0]);
}

#[test]
fn set_rows_repeats_indices_over_outer_dimensions() {
    let mut bench = Bench::new();
    let cache = bench.f32(&[1, 2, 2], &[0.0; 4]);
    let rows = bench.f32(&[1, 1, 2], &[5.0, 6.0]);
    let at = bench.i32(&[1, 1], &[1.0]);
    bench.b.set_rows(cache, rows, at);
    assert_eq!(bench.read(cache), [0.0, 5.0, 0.0, 6.0]);
}

#[test]
fn set_rows_quantises_whole_rows() {
    let mut row = [0.0; 32];
    row[5] = 127.0;
    let mut bench = Bench::new();
    let cache = bench.leaf(DType::Q8_0, &[32, 2], &[0.0; 64]);
    let rows = bench.f32(&[32, 1], &row);
    let at = bench.i32(&[1], &[1.0]);
    bench.b.set_rows(cache, rows, at);
    assert_eq!(bench.read(cache), [[0.0; 32], row].concat());
}

#[test]
fn set_rows_writes_nothing_if_any_index_is_wrong() {
    let mut bench = Bench::new();
    let cache = bench.f32(&[1, 2], &[1.0, 2.0]);
    let rows = bench.f32(&[1, 2], &[7.0, 8.0]);
    let at = bench.leaf(DType::I64, &[2], &[0.0, 2.0]);
    let y = bench.b.set_rows(cache, rows, at);
    bench.b.name(y, "cache");
    let (graph, feeds) = bench.finish();
    let mut run = Interpreter::new(&graph).unwrap();
    for (leaf, bytes) in &feeds {
        run.set(*leaf, bytes).unwrap();
    }
    let (op, tensor) = ("set_rows".to_owned(), "cache".to_owned());
    assert_eq!(run.run(), Err(DeviceError::BadIndex { op, tensor, index: 2, rows: 2 }));
    assert_eq!(run.f32s(cache).unwrap(), [1.0, 2.0]);
    run.set(at, &i64_bytes(&[-2, 0])).unwrap();
    assert!(matches!(run.run(), Err(DeviceError::BadIndex { index: -2, .. })));
    assert_eq!(run.f32s(cache).unwrap(), [1.0, 2.0]);
}

#[test]
fn set_rows_as_a_function_says_what_it_writes() {
    let desc = |dtype, extents: &[u64]| orlop_graph::TensorDesc::contiguous(dtype, extents).unwrap();
    let rows = Elements::new(desc(DType::F32, &[1, 2]), vec![1.0, 2.0]).unwrap();
    let at = |indices: &[i32]| Packed::new(desc(DType::I32, &[2]), i32_bytes(indices)).unwrap();
    let cache = desc(DType::F16, &[1, 8]);
    let expected = [
        RowWrite { offset: 14, bytes: encode_elements(DType::F16, &[1.0]).unwrap() },
        RowWrite { offset: 6, bytes: encode_elements(DType::F16, &[2.0]).unwrap() },
    ];
    assert_eq!(set_rows(&cache, &rows, &at(&[7, 3])).unwrap(), expected);
    let wrong = OpFailure::BadIndex { index: 8, rows: 8 };
    assert_eq!(set_rows(&cache, &rows, &at(&[0, 8])), Err(wrong));
}
