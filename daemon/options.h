/* options.h - parses one command's arguments by a table; help.h describes it by the same table.
 *
 * A command has its own options and may accept configuration keys as flags; then it also accepts
 * --config FILE, which is applied before any flag. */
#ifndef INFERD_OPTIONS_H
#define INFERD_OPTIONS_H

#include "core/base/err.h"
#include "daemon/config.h"

enum option_kind {
    OPTION_TEXT,   /* const char *: borrowed from argv */
    OPTION_MAYBE,  /* the same; "" if the next argument is an option or missing */
    OPTION_NUMBER, /* uint64_t within min..max */
    OPTION_SWITCH, /* bool, takes no value */
    OPTION_LIST    /* struct option_list; may be repeated */
};

enum { OPTION_LIST_MAX = 64 };
struct option_list {
    const char *items[OPTION_LIST_MAX];
    size_t n;
};

struct option {
    const char *name; /* without -- */
    enum option_kind kind;
    void *target;
    const char *value; /* the value's name in --help. Completion knows FILE, PATH, FOLDER, SRC, DST
                          (files), MODEL (registered names) and "a|b" */
    const char *help;
    uint64_t min, max; /* OPTION_NUMBER */
};

struct options {
    const char *usage; /* "models add PATH": the command's words, then its arguments */
    const char *summary;
    const struct option *options; /* (n_options) */
    size_t n_options;
    struct config *config;   /* NULL: no keys */
    const char *const *keys; /* keys that are flags, NULL-terminated; NULL: all of them */
    const char **args;       /* (max_args) positional arguments, borrowed from argv */
    size_t min_args, max_args;
};

enum { OPTIONS_HELP = 1, EXIT_USAGE = 2 };

/* argv[0] is the command's name. Returns 0, OPTIONS_HELP (help was printed, the command is done),
 * ERR_INVALID or ERR_IO. n_args may be NULL. */
int options_parse(const struct options *o, int argc, char **argv, size_t *n_args, err *e);

/* Is this key one of the command's options? */
bool options_take_key(const struct options *o, const struct config_key *key);

/* Exit status after options_parse != 0. */
int options_exit(int rc);

#endif
