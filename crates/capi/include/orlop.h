/*
 * The C interface of Orlop: language models, tensor graphs and memory plans.
 *
 * - Functions that can fail return a status, and give an error with a message if `error` is not NULL: free it with
 *   orlop_error_free. A failed call changes nothing.
 * - Objects are made by functions that return them through a pointer, and freed by the function of their name. A sequence keeps
 *   its model alive, and a prepared graph its session. NULL may be freed.
 * - An object is used by one call at a time; a second one gets ORLOP_BUSY, also from a callback of the first.
 * - Structures begin with a version: ORLOP_STRUCT_VERSION, which the function _init of options sets, too. It is checked in
 *   those that a function reads and in those that it fills, so a program and a library of another version find out.
 * - Texts are UTF-8. Pointers to arrays may be NULL where their length is 0.
 * - A forked process gets ORLOP_FORKED for models and sessions of its parent. It may free them, which frees no memory.
 */


#ifndef ORLOP_H
#define ORLOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 The version of the structures, with which they begin.
 */
#define ORLOP_STRUCT_VERSION 1

/*
 How a call ended.
 */
typedef enum orlop_status {
  /*
   It did what it should.
   */
  ORLOP_OK = 0,
  /*
   An argument is NULL, out of range, not UTF-8, or of another version.
   */
  ORLOP_BAD_ARGUMENT = 1,
  /*
   The library or a device refused; the error says why.
   */
  ORLOP_FAILED = 2,
  /*
   Another call uses the object.
   */
  ORLOP_BUSY = 3,
  /*
   The array is too small; the needed size was given.
   */
  ORLOP_TOO_SMALL = 4,
  /*
   A bug in Orlop. The object may be unusable.
   */
  ORLOP_PANIC = 5,
  /*
   The object was made by the process that this one was forked from.
   */
  ORLOP_FORKED = 6,
} orlop_status;

/*
 How a text ended.
 */
typedef enum orlop_end {
  /*
   The model ended it.
   */
  ORLOP_END_TOKEN = 0,
  /*
   As many tokens as were wanted.
   */
  ORLOP_END_LIMIT = 1,
  /*
   The context is full.
   */
  ORLOP_END_CONTEXT = 2,
  /*
   The callback stopped it.
   */
  ORLOP_END_STOPPED = 3,
} orlop_end;

/*
 What a leaf is.
 */
typedef enum orlop_leaf_kind {
  /*
   It is set before each run.
   */
  ORLOP_INPUT = 0,
  /*
   It keeps its contents between runs.
   */
  ORLOP_PERSISTENT = 1,
  /*
   It is given when the graph is prepared, and only read.
   */
  ORLOP_WEIGHT = 2,
  /*
   It is given when the graph is prepared, and nodes write it.
   */
  ORLOP_STATE = 3,
} orlop_leaf_kind;

/*
 An error with a message.
 */
typedef struct orlop_error orlop_error;

/*
 A graph: first it is built, then it never changes.
 */
typedef struct orlop_graph orlop_graph;

/*
 A model in memory.
 */
typedef struct orlop_model orlop_model;

/*
 A graph with memory on devices.
 */
typedef struct orlop_prepared orlop_prepared;

/*
 Tokens in a model's cache.
 */
typedef struct orlop_sequence orlop_sequence;

/*
 Runs graphs on devices.
 */
typedef struct orlop_session orlop_session;

/*
 How a model is planned and loaded.
 */
typedef struct orlop_model_options {
  /*
   ORLOP_STRUCT_VERSION.
   */
  uint32_t version;
  /*
   Threads of the CPU; 0: one for each core.
   */
  uint32_t threads;
  /*
   Tokens that the cache holds; 0: as many as the model was trained for, or as many as fit.
   */
  uint64_t context;
  /*
   Maximum of tokens in a run.
   */
  uint64_t batch;
  /*
   Maximum of sequences beside the one of texts.
   */
  uint64_t sequences;
  /*
   Maximum of tokens that prompt lookup drafts; 0: none.
   */
  uint64_t lookup;
  /*
   Layers on the first device; -1: the placement with the least predicted time.
   */
  int64_t layers;
  /*
   Names of devices with commas between, the most preferred first; NULL: the CPU.
   */
  const char *devices;
} orlop_model_options;

/*
 How a text is continued.
 */
typedef struct orlop_text_options {
  /*
   ORLOP_STRUCT_VERSION.
   */
  uint32_t version;
  /*
   Likeliest tokens that are kept; 0: all.
   */
  uint32_t top_k;
  /*
   Maximum of new tokens; 0: no limit.
   */
  uint64_t max_tokens;
  /*
   Seed of the sampler.
   */
  uint64_t seed;
  /*
   0 takes the likeliest token; below 0: temperature, top_k, top_p and min_p are what the model file recommends.
   */
  float temperature;
  /*
   Likeliest tokens that together have this probability are kept; 1: all.
   */
  float top_p;
  /*
   Minimum probability relative to the likeliest token; 0: none.
   */
  float min_p;
  /*
   Penalty for repeated tokens; 1: none.
   */
  float repeat_penalty;
} orlop_text_options;

