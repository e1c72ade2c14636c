/* AgentCompile for C programs: packages that `agentcompile compile` has made are loaded and run.
 *
 * Status. Functions return AC_OK or what is wrong; ac_last_error() has the words for people. What a
 * function gives through its last pointers is set where it returns AC_OK, and untouched elsewhere.
 * No function throws, and wrong handles and null pointers are AC_WRONG_USAGE.
 *
 * Memory. What comes through a pointer to a pointer belongs to the caller, who frees it with
 * ac_free(). Text is UTF-8; it has a length, and a zero byte behind it.
 *
 * Threads. Every function may be called from any thread. A model holds one sequence of tokens, so
 * that answers and steps of the same model wait for one another; ac_stop(), ac_describe(),
 * ac_default_sampling() and the functions of text never wait. A callback may call these with its
 * own model, and any function with another one; the rest is AC_WRONG_USAGE.
 *
 * Versions. While the version begins with 0, a program must be compiled again for another one.
 */
#ifndef AGENTCOMPILE_H
#define AGENTCOMPILE_H

#include <stddef.h>
#include <stdint.h>

#define AC_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ac_status {
  AC_OK = 0,
  AC_JOB_FAILED = 1,  /* the input is fine, but it could not be done here */
  AC_WRONG_USAGE = 2, /* an argument is wrong */
  AC_BAD_INPUT = 3,   /* a file, text or token that was given is wrong */
  AC_DEVICE_LOST = 4, /* a GPU failed and is of no use to this process any more: end it */
  AC_NOT_COMPILED = 5 /* what was to be loaded is no package */
} ac_status;

AC_API const char* ac_version(void);
/* Of the last call in this thread that did not return AC_OK; valid until the next one. */
AC_API const char* ac_last_error(void);
AC_API void ac_free(void* what);

/* --- Models --- */

typedef struct ac_model ac_model;

/* All zero, or a null pointer in its place, is what `agentcompile generate` does. */
typedef struct ac_load_options {
  const char* device;        /* "host", "cuda", "cuda:1"; null: what the package is compiled for */
  const char* checkpoint;    /* where the checkpoint is now; null: where it was compiled from */
  int random_weights;        /* not 0: random weights made of this seed, instead of a checkpoint */
  uint64_t seed;             /* of random_weights */
  const char* tokenizer;     /* a folder to take instead of the package's texts; null: none */
  const char* chat_template; /* a file to take instead of the model's own; null: none */
  size_t cache_memory;       /* bytes for what was read of earlier prompts; 0: the last one only */
  const char* cache_folder;  /* keeps that for the next time as well; null: none */
  size_t cache_disk;         /* bytes that the folder may hold; 0: 16 GiB */
} ac_load_options;

/* A package, or a folder with one for each of several targets. Anything else that exists, or has a
 * model's name, is AC_NOT_COMPILED, and the error says how to compile it. */
AC_API ac_status ac_load(const char* package, const ac_load_options* options, ac_model** model);
/* Stops an answer that is being made, and waits for its end. Null is no error. */
AC_API ac_status ac_close(ac_model* model);

typedef struct ac_properties {
  int64_t vocabulary;  /* token ids are 0 up to this */
  int64_t max_context; /* tokens that a sequence can have */
  int has_tokenizer, has_chat_template;
  char device[128]; /* its name */
} ac_properties;
AC_API ac_status ac_describe(ac_model* model, ac_properties* properties);

/* --- Text --- */

enum {
  AC_ADD_SPECIAL = 1,  /* put the special tokens around the text that the tokenizer prescribes */
  AC_PARSE_SPECIAL = 2 /* "<|im_end|>" in a text is that token; else it is text like any other */
};
AC_API ac_status ac_tokenize(ac_model* model, const char* text, size_t bytes, unsigned flags,
                             int64_t** ids, size_t* count);
/* Special tokens have no text, unless `with_special` is not 0. */
AC_API ac_status ac_detokenize(ac_model* model, const int64_t* ids, size_t count, int with_special,
                               char** text, size_t* bytes);
/* The prompt of a conversation, by the model's chat template, up to where the answer begins. `json`
 * is a list of messages, or an object with `messages` and perhaps `tools` and further variables of
 * the template. Special tokens that are written in it are text: nobody ends their turn by what they
 * say; in the prompt as text they cannot be told apart. */
