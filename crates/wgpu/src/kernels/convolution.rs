//! Convolutions, one invocation per element of the result.

use orlop_graph::Window;

use super::{Task, coordinates};
use crate::wgsl::{Kernel, Writer};

fn writer(task: &Task<'_>, window: &Window) -> Writer {
    let mut writer = Writer::new();
    writer.read("w", &task.inputs[0]).read("x", &task.inputs[1]).write("y", &task.output);
    for dim in 0..2 {
        writer.number(&format!("stride{dim}"), window.stride[dim].into());
        writer.number(&format!("padding{dim}"), window.padding[dim].into());
        writer.number(&format!("dilation{dim}"), window.dilation[dim].into());
    }
    // Positions in the padding wrap around and exceed the extents.
    writer.function(
        "fn across(position: u32, element: u32) -> u32 { return position * p.stride0 + element * p.dilation0 - p.padding0; }
fn down(position: u32, element: u32) -> u32 { return position * p.stride1 + element * p.dilation1 - p.padding1; }",
    );
    writer
}

fn each(writer: Writer, task: &Task<'_>, body: &str) -> Kernel {
    writer.each(task.output.desc.elements(), &format!("{}{body}", coordinates("y")))
}

pub(super) fn im2col(task: &Task<'_>, window: &Window, two_d: bool) -> Kernel {
    let body = if two_d {
        "  let x = across(j, i % p.w_n0);
  let y = down(k, i / p.w_n0 % p.w_n1);
  var v = 0.0;
  if (x < p.x_n0 && y < p.x_n1) { v = x_at(x_row(y, i / p.w_n0 / p.w_n1, l), x); }
  y_put(y_row(j, k, l), i, v);
"
    } else {
        "  let x = across(j, i % p.w_n0);
  var v = 0.0;
  if (x < p.x_n0) { v = x_at(x_row(i / p.w_n0, k, 0u), x); }
  y_put(y_row(j, k, l), i, v);
"
    };
    // Only the extents of the kernel are used, but it is bound like other operands.
    each(writer(task, window), task, body)
}

pub(super) fn conv_1d(task: &Task<'_>, window: &Window) -> Kernel {
    let body = "  var sum = 0.0;
  for (var c = 0u; c < p.w_n1; c++) {
    for (var n = 0u; n < p.w_n0; n++) {
      let x = across(i, n);
      if (x < p.x_n0) { sum += w_at(w_row(c, j, 0u), n) * x_at(x_row(c, k, 0u), x); }
    }
  }
  y_put(y_row(j, k, l), i, sum);
";
    each(writer(task, window), task, body)
}

pub(super) fn conv_2d(task: &Task<'_>, window: &Window) -> Kernel {
    let body = "  var sum = 0.0;
  for (var c = 0u; c < p.w_n2; c++) {
    for (var m = 0u; m < p.w_n1; m++) {
      let y = down(j, m);
      if (y >= p.x_n1) { continue; }
      for (var n = 0u; n < p.w_n0; n++) {
        let x = across(i, n);
        if (x < p.x_n0) { sum += w_at(w_row(m, c, k), n) * x_at(x_row(y, c, l), x); }
      }
    }
  }
  y_put(y_row(j, k, l), i, sum);
";
    each(writer(task, window), task, body)
}

pub(super) fn depthwise(task: &Task<'_>, window: &Window) -> Kernel {
    let body = "  var sum = 0.0;
  for (var m = 0u; m < p.w_n1; m++) {
    let y = down(j, m);
    if (y >= p.x_n1) { continue; }
    for (var n = 0u; n < p.w_n0; n++) {
      let x = across(i, n);
      if (x < p.x_n0) { sum += w_at(w_row(m, 0u, k), n) * x_at(x_row(y, k, l), x); }
    }
  }
  y_put(y_row(j, k, l), i, sum);
";
    each(writer(task, window), task, body)
}

pub(super) fn transposed_1d(task: &Task<'_>, stride: u32) -> Kernel {
    let body = "  var sum = 0.0;
  for (var n = 0u; n < p.w_n0; n++) {
    if (n > i || (i - n) % p.stride0 != 0u) { continue; }
    let x = (i - n) / p.stride0;
    if (x >= p.x_n0) { continue; }
    for (var c = 0u; c < p.w_n2; c++) { sum += w_at(w_row(j, c, 0u), n) * x_at(x_row(c, 0u, 0u), x); }
  }
  y_put(y_row(j, k, l), i, sum);
";
    each(writer(task, &Window { stride: [stride; 2], ..Window::default() }), task, body)
}

pub(super) fn transposed_2d(task: &Task<'_>, stride: u32) -> Kernel {
    let body = "  var sum = 0.0;
  for (var m = 0u; m < p.w_n1; m++) {
    if (m > j || (j - m) % p.stride1 != 0u || (j - m) / p.stride1 >= p.x_n1) { continue; }
    let y = (j - m) / p.stride1;
    for (var n = 0u; n < p.w_n0; n++) {
      if (n > i || (i - n) % p.stride0 != 0u || (i - n) / p.stride0 >= p.x_n0) { continue; }
      let x = (i - n) / p.stride0;
      for (var c = 0u; c < p.w_n3; c++) { sum += w_at(w_row(m, k, c), n) * x_at(x_row(y, c, l), x); }
    }
  }
  y_put(y_row(j, k, l), i, sum);
";
    each(writer(task, &Window { stride: [stride; 2], ..Window::default() }), task, body)
}
