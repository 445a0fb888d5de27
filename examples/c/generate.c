/* Continues a prompt with a model: generate MODEL.gguf "Once upon a time" [TOKENS] */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <orlop.h>

static int fail(const char *what, orlop_error *error) {
  fprintf(stderr, "%s: %s\n", what, orlop_error_message(error));
  orlop_error_free(error);
  return 1;
}

static bool print(const char *text, size_t length, void *count) {
  *(size_t *)count += length;
  fwrite(text, 1, length, stdout);
  return fflush(stdout) == 0;
}

int main(int argc, char **argv) {
  orlop_error *error = NULL;
  orlop_model *model = NULL;
  orlop_model_options options;
  orlop_model_info info = {.version = ORLOP_STRUCT_VERSION};
  orlop_text_options text;
  orlop_end end;
  uint32_t tokens[512];
  size_t count = 0, bytes = 0;

  if (argc < 3) {
    fprintf(stderr, "usage: %s MODEL.gguf PROMPT [TOKENS]\n", argv[0]);
    return 2;
  }
  orlop_model_options_init(&options);
  options.context = 256;
  if (orlop_model_open(argv[1], &options, &model, &error) != ORLOP_OK) {
    return fail("open", error);
  }
  if (orlop_tokenize(model, argv[2], strlen(argv[2]), true, tokens, 512, &count, &error) != ORLOP_OK) {
    orlop_model_free(model);
    return fail("tokenize", error);
  }
  orlop_text_options_init(&text);
  text.temperature = 0;
  text.max_tokens = argc > 3 ? strtoul(argv[3], NULL, 10) : 32;
  if (orlop_generate(model, tokens, count, &text, print, &bytes, &end, &error) != ORLOP_OK) {
    orlop_model_free(model);
    return fail("generate", error);
  }
  if (orlop_model_facts(model, &info, &error) != ORLOP_OK) {
    orlop_model_free(model);
    return fail("facts", error);
  }
  printf("\n%zu tokens read, %zu bytes written, %s; context %llu\n", count, bytes,
         end == ORLOP_END_LIMIT ? "limit" : "end", (unsigned long long)info.context);
  orlop_model_free(model);
  return 0;
}