/*
 Facts of a loaded model.
 */
typedef struct orlop_model_info {
  /*
   ORLOP_STRUCT_VERSION.
   */
  uint32_t version;
  /*
   The token that begins a text; -1: none.
   */
  int32_t bos;
  /*
   The token that ends a text; -1: none.
   */
  int32_t eos;
  /*
   Tokens that the cache holds.
   */
  uint64_t context;
  /*
   Tokens of the vocabulary.
   */
  uint64_t vocabulary;
  /*
   Bytes on all devices.
   */
  uint64_t bytes;
} orlop_model_info;

/*
 Sees a piece of whole characters; returns false to stop. `text` does not end with a zero.
 */
typedef bool (*orlop_text_callback)(const char *text, size_t length, void *user_data);

/*
 A buffer to place.
 */
typedef struct orlop_buffer {
  /*
   ORLOP_STRUCT_VERSION.
   */
  uint32_t version;
  /*
   Bytes.
   */
  uint64_t size;
  /*
   Alignment of its offset, a power of two.
   */
  uint64_t align;
  /*
   The first step at which it is live.
   */
  uint64_t lower;
  /*
   The step after the last one at which it is live.
   */
  uint64_t upper;
} orlop_buffer;

/*
 How good a plan is.
 */
typedef struct orlop_plan_summary {
  /*
   ORLOP_STRUCT_VERSION.
   */
  uint32_t version;
  /*
   The peak is proven minimal.
   */
  bool optimal;
  /*
   Bytes of the arena.
   */
  uint64_t peak;
  /*
   No plan is smaller.
   */
  uint64_t bound;
} orlop_plan_summary;

/*
 What a model takes.
 */
typedef struct orlop_model_plan {
  /*
   ORLOP_STRUCT_VERSION.
   */
  uint32_t version;
  /*
   It fits on every device.
   */
  bool fits;
  /*
   Tokens that the cache holds.
   */
  uint64_t context;
  /*
   The largest context that fits; 0 if none does.
   */
  uint64_t largest_context;
  /*
   Bytes on all devices: weights in the file's layout, weights in a device's layout, keys and values, arenas.
   */
  uint64_t weights;
  /*
   As weights.
   */
  uint64_t repacked;
  /*
   As weights.
   */
  uint64_t kv;
  /*
   As weights.
   */
  uint64_t compute;
} orlop_model_plan;

/*
 Contents of a weight or state.
 */
typedef struct orlop_external {
  /*
   ORLOP_STRUCT_VERSION.
   */
  uint32_t version;
  /*
   Its name.
   */
  const char *name;
  /*
   Its contents, which are copied.
   */
  const uint8_t *bytes;
  /*
   How many bytes.
   */
  size_t length;
} orlop_external;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The message of an error, which lives as long as the error; NULL for NULL.

 # Safety
 `error` is NULL or comes from a call, and was not freed.
 */
const char *orlop_error_message(const struct orlop_error *error);

/*
 Frees an error.

 # Safety
 `error` is NULL or comes from a call, and is not used again.
 */
void orlop_error_free(struct orlop_error *error);

/*
 The version of the library, such as "0.1.0".
 */
const char *orlop_version(void);

/*
 Sets options to their defaults.

 # Safety
 `options` is NULL or may be written.
 */
void orlop_model_options_init(struct orlop_model_options *options);

/*
 Sets options to their defaults: what the model file recommends.

 # Safety
 `options` is NULL or may be written.
 */
void orlop_text_options_init(struct orlop_text_options *options);

/*
 Opens a GGUF file, plans the model and loads it.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_model_open(const char *path,
                                   const struct orlop_model_options *options,
                                   struct orlop_model **model,
                                   struct orlop_error **error);

/*
 Frees a model. Its memory is free when its last sequence is, too.

 # Safety
 As the rules of the header say.
 */
void orlop_model_free(struct orlop_model *model);

/*
 Facts of a model. `info` says which version is wanted.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_model_facts(const struct orlop_model *model,
                                    struct orlop_model_info *info,
                                    struct orlop_error **error);

/*
 The tokens of a text of `length` bytes. `prompt` adds what a prompt begins and ends with; special tokens are parsed. `count`
 gets how many there are, also if `capacity` is smaller.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_tokenize(const struct orlop_model *model,
                                 const char *text,
                                 size_t length,
                                 bool prompt,
                                 uint32_t *tokens,
                                 size_t capacity,
                                 size_t *count,
                                 struct orlop_error **error);

/*
 The bytes of tokens, without a zero at the end. `length` gets how many there are, also if `capacity` is smaller.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_detokenize(const struct orlop_model *model,
                                   const uint32_t *tokens,
                                   size_t count,
                                   char *text,
                                   size_t capacity,
                                   size_t *length,
                                   struct orlop_error **error);

/*
 Continues tokens. `callback` sees every piece of the text; what the cache holds of the last prompt and its text is not
 processed again. `end` gets how the text ended, unless it is NULL.

 # Safety
 As the rules of the header say; `callback` may be called with `user_data`.
 */
