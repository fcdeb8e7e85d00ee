/* line_editor.h - lines from a terminal with editing, history and completion (libedit), or from
 * anything else as they are. One at a time; main thread. */
#ifndef INFERD_DAEMON_COMMANDS_LINE_EDITOR_H
#define INFERD_DAEMON_COMMANDS_LINE_EDITOR_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <stdbool.h>

typedef struct line_editor line_editor;

struct line_editor_config {
    bool terminal;             /* standard input and output are one */
    const char *history;       /* file of the history, at most 1000 lines; NULL: none is kept */
    bool (*interrupted)(void); /* has Ctrl-C been pressed? Its handler makes reads return */
    /* Calls offer for each word that may stand where the first n bytes of a line stand. */
    void (*complete)(void *arg, const char *line, size_t n,
                     void (*offer)(void *to, const char *word), void *to);
    void *arg;
};

int line_editor_open(const struct line_editor_config *config, line_editor **out, err *e);
void line_editor_close(line_editor *ed); /* NULL is fine */

enum line_result { LINE_READ, LINE_END, LINE_INTERRUPTED };
/* Reads a line into *line (cleared first), without its line feed; a pasted text keeps the ones in
 * it. The prompt appears on terminals only. A longer line than *line may hold sets line->failed. */
enum line_result line_editor_read(line_editor *ed, const char *prompt, str *line);

#endif