AC_API ac_status ac_chat_ids(ac_model* model, const char* json, int64_t** ids, size_t* count);
AC_API ac_status ac_chat_text(ac_model* model, const char* json, char** text, size_t* bytes);

/* --- Answers --- */

/* How tokens are chosen. */
typedef struct ac_sampling {
  double temperature; /* 0: the likeliest token, and top_k to seed mean nothing */
  int64_t top_k;      /* 0: all */
  double top_p, min_p;
  uint64_t seed;
  double repeat_penalty; /* 1: none */
  double presence_penalty, frequency_penalty;
} ac_sampling;
/* As the model's generation_config.json says; without one, greedily. The seed is a random one. */
AC_API ac_status ac_default_sampling(ac_model* model, ac_sampling* sampling);

typedef struct ac_request {
  const int64_t* ids; /* the prompt */
  size_t count;
  int64_t max_new_tokens;      /* 0: as the model says, else as many as there is room for */
  const ac_sampling* sampling; /* null: ac_default_sampling() */
  const char* const* stop;     /* texts before which the answer ends */
  size_t stop_count;
  int is_conversation; /* not 0: the answer is a text of its own; else it goes on with the prompt's
                        */
} ac_request;

typedef struct ac_piece {
  const char* text; /* whole characters, perhaps none; valid during the callback */
  size_t bytes;
  int64_t token; /* that it came with; -1: what was held back until the end */
} ac_piece;
/* Hears each token. Not 0: the answer ends with it. Must not throw. */
typedef int (*ac_on_piece)(void* context, const ac_piece* piece);

typedef enum ac_finish {
  AC_FINISH_STOP = 0,   /* a token or text that ends an answer */
  AC_FINISH_LENGTH = 1, /* as many tokens as were wanted, or as there was room for */
  AC_FINISH_INTERRUPTED = 2
} ac_finish;

typedef struct ac_answer {
  char* text;
  size_t bytes;
  int64_t* ids; /* with the one that ended it */
  size_t count;
  ac_finish finish;
  int64_t prompt_tokens, cached_tokens; /* of the prompt; of those, what was run before */
  double first_token_seconds;
  double token_seconds; /* of each later one; 0: there are too few to tell */
} ac_answer;

/* `answer` is filled in, and freed with ac_free_answer(). What the prompt has in common with the
 * one before it is not run again. The callback may be null. */
AC_API ac_status ac_generate(ac_model* model, const ac_request* request, ac_on_piece on_piece,
                             void* context, ac_answer* answer);
/* Frees what an answer points to, not the answer. */
AC_API void ac_free_answer(ac_answer* answer);
/* Ends the answer that is being made, if there is one, after its next token, or between two parts
 * of a long prompt. */
AC_API ac_status ac_stop(ac_model* model);

/* --- Token by token ---
 *
 * The model's sequence, which ac_generate() begins anew. */

/* Runs these tokens, after those that are cached. */
AC_API ac_status ac_append(ac_model* model, const int64_t* ids, size_t count);
/* How many tokens are cached. */
AC_API ac_status ac_position(ac_model* model, int64_t* tokens);
/* Forgets all tokens but the first so many. There are no logits then, until some are appended. What
 * a sliding window no longer has is AC_BAD_INPUT. */
AC_API ac_status ac_truncate(ac_model* model, int64_t tokens);
/* After the last token; `count` is the size of the vocabulary. */
AC_API ac_status ac_logits(ac_model* model, float* logits, size_t count);
/* The token that these logits give. Null is greedy. Penalties, which ac_generate() knows what to
 * take from, are AC_WRONG_USAGE. */
AC_API ac_status ac_choose(ac_model* model, const ac_sampling* sampling, int64_t* id);

/* What was computed of all cached tokens, to go on from there later, perhaps in another process: on
 * the same kind of device, with the same package and weights; else restoring it is AC_BAD_INPUT. A
 * sequence of which a sliding window has forgotten something cannot be saved. There are no logits
 * after restoring, until tokens are appended. */
AC_API ac_status ac_save(ac_model* model, void** state, size_t* bytes);
AC_API ac_status ac_restore(ac_model* model, const void* state, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
