/* A forked process that uses and frees objects of its parent: fork MODEL.gguf */

#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <orlop.h>

#define EXPECT(condition)                                                                                   \
  if (!(condition)) {                                                                                       \
    fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                 \
    return 1;                                                                                               \
  }

static int use_and_free(orlop_model *model, orlop_sequence *sequence, orlop_session *session,
                        orlop_prepared *prepared) {
  const uint32_t tokens[2] = {1, 2};
  size_t length = 0;
  orlop_text_options options;
  orlop_error *error = NULL;

  orlop_text_options_init(&options);
  options.max_tokens = 2;
  EXPECT(orlop_generate(model, tokens, 2, &options, NULL, NULL, NULL, &error) == ORLOP_FORKED);
  EXPECT(orlop_error_message(error) != NULL);
  orlop_error_free(error);
  EXPECT(orlop_sequence_feed(sequence, tokens, 2, NULL, 0, NULL) == ORLOP_FORKED);
  EXPECT(orlop_sequence_length(sequence, &length, NULL) == ORLOP_FORKED);
  EXPECT(orlop_prepared_run(prepared, NULL) == ORLOP_FORKED);
  orlop_model_free(model);
  orlop_sequence_free(sequence);
  orlop_session_free(session);
  orlop_prepared_free(prepared);
  return 0;
}

int main(int argc, char **argv) {
  const uint64_t extents[1] = {4};
  const uint32_t tokens[2] = {1, 2};
  uint32_t x, y;
  int status = 0;
  pid_t child;
  orlop_model_options options;
  orlop_model *model = NULL;
  orlop_sequence *sequence = NULL;
  orlop_graph *graph = NULL;
  orlop_session *session = NULL;
  orlop_prepared *prepared = NULL;

  EXPECT(argc == 2);
  orlop_model_options_init(&options);
  options.threads = 2;
  options.sequences = 1;
  EXPECT(orlop_model_open(argv[1], &options, &model, NULL) == ORLOP_OK);
  EXPECT(orlop_sequence_start(model, &sequence, NULL) == ORLOP_OK);
  EXPECT(orlop_sequence_feed(sequence, tokens, 2, NULL, 0, NULL) == ORLOP_OK);
  EXPECT(orlop_graph_new(&graph, NULL) == ORLOP_OK);
  EXPECT(orlop_graph_leaf(graph, ORLOP_INPUT, "x", "f32", extents, 1, &x, NULL) == ORLOP_OK);
  EXPECT(orlop_graph_node(graph, "{\"unary\": \"relu\"}", &x, 1, &y, NULL) == ORLOP_OK);
  EXPECT(orlop_graph_output(graph, y, NULL) == ORLOP_OK);
  EXPECT(orlop_graph_build(graph, NULL) == ORLOP_OK);
  EXPECT(orlop_session_new(NULL, 2, &session, NULL) == ORLOP_OK);
  EXPECT(orlop_session_prepare(session, graph, NULL, 0, &prepared, NULL) == ORLOP_OK);

  child = fork();
  if (child == 0) {
    _exit(use_and_free(model, sequence, session, prepared));
  }
  EXPECT(child > 0 && waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT(orlop_sequence_feed(sequence, tokens, 2, NULL, 0, NULL) == ORLOP_OK);

  orlop_prepared_free(prepared);
  orlop_session_free(session);
  orlop_graph_free(graph);
  orlop_sequence_free(sequence);
  orlop_model_free(model);
  puts("done");
  return 0;
}
