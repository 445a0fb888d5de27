/* Measure and allocate, with ggml of September 2023: y = x * x + x. */
#include <stdio.h>
#include <stdlib.h>

#include "ggml-alloc.h"
#include "ggml.h"

static struct ggml_tensor *x, *y;

static struct ggml_cgraph *build_graph(void) {
    static char room[1 << 20];
    struct ggml_context *ctx =
        ggml_init((struct ggml_init_params){.mem_size = sizeof room, .mem_buffer = room, .no_alloc = true});
    x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 100);
    y = ggml_add(ctx, ggml_mul(ctx, x, x), x);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, y);
    return graph;
}

int main(void) {
#include "0.inc"
    struct ggml_cgraph *graph = build_graph();
    ggml_allocr_free(alloc);
    alloc = ggml_allocr_new(memory, size + 32, 32);
    ggml_allocr_alloc_graph(alloc, graph);
    for (int i = 0; i < 100; i++) ((float *)x->data)[i] = (float)i;
    struct ggml_context *work = ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
    ggml_graph_compute_with_ctx(work, graph, 1);
    printf("%zu bytes, y[9] = %g\n", size, ((float *)y->data)[9]);
    return size < 400 || ((float *)y->data)[9] != 90;
}
