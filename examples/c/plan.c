/* Plans three buffers, and runs a graph: y = relu(w x). */

#include <stdio.h>

#include <orlop.h>

static int fail(orlop_error *error) {
  fprintf(stderr, "%s\n", orlop_error_message(error));
  orlop_error_free(error);
  return 1;
}

static int plan(void) {
  const orlop_buffer buffers[3] = {{ORLOP_STRUCT_VERSION, 4096, 64, 0, 2},
                                   {ORLOP_STRUCT_VERSION, 1000, 64, 1, 3},
                                   {ORLOP_STRUCT_VERSION, 4096, 64, 2, 4}};
  uint64_t offsets[3];
  orlop_plan_summary summary = {.version = ORLOP_STRUCT_VERSION};
  orlop_error *error = NULL;

  if (orlop_plan_buffers(buffers, 3, 0, offsets, &summary, &error) != ORLOP_OK) {
    return fail(error);
  }
  printf("peak %llu of at least %llu; the first and the last buffer share: %s\n",
         (unsigned long long)summary.peak, (unsigned long long)summary.bound,
         offsets[0] == offsets[2] ? "yes" : "no");
  return 0;
}

static int run(void) {
  const uint64_t columns[1] = {2}, matrix[2] = {2, 3};
  const float weights[6] = {1, 2, -1, 1, 0.5f, -4}, input[2] = {3, 1};
  const orlop_external external = {ORLOP_STRUCT_VERSION, "w", (const uint8_t *)weights, sizeof weights};
  float output[3];
  uint32_t x, w, y, operands[2];
  orlop_graph *graph = NULL;
  orlop_session *session = NULL;
  orlop_prepared *prepared = NULL;
  orlop_error *error = NULL;
  int result = 0;

  if (orlop_graph_new(&graph, &error) != ORLOP_OK ||
      orlop_graph_leaf(graph, ORLOP_INPUT, "x", "f32", columns, 1, &x, &error) != ORLOP_OK ||
      orlop_graph_leaf(graph, ORLOP_WEIGHT, "w", "f32", matrix, 2, &w, &error) != ORLOP_OK) {
    result = fail(error);
    goto end;
  }
  operands[0] = w;
  operands[1] = x;
  if (orlop_graph_node(graph, "\"mul_mat\"", operands, 2, &y, &error) != ORLOP_OK ||
      orlop_graph_node(graph, "{\"unary\": \"relu\"}", &y, 1, &y, &error) != ORLOP_OK ||
      orlop_graph_output(graph, y, &error) != ORLOP_OK || orlop_graph_build(graph, &error) != ORLOP_OK ||
      orlop_session_new("cpu", 1, &session, &error) != ORLOP_OK ||
      orlop_session_prepare(session, graph, &external, 1, &prepared, &error) != ORLOP_OK ||
      orlop_prepared_set(prepared, x, (const uint8_t *)input, sizeof input, &error) != ORLOP_OK ||
      orlop_prepared_run(prepared, &error) != ORLOP_OK ||
      orlop_prepared_get(prepared, y, (uint8_t *)output, sizeof output, &error) != ORLOP_OK) {
    result = fail(error);
    goto end;
  }
  printf("relu(w x) = %g %g %g\n", output[0], output[1], output[2]);
end:
  orlop_prepared_free(prepared);
  orlop_session_free(session);
  orlop_graph_free(graph);
  return result;
}

int main(void) { return plan() || run(); }
