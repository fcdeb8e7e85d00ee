/* jsonl.c - the loop behind --jsonl: bounded lines in, answers out. Main thread. */
#include "daemon/commands/jsonl.h"

#include "core/chat/chat.h"
#include "core/text/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void jsonl_add_text(str *out, const char *text, size_t n) {
    str lossy;
    str_init(&lossy, SIZE_MAX / 2);
    utf8_add_lossy(&lossy, text, n);
    str_add_char(out, '"');
    for (size_t i = 0; i < lossy.len; i++) {
        unsigned char c = (unsigned char)lossy.data[i];
        if (c == '"' || c == '\\')
            str_addf(out, "\\%c", c);
        else if (c < 0x20)
            str_addf(out, "\\u%04x", c);
        else
            str_add_char(out, (char)c);
    }
    str_add_char(out, '"');
    out->failed |= lossy.failed;
    str_fini(&lossy);
}

/* Reads the next line without its newline; *too_long: its rest was skipped. false: end of input. */
static bool read_line(str *line, size_t max_bytes, bool *too_long) {
    int c;
    bool any = false;
    str_clear(line);
    *too_long = false;
    while ((c = getc_unlocked(stdin)) != EOF) {
        any = true;
        if (c == '\n') break;
        if (line->len >= max_bytes)
            *too_long = true;
        else
            str_add_char(line, (char)c);
    }
    return any;
}

static int answer_line(const struct jsonl *j, const str *line, str *out, err *e) {
    cJSON *o = NULL;
    int rc = line->failed ? err_no_memory(e) : chat_json_parse(str_cstr(line), line->len, &o, e);
    if (!rc && !cJSON_IsObject(o)) rc = err_set(e, ERR_FORMAT, "expected a JSON object");
    if (!rc) rc = j->answer(j->arg, o, out, e);
    if (!rc && out->failed) rc = err_no_memory(e);
    cJSON_Delete(o);
    return rc;
}

int jsonl_run(const struct jsonl *j, err *e) {
    size_t number = 0, n_bad = 0;
    bool too_long;
    str line, out;
    str_init(&line, j->max_line_bytes);
    str_init(&out, SIZE_MAX / 2);
    while (read_line(&line, j->max_line_bytes, &too_long)) {
        err why = {0};
        number++;
        str_clear(&out);
        int rc = too_long ? err_set(&why, ERR_TOO_LONG, "longer than %zu bytes", j->max_line_bytes)
                          : answer_line(j, &line, &out, &why);
        if (rc) {
            n_bad++;
            err_prefix(&why, "line %zu: ", number);
            str_clear(&out);
            str_add(&out, "{\"error\":");
            jsonl_add_text(&out, why.msg, strlen(why.msg));
            str_add(&out, ",\"class\":\"InputError\"}");
        }
        puts(str_cstr(&out));
        fflush(stdout); /* the reader may be waiting for it */
    }
    str_fini(&line);
    str_fini(&out);
    if (ferror(stdin)) return err_set(e, ERR_IO, "standard input: %s", strerror(errno));
    if (ferror(stdout)) return err_set(e, ERR_IO, "standard output: %s", strerror(errno));
    return n_bad ? err_set(e, ERR_INVALID, "%zu of %zu lines have errors", n_bad, number) : 0;
}
