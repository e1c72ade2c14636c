/* Goes on with a text, token by token as they come:
 *   generate PACKAGE PROMPT [MAX_NEW_TOKENS [TEMPERATURE SEED]] */
#include <agentcompile.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The answer goes on while text can be written. */
static int show(void* context, const ac_piece* piece) {
  FILE* out = context;
  return fwrite(piece->text, 1, piece->bytes, out) != piece->bytes || fflush(out) != 0;
}

static int fail(ac_status status) {
  fprintf(stderr, "error: %s\n", ac_last_error());
  return (int)status;
}

int main(int argc, char** argv) {
  ac_model* model = NULL;
  ac_sampling sampling;
  ac_request request = {0};
  ac_answer answer = {0};
  int64_t* ids = NULL;
  ac_status status;
  if (argc < 3 || argc > 6) {
    fprintf(stderr, "usage: %s PACKAGE PROMPT [MAX_NEW_TOKENS [TEMPERATURE SEED]]\n", argv[0]);
    return AC_WRONG_USAGE;
  }

  status = ac_load(argv[1], NULL, &model);
  if (status != AC_OK) return fail(status);

  status = ac_tokenize(model, argv[2], strlen(argv[2]), AC_ADD_SPECIAL, &ids, &request.count);
  if (status == AC_OK) status = ac_default_sampling(model, &sampling);
  if (status == AC_OK) {
    request.ids = ids;
    request.max_new_tokens = argc > 3 ? atoll(argv[3]) : 64;
    if (argc > 4) sampling.temperature = atof(argv[4]);
    if (argc > 5) sampling.seed = strtoull(argv[5], NULL, 10);
    request.sampling = &sampling;
    status = ac_generate(model, &request, show, stdout, &answer);
  }
  if (status != AC_OK) {
    status = (ac_status)fail(status);
  } else {
    printf("\n");
    fprintf(stderr, "%lu tokens, %s\n", (unsigned long)answer.count,
            answer.finish == AC_FINISH_STOP ? "ended by the model" : "as many as were wanted");
  }
  ac_free_answer(&answer);
  ac_free(ids);
  ac_close(model);
  return (int)status;
}
