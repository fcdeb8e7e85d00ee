/* instrument.h - what the commands that look into a model share: --model and the keys that go with
 * it, and the opening of its tokenizer or of an engine. */
#ifndef INFERD_INSTRUMENT_H
#define INFERD_INSTRUMENT_H

#include "core/engine/engine.h"
#include "core/tokenizer/tokenizer.h"
#include "daemon/loader.h"
#include "daemon/options.h"

/* Caller's storage: set options first, instrument_fini in any case after instrument_parse. */
struct instrument {
    struct options options; /* config and keys are filled here */
    struct config config;
    struct loader_model model;
};

/* Keys of commands that only read the vocabulary, and of those that compute. */
extern const char *const instrument_text_keys[], *const instrument_compute_keys[];

/* Parses the arguments and finds the model. -1: go on; else the exit status. Log lines from warn on
 * go to stderr unless log-level says otherwise. */
int instrument_parse(struct instrument *in, int argc, char **argv, err *e);
void instrument_fini(struct instrument *in);

/* The tokenizer alone, without weights. */
int instrument_open_tokenizer(struct instrument *in, tokenizer **out, err *e);

#endif
