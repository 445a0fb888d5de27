//! Values of the `image` ops, computed by hand.

use orlop_graph::{Interpolation, Op, Pool, PoolKind};

use crate::support::{assert_close, f32, result};

fn pool(kind: PoolKind, kernel: [u32; 2], stride: [u32; 2], padding: [u32; 2]) -> Pool {
    Pool { kind, kernel, stride, padding }
}

#[test]
fn the_mean_divides_by_the_whole_window() {
    let x = f32(&[3], &[1.0, 2.0, 3.0]);
    let mean = pool(PoolKind::Mean, [2, 1], [2, 1], [1, 0]);
    assert_eq!(result(Op::Pool1d(mean), &[x]), [0.5, 2.5]);
}

#[test]
fn padding_is_never_the_largest() {
    let x = f32(&[3], &[-1.0, -2.0, -3.0]);
    let max = pool(PoolKind::Max, [2, 1], [2, 1], [1, 0]);
    assert_eq!(result(Op::Pool1d(max), &[x]), [-1.0, -2.0]);
    // The first window lies wholly in the padding.
    let max = pool(PoolKind::Max, [2, 1], [2, 1], [2, 0]);
    assert_eq!(result(Op::Pool1d(max), &[x]), [f64::NEG_INFINITY, -1.0, -3.0]);
    let mean = pool(PoolKind::Mean, [2, 1], [2, 1], [2, 0]);
    assert_eq!(result(Op::Pool1d(mean), &[x]), [0.0, -1.5, -1.5]);
}

#[test]
fn windows_of_two_dimensions() {
    let x = f32(&[3, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let max = pool(PoolKind::Max, [2, 2], [1, 1], [0, 0]);
    assert_eq!(result(Op::Pool2d(max), &[x]), [5.0, 6.0, 8.0, 9.0]);
    let mean = pool(PoolKind::Mean, [2, 2], [2, 2], [1, 1]);
    assert_eq!(result(Op::Pool2d(mean), &[x]), [0.25, 1.25, 2.75, 7.0]);
    let wide = pool(PoolKind::Mean, [3, 1], [1, 2], [0, 0]);
    assert_eq!(result(Op::Pool2d(wide), &[x]), [2.0, 8.0]);
}

#[test]
fn upscaling_to_the_nearest_repeats_elements() {
    let upscale = |extents| Op::Upscale { extents, mode: Interpolation::Nearest };
    let x = f32(&[2, 1], &[1.0, 2.0]);
    assert_eq!(result(upscale([4, 1, 1, 1]), &[x]), [1.0, 1.0, 2.0, 2.0]);
    assert_eq!(result(upscale([3, 2, 1, 1]), &[x]), [1.0, 1.0, 2.0, 1.0, 1.0, 2.0]);
    assert_eq!(result(upscale([2, 1, 2, 1]), &[x]), [1.0, 2.0, 1.0, 2.0]);
    let x = f32(&[4], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(result(upscale([2, 1, 1, 1]), &[x]), [1.0, 3.0]);
}

#[test]
fn bilinear_upscaling_matches_centres() {
    let upscale = |extents| Op::Upscale { extents, mode: Interpolation::Bilinear };
    let x = f32(&[2], &[1.0, 2.0]);
    assert_close(&result(upscale([4, 1, 1, 1]), &[x]), &[1.0, 1.25, 1.75, 2.0]);
    let x = f32(&[2, 2], &[0.0, 4.0, 8.0, 12.0]);
    let expected = [0.0, 2.0, 4.0, 4.0, 6.0, 8.0, 8.0, 10.0, 12.0];
    assert_close(&result(upscale([3, 3, 1, 1]), &[x]), &expected);
    // Down by two: the middle between neighbours.
    let x = f32(&[4], &[1.0, 2.0, 3.0, 4.0]);
    assert_close(&result(upscale([2, 1, 1, 1]), &[x]), &[1.5, 3.5]);
    // A single element is everywhere.
    assert_close(&result(upscale([3, 1, 1, 1]), &[f32(&[1], &[7.0])]), &[7.0, 7.0, 7.0]);
}

#[test]
fn timesteps_become_cosines_and_then_sines() {
    let steps = f32(&[2], &[2.0, 0.0]);
    let y = result(Op::TimestepEmbedding { dim: 4, max_period: 10_000 }, &[steps]);
    assert_close(&y, &[-0.416146837, 0.999800007, 0.909297427, 0.019998667, 1.0, 1.0, 0.0, 0.0]);
    let y = result(Op::TimestepEmbedding { dim: 3, max_period: 10_000 }, &[f32(&[1], &[2.0])]);
    assert_close(&y, &[-0.416146837, 0.909297427, 0.0]);
}
