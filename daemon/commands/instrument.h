/* instrument.h - what the commands that look into a model share: --model and the keys that go with
 * it, and how a token is shown. */
#ifndef INFERD_DAEMON_COMMANDS_INSTRUMENT_H
#define INFERD_DAEMON_COMMANDS_INSTRUMENT_H

#include "core/engine/engine.h"
#include "core/tokenizer/tokenizer.h"
#include "daemon/loader.h"
#include "daemon/options.h"

/* Caller's storage: set options first, instrument_fini in any case after instrument_parse. */
struct instrument {
    struct options options;      /* config and keys are filled here */
    const char *const *no_model; /* target of an option that makes a model needless; NULL: none */
    struct config config;
    struct loader_model model;
};

/* Keys of commands that only read the vocabulary, and of those that compute. */
extern const char *const instrument_text_keys[], *const instrument_compute_keys[];

/* Parses the arguments and finds the model. -1: go on; else the exit status. Log lines from warn on
 * go to stderr unless log-level says otherwise. */
int instrument_parse(struct instrument *in, int argc, char **argv, err *e);
void instrument_fini(struct instrument *in);

/* A token's own text as a person can read it: malformed UTF-8 becomes U+FFFD. out is str_init'ed
 * here, str_fini is the caller's. */
void instrument_piece(const tokenizer *tok, int32_t id, str *out);

#endif
