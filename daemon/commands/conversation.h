/* conversation.h - messages that grow by turns with a model of a running daemon, over its public
 * API. Main thread. */
#ifndef INFERD_DAEMON_COMMANDS_CONVERSATION_H
#define INFERD_DAEMON_COMMANDS_CONVERSATION_H

#include "core/base/str.h"
#include "daemon/commands/client.h"

struct conversation {
    const struct client *client;
    char *model;     /* owned; NULL: none is chosen */
    char *system;    /* owned; NULL: no system message */
    cJSON *messages; /* without the system message */
    cJSON *settings; /* fields of the request, see settings.h */
    bool json;       /* print the answer's body instead of its text, not streamed */
    bool colour;     /* reasoning is shown, dim */
    bool verbose;    /* counts of tokens and speed after an answer, on stderr */
};

/* model and system may be NULL; copied. ERR_NOMEM. */
int conversation_init(struct conversation *c, const struct client *client, const char *system,
                      err *e);
void conversation_fini(struct conversation *c);
void conversation_clear(struct conversation *c); /* forgets the messages */

/* Replaces a text that the conversation owns. ERR_NOMEM. */
int conversation_set(char **member, const char *text, err *e);

/* Adds the user's text, prints the answer as it arrives and adds it. An answer that Ctrl-C stopped
 * is kept as far as it came (*stopped). After an error the conversation is as before. */
int conversation_ask(struct conversation *c, const char *text, bool *stopped, err *e);

/* Chooses the first model that the daemon lists. */
int conversation_find_model(struct conversation *c, err *e);
/* Chooses a model by its name or alias. ERR_NOT_FOUND suggests one. */
int conversation_choose_model(struct conversation *c, const char *name, err *e);

/* The whole conversation as a request's body: model, settings, messages with the system message.
 * NULL: no memory. The caller deletes it. */
cJSON *conversation_body(const struct conversation *c);
/* Takes over model, settings and messages of such a body. ERR_FORMAT leaves c as it was. */
int conversation_take(struct conversation *c, const cJSON *body, err *e);

/* Prints text without the control characters that a terminal would obey. */
void print_safe(const char *text);

#endif
