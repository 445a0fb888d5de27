/* Buffers and copies: what is set in a tensor is copied to another and read there. */
#include <stdio.h>
#include <string.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

int main(void) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 100);
    struct ggml_tensor *b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 100);
    ggml_backend_buffer_type_t buft = ggml_backend_cpu_buffer_type();
    float values[100], given[100];
    for (int i = 0; i < 100; i++) given[i] = values[i] = (float)i;
    void *data = values;
#include "2.inc"
    float copied[100];
    ggml_backend_tensor_get(b, copied, 0, sizeof copied);
    printf("%zu bytes, b[9] = %g\n", ggml_backend_buffer_get_size(buffer), copied[9]);
    return memcmp(values, given, sizeof given) != 0 || memcmp(copied, given, sizeof given) != 0;
}
