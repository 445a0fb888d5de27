/* Threads that use the same model, each with a sequence of its own: threads MODEL.gguf */

#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>

#include <orlop.h>

enum { THREADS = 4, FEEDS = 20 };

static orlop_model *model;

/* Feeds a sequence until as many calls as wanted found the model free; NULL if nothing else happened. */
static void *feed(void *unused) {
  const uint32_t tokens[1] = {1};
  orlop_sequence *sequence = NULL;
  orlop_status status;
  size_t length = 0;

  (void)unused;
  do {
    status = orlop_sequence_start(model, &sequence, NULL);
  } while (status == ORLOP_BUSY);
  if (status != ORLOP_OK) {
    return &model;
  }
  for (int fed = 0; fed < FEEDS;) {
    status = orlop_sequence_feed(sequence, tokens, 1, NULL, 0, NULL);
    if (status != ORLOP_OK && status != ORLOP_BUSY) {
      return &model;
    }
    fed += status == ORLOP_OK;
  }
  do {
    status = orlop_sequence_length(sequence, &length, NULL);
  } while (status == ORLOP_BUSY);
  orlop_sequence_free(sequence);
  return status == ORLOP_OK && length == FEEDS ? NULL : &model;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  orlop_model_options options;
  orlop_sequence *sequences[THREADS];
  int failed = 0;

  orlop_model_options_init(&options);
  options.threads = 2;
  options.sequences = THREADS;
  if (argc != 2 || orlop_model_open(argv[1], &options, &model, NULL) != ORLOP_OK) {
    return 1;
  }
  for (int i = 0; i < THREADS; i++) {
    if (pthread_create(&threads[i], NULL, feed, NULL) != 0) {
      return 1;
    }
  }
  for (int i = 0; i < THREADS; i++) {
    void *result = NULL;
    pthread_join(threads[i], &result);
    failed += result != NULL;
  }
  /* Those that were freed while another thread used the model are gone, too. */
  for (int i = 0; i < THREADS; i++) {
    failed += orlop_sequence_start(model, &sequences[i], NULL) != ORLOP_OK;
  }
  for (int i = 0; i < THREADS && failed == 0; i++) {
    orlop_sequence_free(sequences[i]);
  }
  orlop_model_free(model);
  puts(failed == 0 ? "done" : "failed");
  return failed;
}
