/* chat_commands.h - the commands that a line of `inferd chat` may be: "/set seed 1". One table
 * makes them, their /help, their completion and suggestions. Main thread. */
#ifndef INFERD_DAEMON_COMMANDS_CHAT_COMMANDS_H
#define INFERD_DAEMON_COMMANDS_CHAT_COMMANDS_H

#include "daemon/commands/conversation.h"

struct chat_session {
    struct conversation talk;
    bool ended;   /* /bye */
    bool again;   /* /regen: the last message is to be asked again */
    char *prefix; /* owned; a text that precedes the next message: /read */
};

/* Is line a command, or meant as one? A path or "/ 2" is not. */
bool chat_command_is(const char *line);
/* Runs it; what it says goes to stdout. ERR_INVALID (unknown, with a suggestion) and others. */
int chat_command_run(struct chat_session *s, const char *line, err *e);

/* Fits line_editor_config. */
void chat_command_complete(void *arg, const char *line, size_t n,
                           void (*offer)(void *to, const char *word), void *to);

#endif
