/* main.c - the command table of the inferd binary. Commands return their status and never exit;
 * errors are printed here, as one sentence. */
#include "daemon/commands/commands.h"
#include "daemon/key_names.h"
#include "daemon/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command commands[] = {
    {"serve", "serve models over an OpenAI-compatible HTTP API", cmd_serve},
    {"chat", "talk to a running daemon", cmd_chat},
    {"run", "talk to a model, by a daemon of its own if none serves it", cmd_run},
    {"batch", "answer a file of requests, without a server", cmd_batch},
    {"ps", "list the models that are served", cmd_ps},
    {"stop", "stop a daemon", cmd_stop},
    {"reload", "let a daemon read its configuration again", cmd_reload},
    {"models", "register, list and check models", cmd_models},
    {"rm", "remove a model, with --files its files, too", cmd_rm},
    {"keys", "add, list and revoke API keys", cmd_keys},
    {"usage", "show who used how many tokens", cmd_usage},
    {"audit", "show what administrators did", cmd_audit},
    {"pull", "download a model from the Hugging Face Hub", cmd_pull},
    {"kv", "list, check and delete stored K/V", cmd_kv},
    {"config", "print or check a configuration file", cmd_config},
    {"tokenize", "convert text to token ids and back", cmd_tokenize},
    {"render", "render messages with a model's chat template", cmd_render},
    {"grammar", "test which texts a schema or grammar allows", cmd_grammar},
    {"logits", "print the most likely next tokens", cmd_logits},
    {"perplexity", "measure how well a model predicts a text", cmd_perplexity},
    {"imatrix", "measure which columns of a model's weights matter, for quantize", cmd_imatrix},
    {"bench", "measure the speed of prefill and decode", cmd_bench},
    {"quantize", "convert a model to another type of weights", cmd_quantize},
};

static const struct command_table table = {
    "inferd", "inferd " INFERD_VERSION " - serves language models to many clients.", commands,
    sizeof commands / sizeof commands[0]};

/* Standard files that the caller closed: without this the next socket or file would get their
 * number, and output would be written into it. Reads and writes fail as on a closed file. */
static void hold_standard_files(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

/* Fails if output did not reach stdout. */
static int flush_output(int status, err *e) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    if (status == 0) err_set(e, ERR_IO, "cannot write the output");
    return status ? status : 1;
}

int main(int argc, char **argv) {
    err e;
    err_clear(&e);
    hold_standard_files();
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0)) {
        puts("inferd " INFERD_VERSION);
        return flush_output(0, &e);
    }
    int status = flush_output(command_run(&table, argc, argv, &e), &e);
    key_names_put(&e);
    if (status != 0 && e.msg[0]) fprintf(stderr, "inferd: %s\n", e.msg);
    return status;
}
