/* commands.c - finds a command by name. */
#include "daemon/commands/commands.h"

#include "daemon/help.h"
#include "daemon/input.h"
#include "daemon/options.h"

#include <string.h>

int command_run(const struct command_table *table, int argc, char **argv, err *e) {
    struct suggest s;
    if (argc < 2) {
        err_set(e, ERR_INVALID, "usage: %s COMMAND; see %s --help", table->prefix, table->prefix);
        return EXIT_USAGE;
    }
    bool bad;
    const struct help_format *help =
        help_asked(strcmp(argv[1], "help") == 0 ? "--help" : argv[1], &bad, e);
    if (bad) return EXIT_USAGE;
    if (help) {
        help_print_table(table, help);
        return 0;
    }
    suggest_init(&s, argv[1]);
    for (size_t i = 0; i < table->n; i++) {
        if (strcmp(table->commands[i].name, argv[1]) == 0)
            return table->commands[i].run(argc - 1, argv + 1, e);
        suggest_offer(&s, table->commands[i].name);
    }
    if (s.best)
        err_set(e, ERR_INVALID, "unknown command \"%.64s\": did you mean %s %s?", argv[1],
                table->prefix, s.best);
    else
        err_set(e, ERR_INVALID, "unknown command \"%.64s\"; see %s --help", argv[1], table->prefix);
    return EXIT_USAGE;
}
