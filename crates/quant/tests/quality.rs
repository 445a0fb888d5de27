//! How close encoding comes to the values, with ggml's own quantisation as the yardstick.

mod support;

use orlop_graph::DType;
use support::{block_types, read_bytes, read_f32, round_trip};

fn rmse(values: &[f32], back: &[f32]) -> f64 {
    let squares: f64 = values.iter().zip(back).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (squares / values.len() as f64).sqrt()
}

#[test]
fn errors_on_normal_rows_stay_within_five_percent_of_ggml() {
    let values = read_f32("normal.f32");
    let text = String::from_utf8(read_bytes("ggml-rmse.txt")).unwrap();
    let mut seen = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, theirs) = line.split_once(' ').unwrap();
        let dtype = DType::from_name(name).unwrap();
        let theirs: f64 = theirs.parse().unwrap();
        let ours = rmse(&values, &round_trip(dtype, &values));
        println!("{name:8} {ours:.6} ggml {theirs:.6} ratio {:.4}", ours / theirs);
        assert!(ours <= 1.05 * theirs, "{name}: {ours} against {theirs}");
        seen.push(dtype);
    }
    for dtype in block_types().filter(|dtype| *dtype != DType::Q8_1) {
        assert!(seen.contains(&dtype), "no yardstick for {dtype}");
    }
}

#[test]
fn relative_error_does_not_depend_on_magnitude() {
    let values = &read_f32("normal.f32")[..1024];
    for dtype in block_types() {
        let unit = rmse(values, &round_trip(dtype, values));
        for scale in [1e-2f32, 0.37, 250.0] {
            let scaled: Vec<f32> = values.iter().map(|value| value * scale).collect();
            let error = rmse(&scaled, &round_trip(dtype, &scaled)) / f64::from(scale);
            // MXFP4 scales are powers of two, so there the error moves with the magnitude.
            let slack = if matches!(dtype, DType::MXFP4 | DType::NVFP4) { 1.5 } else { 1.1 };
            assert!(error < unit * slack, "{dtype} at {scale}: {error} against {unit}");
        }
    }
}
