/* The scheduler: y = x * x + x, with y assigned to the second of two backends. */
#include <stdio.h>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

int main(void) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 100);
    ggml_set_input(x);
    struct ggml_tensor *y = ggml_add(ctx, ggml_mul(ctx, x, x), x);
    ggml_set_output(y);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, y);
    ggml_backend_t backends[2] = {ggml_backend_cpu_init(), ggml_backend_cpu_init()};
    ggml_backend_t cpu = backends[1];
    float values[100];
    for (int i = 0; i < 100; i++) values[i] = (float)i;
    void *data = values;
#include "3.inc"
    printf("%d splits, y[9] = %g\n", ggml_backend_sched_get_n_splits(sched), values[9]);
    return ggml_backend_sched_get_tensor_backend(sched, y) == NULL || values[9] != 90;
}
