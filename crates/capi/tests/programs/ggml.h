/* What the excerpts of "Coming from ggml" call, as ggml declares it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

struct ggml_allocr;
struct ggml_cgraph;
struct ggml_context;
struct ggml_tensor;
typedef struct ggml_backend *ggml_backend_t;
typedef struct ggml_backend_buffer *ggml_backend_buffer_t;
typedef struct ggml_backend_buffer_type *ggml_backend_buffer_type_t;
typedef struct ggml_backend_sched *ggml_backend_sched_t;
typedef struct ggml_gallocr *ggml_gallocr_t;
enum ggml_status { GGML_STATUS_SUCCESS = 0 };

size_t ggml_nbytes(const struct ggml_tensor *tensor);

struct ggml_allocr *ggml_allocr_new(void *data, size_t size, size_t alignment);
struct ggml_allocr *ggml_allocr_new_measure(size_t alignment);
void ggml_allocr_free(struct ggml_allocr *alloc);
size_t ggml_allocr_alloc_graph(struct ggml_allocr *alloc, struct ggml_cgraph *graph);

ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t buft);
bool ggml_gallocr_reserve(ggml_gallocr_t galloc, struct ggml_cgraph *graph);
bool ggml_gallocr_alloc_graph(ggml_gallocr_t galloc, struct ggml_cgraph *graph);
size_t ggml_gallocr_get_buffer_size(ggml_gallocr_t galloc, int buffer_id);

ggml_backend_buffer_type_t ggml_backend_cpu_buffer_type(void);
ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors_from_buft(struct ggml_context *ctx,
                                                               ggml_backend_buffer_type_t buft);
void ggml_backend_tensor_copy(struct ggml_tensor *src, struct ggml_tensor *dst);
void ggml_backend_tensor_get(const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
void ggml_backend_tensor_set(struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);

ggml_backend_sched_t ggml_backend_sched_new(ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts,
                                            int n_backends, size_t graph_size, bool parallel, bool op_offload);
bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, struct ggml_cgraph *graph);
enum ggml_status ggml_backend_sched_graph_compute(ggml_backend_sched_t sched, struct ggml_cgraph *graph);
void ggml_backend_sched_set_tensor_backend(ggml_backend_sched_t sched, struct ggml_tensor *node,
                                           ggml_backend_t backend);
