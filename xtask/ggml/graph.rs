//! A graph like llama.cpp's, without a model.

use std::ptr::{null, null_mut};

use llama_cpp_sys_2::*;

/// The dimensions of SmolLM2-135M.
const LAYERS: usize = 30;
const WIDTH: i64 = 576;
const HEADS: i64 = 9;
const SHARED: i64 = 3;
const HEAD: i64 = WIDTH / HEADS;
const HIDDEN: i64 = 1536;
const VOCABULARY: i64 = 49152;
const CACHE: i64 = 2048;

/// A graph with allocated weights and unallocated tensors.
pub(crate) struct Model {
    weights: *mut ggml_context,
    buffer: ggml_backend_buffer_t,
    context: *mut ggml_context,
    pub(crate) graph: *mut ggml_cgraph,
    /// The tensors to allocate.
    open: Vec<*mut ggml_tensor>,
}

fn context() -> *mut ggml_context {
    // SAFETY: ggml allocates what it is asked for.
    unsafe { ggml_init(ggml_init_params { mem_size: 4 << 20, mem_buffer: null_mut(), no_alloc: true }) }
}

impl Model {
    pub(crate) fn new(tokens: i64) -> Model {
        let (weights, context) = (context(), context());
        // SAFETY: contexts live until the end, and are large enough for all below.
        unsafe {
            let graph = ggml_new_graph_custom(context, 4096, false);
            let weight = |a: i64, b: i64| ggml_new_tensor_2d(weights, GGML_TYPE_F16, a, b);
            let input = |dtype: ggml_type, a: i64, b: i64| {
                let made = ggml_new_tensor_2d(context, dtype, a, b);
                ggml_set_input(made);
                made
            };
            let norm = |x: *mut ggml_tensor| {
                ggml_mul(context, ggml_rms_norm(context, x, 1e-5), ggml_new_tensor_1d(weights, GGML_TYPE_F32, WIDTH))
            };
            let product = |a: i64, b: i64, x: *mut ggml_tensor| ggml_mul_mat(context, weight(a, b), x);
            let positions = input(GGML_TYPE_I32, tokens, 1);
            let rows = input(GGML_TYPE_I64, tokens, 1);
            let mask = input(GGML_TYPE_F16, CACHE, tokens);
            let mut x = ggml_get_rows(context, weight(WIDTH, VOCABULARY), input(GGML_TYPE_I32, tokens, 1));
            x = ggml_scale(context, x, 2.0);
            let rope = |x: *mut ggml_tensor, heads: i64| {
                let x = ggml_reshape_3d(context, x, HEAD, heads, tokens);
                ggml_rope_ext(context, x, positions, null_mut(), HEAD as i32, 0, 0, 1e4, 1.0, 0.0, 1.0, 0.0, 0.0)
            };
            for _ in 0..LAYERS {
                let normed = norm(x);
                let bias = ggml_new_tensor_1d(weights, GGML_TYPE_F32, WIDTH);
                let query = rope(ggml_add(context, product(WIDTH, WIDTH, normed), bias), HEADS);
                let key = rope(product(WIDTH, HEAD * SHARED, normed), SHARED);
                let value = product(WIDTH, HEAD * SHARED, normed);
                let cache = |made: *mut ggml_tensor| {
                    let cache = weight(HEAD * SHARED, CACHE);
                    let flat = ggml_reshape_2d(context, made, HEAD * SHARED, tokens);
                    ggml_build_forward_expand(graph, ggml_set_rows(context, cache, flat, rows));
                    let row = 2 * (HEAD * SHARED) as usize;
                    let all = ggml_view_3d(context, cache, HEAD, SHARED, CACHE, 2 * HEAD as usize, row, 0);
                    ggml_permute(context, all, 0, 2, 1, 3)
                };
                ggml_build_forward_expand(graph, query);
                let (key, value) = (cache(key), cache(value));
                let query = ggml_permute(context, query, 0, 2, 1, 3);
                let mixed = ggml_flash_attn_ext(context, query, key, value, mask, 0.125, 0.0, 0.0);
                let mixed = ggml_reshape_2d(context, mixed, WIDTH, tokens);
                x = ggml_add(context, product(WIDTH, WIDTH, mixed), x);
                let normed = norm(x);
                let gate = ggml_silu(context, product(WIDTH, HIDDEN, normed));
                let wide = ggml_mul(context, gate, product(WIDTH, HIDDEN, normed));
                x = ggml_add(context, product(HIDDEN, WIDTH, wide), x);
            }
            let logits = ggml_scale(context, product(WIDTH, VOCABULARY, norm(x)), 0.5);
            ggml_set_output(logits);
            ggml_build_forward_expand(graph, logits);
            let buffer = ggml_backend_alloc_ctx_tensors_from_buft(weights, ggml_backend_cpu_buffer_type());
            assert!(!buffer.is_null(), "there is no memory for weights");
            let mut open = Vec::new();
            let mut next = ggml_get_first_tensor(context);
            while !next.is_null() {
                open.push(next);
                next = ggml_get_next_tensor(context, next);
            }
            Model { weights, buffer, context, graph, open }
        }
    }

    pub(crate) fn nodes(&self) -> i32 {
        // SAFETY: the graph lives.
        unsafe { ggml_graph_n_nodes(self.graph) }
    }

    /// Resets the graph's tensors to unallocated.
    pub(crate) fn clear(&self) {
        for tensor in &self.open {
            // SAFETY: they live as long as this.
            unsafe { ((**tensor).data, (**tensor).buffer) = (null_mut(), null_mut()) };
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: nothing of them is used again.
        unsafe {
            ggml_backend_buffer_free(self.buffer);
            ggml_free(self.context);
            ggml_free(self.weights);
        }
    }
}

/// A null pointer.
pub(crate) const NOTHING: *const std::ffi::c_int = null();
