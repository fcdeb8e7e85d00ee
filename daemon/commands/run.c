/* commands/run.c - inferd run: a chat with a model, by a daemon that serves it already or by one
 * that lives as long as the chat. Main thread. */
#include "core/base/mem.h"
#include "daemon/commands/chat.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/conversation.h"
#include "daemon/commands/own_daemon.h"
#include "daemon/run_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does the daemon at url serve the model? */
static bool daemon_serves(const struct client *c, const char *url, const char *model) {
    struct client at = *c;
    struct conversation talk = {.client = &at};
    err why;
    at.url = url;
    bool yes = conversation_choose_model(&talk, model, &why) == 0;
    free(talk.model);
    return yes;
}

/* Sets the client's url to a daemon of this user, or at the default address, that serves the model
 * and does not end with another command. false: there is none. */
static bool find_server(struct client *c, const char *model, err *e) {
    struct run_list list;
    const char *found = NULL;
    if (run_list_read(&list, e)) err_clear(e);
    for (size_t i = 0; i < list.n && !found; i++)
        if (!list.daemons[i].own && daemon_serves(c, list.daemons[i].url, model))
            found = list.daemons[i].url;
    if (!found && daemon_serves(c, CLIENT_DEFAULT_URL, model)) found = CLIENT_DEFAULT_URL;
    char *copy = found ? mem_strdup(found) : NULL;
    run_list_fini(&list);
    if (!copy) return false;
    free(c->found);
    c->found = copy;
    c->url = copy;
    return true;
}

static int start_server(struct chat_line *l, const char *model, struct own_daemon *d, err *e) {
    bool tell = isatty(STDERR_FILENO);
    if (tell) fprintf(stderr, "loading %s ...", model);
    int rc = own_daemon_start(d, model, NULL, e);
    if (tell) fprintf(stderr, "\r\033[K");
    if (rc) return rc;
    l->client.url = d->url;
    l->model = NULL; /* the only one that it serves */
    return 0;
}

int cmd_run(int argc, char **argv, err *e) {
    static const char summary[] =
        "Talks to a model, as `inferd chat` does: by the daemon that serves it, or else by one "
        "that is started for this chat, on loopback, and ends with it. MODEL is a registered "
        "name, an alias or a path.";
    struct chat_line l = {.model = NULL};
    struct option rows[CHAT_OPTIONS_MAX];
    struct own_daemon d = {.to = -1};
    const char *model;
    const struct options o = {.usage = "run MODEL [PROMPT]",
                              .summary = summary,
                              .options = rows,
                              .n_options = chat_options(&l, rows),
                              .args = l.words,
                              .min_args = 1,
                              .max_args = CHAT_WORDS_MAX};
    int rc = options_parse(&o, argc, argv, &l.n_words, e);
    if (rc) return options_exit(rc);
    model = l.model = l.words[0];
    memmove(l.words, l.words + 1, --l.n_words * sizeof *l.words);
    if (strncmp(model, "hf:", 3) == 0) {
        err_set(e, ERR_INVALID, "get it first with `inferd pull %s`, which prints its name", model);
        return EXIT_USAGE;
    }
    bool is_given = l.client.url != NULL;
    int status = client_open(&l.client, e);
    client_catch_interrupts();
    if (status < 0 && !is_given && !find_server(&l.client, model, e))
        if (start_server(&l, model, &d, e)) status = 1;
    if (status < 0) status = chat_talk(&l, e);
    own_daemon_stop(&d);
    client_close(&l.client);
    return status;
}
