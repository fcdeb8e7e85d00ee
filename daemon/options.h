/* options.h - reads one command's arguments from a table; prints its --help from the same table.
 *
 * A command has options of its own and may take keys of the configuration as flags; then it also
 * takes --config FILE, which is applied before any flag. */
#ifndef INFERD_OPTIONS_H
#define INFERD_OPTIONS_H

#include "core/base/err.h"
#include "daemon/config.h"

enum option_kind {
    OPTION_TEXT,   /* const char *: borrowed from argv */
    OPTION_MAYBE,  /* the same; "" where the next argument is an option or there is none */
    OPTION_NUMBER, /* uint64_t within min..max */
    OPTION_SWITCH, /* bool, takes no value */
    OPTION_LIST    /* struct option_list, may be given again */
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
    const char *value; /* what --help calls it, "FILE" */
    const char *help;
    uint64_t min, max; /* OPTION_NUMBER */
};

struct options {
    const char *usage; /* "models add PATH" */
    const char *summary;
    const struct option *options; /* (n_options) */
    size_t n_options;
    struct config *config;   /* NULL: no keys */
    const char *const *keys; /* keys that are flags, NULL-terminated; NULL: all of them */
    const char **args;       /* (max_args) positional arguments, borrowed from argv */
    size_t min_args, max_args;
};

enum { OPTIONS_HELP = 1, EXIT_USAGE = 2 };

/* argv[0] is the command's name. 0, OPTIONS_HELP (help is printed, nothing else to do) or
 * ERR_INVALID / ERR_IO. *n_args may be NULL. */
int options_parse(const struct options *o, int argc, char **argv, size_t *n_args, err *e);

/* Exit status after options_parse != 0. */
int options_exit(int rc);

#endif
