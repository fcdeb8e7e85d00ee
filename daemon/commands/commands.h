/* commands.h - the commands of the inferd binary.
 *
 * A command returns the process's exit status (0 done, 1 failed, EXIT_USAGE wrong arguments);
 * e->msg is printed by main when it is not empty. argv[0] is the command's own name. */
#ifndef INFERD_DAEMON_COMMANDS_COMMANDS_H
#define INFERD_DAEMON_COMMANDS_COMMANDS_H

#include "core/base/err.h"

#include <stddef.h>

struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv, err *e);
};

/* A table of commands under prefix ("inferd", "inferd models"). command_run runs argv[1], prints
 * the table for --help, and suggests the most similar command for an unknown one. */
struct command_table {
    const char *prefix, *summary;
    const struct command *commands; /* (n) */
    size_t n;
};
int command_run(const struct command_table *table, int argc, char **argv, err *e);

int cmd_serve(int argc, char **argv, err *e);
int cmd_chat(int argc, char **argv, err *e);
int cmd_run(int argc, char **argv, err *e);
int cmd_ps(int argc, char **argv, err *e);
int cmd_stop(int argc, char **argv, err *e);
int cmd_rm(int argc, char **argv, err *e);
int cmd_reload(int argc, char **argv, err *e);
int cmd_models(int argc, char **argv, err *e);
int cmd_keys(int argc, char **argv, err *e);
int cmd_usage(int argc, char **argv, err *e);
int cmd_audit(int argc, char **argv, err *e);
int cmd_pull(int argc, char **argv, err *e);
int cmd_kv(int argc, char **argv, err *e);
int cmd_config(int argc, char **argv, err *e);
int cmd_tokenize(int argc, char **argv, err *e);
int cmd_render(int argc, char **argv, err *e);
int cmd_logits(int argc, char **argv, err *e);
int cmd_perplexity(int argc, char **argv, err *e);
int cmd_imatrix(int argc, char **argv, err *e);
int cmd_bench(int argc, char **argv, err *e);
int cmd_quantize(int argc, char **argv, err *e);
int cmd_grammar(int argc, char **argv, err *e);

#endif
