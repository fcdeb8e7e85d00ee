/* chat.h - the conversation at a terminal or on a pipe, shared by `inferd chat` and `inferd run`.
 * Main thread. */
#ifndef INFERD_DAEMON_COMMANDS_CHAT_H
#define INFERD_DAEMON_COMMANDS_CHAT_H

#include "daemon/commands/client.h"
#include "daemon/commands/settings.h"

enum { CHAT_OPTIONS_MAX = 16 + SETTINGS_MAX, CHAT_WORDS_MAX = 256 };

/* What the command line says. Zero at first. */
struct chat_line {
    struct client client;
    const char *model, *system; /* NULL: not given */
    bool lines, json, verbose;
    struct settings_options settings;
    const char *words[CHAT_WORDS_MAX]; /* (n_words) of the prompt */
    size_t n_words;
};

/* Writes the rows of options (CHAT_OPTIONS_MAX); returns how many. */
size_t chat_options(struct chat_line *l, struct option *rows);

/* Asks what the words and a pipe say, or talks at the terminal, with an open client. Returns the
 * exit status. */
int chat_talk(const struct chat_line *l, err *e);

#endif
