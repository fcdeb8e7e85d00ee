/* help.h - describes commands and their options, from the tables that parse them: the text of
 * --help, the manual pages, and completion for bash, zsh and fish.
 *
 * `inferd --help=FORMAT` runs every command with --help=FORMAT: each writes its part, so nothing is
 * listed twice. Main thread. */
#ifndef INFERD_HELP_H
#define INFERD_HELP_H

#include "core/base/str.h"
#include "daemon/commands/commands.h"
#include "daemon/options.h"

struct help_format;

/* The format that an argument asks for: -h, --help, --help=man|bash|zsh|fish. NULL: it is another
 * argument. ERR_INVALID goes to e if the format is unknown; then *bad. */
const struct help_format *help_asked(const char *arg, bool *bad, err *e);

/* Print to stdout: one command's options; a table with, except in text, the commands in it. */
void help_print_options(const struct options *o, const struct help_format *f);
void help_print_table(const struct command_table *table, const struct help_format *f);

/* Adds text, in which '\n' counts as a blank, in lines of at most 80 columns, all but the first
 * indented. column: where the first begins. */
void help_add_wrapped(str *out, const char *text, size_t column, size_t indent);

/* Adds the manual page inferd.conf(5): every configuration key. */
void help_add_config_page(str *out);

/* What a key's value is in --help: "N", "FILE", "f16|f32". */
const char *help_key_value(const struct config_key *key);

#endif
