/* Graph allocation: y = x * x + x, of 512 tokens and then of 8. */
#include <stdio.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

static struct ggml_tensor *x, *y;
static struct ggml_cgraph *built;

static struct ggml_cgraph *build_graph(int tokens) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 16, tokens);
    ggml_set_input(x);
    y = ggml_add(ctx, ggml_mul(ctx, x, x), x);
    built = ggml_new_graph(ctx);
    ggml_build_forward_expand(built, y);
    return built;
}

int main(void) {
#include "1.inc"
    float values[16 * 8];
    for (int i = 0; i < 16 * 8; i++) values[i] = (float)i;
    ggml_backend_tensor_set(x, values, 0, sizeof values);
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_graph_compute(cpu, built);
    ggml_backend_tensor_get(y, values, 0, sizeof values);
    printf("%zu bytes, y[9] = %g\n", size, values[9]);
    return size < 2 * 16 * 512 * sizeof(float) || values[9] != 90;
}