enum orlop_status orlop_generate(const struct orlop_model *model,
                                 const uint32_t *tokens,
                                 size_t count,
                                 const struct orlop_text_options *options,
                                 orlop_text_callback callback,
                                 void *user_data,
                                 enum orlop_end *end,
                                 struct orlop_error **error);

/*
 An empty sequence.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_sequence_start(const struct orlop_model *model,
                                       struct orlop_sequence **sequence,
                                       struct orlop_error **error);

/*
 A sequence that begins with the first `length` tokens of another one. No token is processed again.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_sequence_fork(const struct orlop_sequence *sequence,
                                      size_t length,
                                      struct orlop_sequence **fork,
                                      struct orlop_error **error);

/*
 Ends a sequence, and frees its place in the cache.

 # Safety
 As the rules of the header say.
 */
void orlop_sequence_free(struct orlop_sequence *sequence);

/*
 How many tokens a sequence has.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_sequence_length(const struct orlop_sequence *sequence,
                                        size_t *length,
                                        struct orlop_error **error);

/*
 Adds tokens to a sequence. `logits` gets those behind the last one, one for each token of the vocabulary, unless it is NULL.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_sequence_feed(const struct orlop_sequence *sequence,
                                      const uint32_t *tokens,
                                      size_t count,
                                      float *logits,
                                      size_t capacity,
                                      struct orlop_error **error);

/*
 Places buffers in as little memory as it finds. `offsets` gets one offset for each of `count` buffers; `capacity` is the most
 bytes, or 0. `summary` is NULL, or says which version is wanted.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_plan_buffers(const struct orlop_buffer *buffers,
                                     size_t count,
                                     uint64_t capacity,
                                     uint64_t *offsets,
                                     struct orlop_plan_summary *summary,
                                     struct orlop_error **error);

/*
 What a model file takes with these options, before anything is allocated. `plan` says which version is wanted.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_plan_model(const char *path,
                                   const struct orlop_model_options *options,
                                   struct orlop_model_plan *plan,
                                   struct orlop_error **error);

/*
 An empty graph.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_graph_new(struct orlop_graph **graph, struct orlop_error **error);

/*
 Frees a graph. What was prepared stays.

 # Safety
 As the rules of the header say.
 */
void orlop_graph_free(struct orlop_graph *graph);

/*
 Adds a leaf of an element type such as "f32". The first of up to four extents is the one that is contiguous in memory.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_graph_leaf(const struct orlop_graph *graph,
                                   uint32_t kind,
                                   const char *name,
                                   const char *dtype,
                                   const uint64_t *extents,
                                   size_t dimensions,
                                   uint32_t *tensor,
                                   struct orlop_error **error);

/*
 Adds a node. `op` is an op in JSON, such as `"add"` (with the quotes) or `{"scale": {"scale": 2, "bias": 0}}`. What is wrong
 with it says orlop_graph_build.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_graph_node(const struct orlop_graph *graph,
                                   const char *op,
                                   const uint32_t *inputs,
                                   size_t count,
                                   uint32_t *tensor,
                                   struct orlop_error **error);

/*
 Declares an output.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_graph_output(const struct orlop_graph *graph,
                                     uint32_t tensor,
                                     struct orlop_error **error);

/*
 Ends building, and reports the first call that was refused.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_graph_build(const struct orlop_graph *graph, struct orlop_error **error);

/*
 A session over devices: their names with commas between, the most preferred first; NULL for the CPU. `threads` is for the
 CPU; 0: one for each core.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_session_new(const char *names,
                                    uint32_t threads,
                                    struct orlop_session **session,
                                    struct orlop_error **error);

/*
 Frees a session. Its memory is free when its last prepared graph is, too.

 # Safety
 As the rules of the header say.
 */
void orlop_session_free(struct orlop_session *session);

/*
 Places and plans a graph that was built, and makes room for it. Weights and states lie on the first device.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_session_prepare(const struct orlop_session *session,
                                        const struct orlop_graph *graph,
                                        const struct orlop_external *externals,
                                        size_t count,
                                        struct orlop_prepared **prepared,
                                        struct orlop_error **error);

/*
 Frees a prepared graph.

 # Safety
 As the rules of the header say.
 */
void orlop_prepared_free(struct orlop_prepared *prepared);

/*
 Sets an input or a persistent leaf, all of it.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_prepared_set(const struct orlop_prepared *prepared,
                                     uint32_t tensor,
                                     const uint8_t *bytes,
                                     size_t length,
                                     struct orlop_error **error);

/*
 Runs a prepared graph.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_prepared_run(const struct orlop_prepared *prepared, struct orlop_error **error);

/*
 Reads an output of the last run, a persistent leaf or a state, all of it.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_prepared_get(const struct orlop_prepared *prepared,
                                     uint32_t tensor,
                                     uint8_t *bytes,
                                     size_t length,
                                     struct orlop_error **error);

/*
 Where each node runs and why, as a table. `length` gets its bytes, also if `capacity` is smaller.

 # Safety
 As the rules of the header say.
 */
enum orlop_status orlop_prepared_placement(const struct orlop_prepared *prepared,
                                           char *text,
                                           size_t capacity,
                                           size_t *length,
                                           struct orlop_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ORLOP_H */
