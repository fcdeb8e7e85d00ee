/* instrument.h - shared by the commands that inspect a model: --model and related keys, and the
 * display of tokens. */
#ifndef INFERD_DAEMON_COMMANDS_INSTRUMENT_H
#define INFERD_DAEMON_COMMANDS_INSTRUMENT_H

#include "core/engine/engine.h"
#include "core/tokenizer/tokenizer.h"
#include "daemon/loader.h"
#include "daemon/options.h"

/* Caller's storage: set options first, instrument_fini in any case after instrument_parse. */
struct instrument {
    struct options options;      /* config and keys are filled here */
    const char *const *no_model; /* target of an option that replaces the model; NULL: none */
    struct config config;
    struct loader_model model;
    engine_group *group; /* of processes that mpirun started; NULL: none */
};

/* Keys of commands that only read the vocabulary, and of those that compute. */
extern const char *const instrument_text_keys[], *const instrument_compute_keys[];

/* Parses the arguments and finds the model. Returns -1 to continue, else the exit status. Logs
 * warnings and errors to stderr unless log-level is set. */
int instrument_parse(struct instrument *in, int argc, char **argv, err *e);
void instrument_fini(struct instrument *in);

/* A token's text in readable form: malformed UTF-8 becomes U+FFFD. Initializes out; the caller
 * calls str_fini. */
void instrument_piece(const tokenizer *tok, int32_t id, str *out);

#endif
