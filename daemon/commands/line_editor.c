/* line_editor.c - libedit's native interface. The characters are read here, so that Ctrl-C, Ctrl-Z,
 * a change of the window's size and a paste (bracketed: it comes as one piece between two marks)
 * are ours to handle. */
#include "daemon/commands/line_editor.h"

#include "core/base/mem.h"
#include "daemon/commands/client.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000, REMEMBERED_BYTES = 4096, POLL_MS = 200, PASTE_MAX_BYTES = 1 << 20 };

#define PASTE_ON    "\033[?2004h"
#define PASTE_OFF   "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
#define PASTE_END   "\033[201~"

/* Signals by which the process leaves the terminal to others. */
static const int leaving[] = {SIGTSTP, SIGQUIT, SIGTERM, SIGHUP};
enum { N_LEAVING = sizeof leaving / sizeof *leaving };

static volatile sig_atomic_t resized, leaves; /* leaves: by this signal; 0: it stays */

struct line_editor {
    struct line_editor_config config;
    EditLine *el;
    History *history;
    const char *prompt;
    int keys;   /* where a terminal's characters are read */
    char *line; /* of getline */
    size_t capacity;
    struct sigaction before[N_LEAVING]; /* while the terminal is ours: what was set before */
};

static void on_resize(int number) {
    (void)number;
    resized = 1;
}

static void on_leaving(int number) {
    leaves = number;
}

static line_editor *editor_of(EditLine *el) {
    line_editor *ed = NULL;
    el_get(el, EL_CLIENTDATA, &ed);
    return ed;
}

static char *prompt_of(EditLine *el) {
    return (char *)(uintptr_t)editor_of(el)->prompt;
}

/* ---- the terminal's modes ---- */

static void take_terminal(line_editor *ed) {
    struct sigaction act = {.sa_handler = on_leaving, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    for (int i = 0; i < N_LEAVING; i++)
        if (sigaction(leaving[i], NULL, &ed->before[i]) == 0 && ed->before[i].sa_handler != SIG_IGN)
            sigaction(leaving[i], &act, NULL);
    /* Before the prompt: a Ctrl-D that arrives in line mode would be turned into an end of file and
     * lost. */
    el_set(ed->el, EL_PREP_TERM, 1);
    fputs(PASTE_ON, stdout);
    fflush(stdout);
}

static void give_terminal(line_editor *ed) {
    fputs(PASTE_OFF, stdout);
    fflush(stdout);
    el_set(ed->el, EL_PREP_TERM, 0);
    for (int i = 0; i < N_LEAVING; i++)
        sigaction(leaving[i], &ed->before[i], NULL);
}

/* Stops or ends as the signal wants it. After a stop the line appears again. */
static void leave_terminal(line_editor *ed) {
    int number = leaves;
    leaves = 0;
    give_terminal(ed);
    raise(number);
    take_terminal(ed);
    el_set(ed->el, EL_REFRESH);
}

#define CLEAR_BELOW "\r\033[J"

/* libedit keeps the cursor's place in a window of another size, and writes there beyond the memory
 * of a smaller one: the line is taken away meanwhile, so that the place is the first one. */
static void resize_window(line_editor *ed) {
    const LineInfoW *line = el_wline(ed->el);
    const char *prompt = ed->prompt;
    size_t n = (size_t)(line->lastchar - line->buffer), at = (size_t)(line->cursor - line->buffer);
    wchar_t *text = n < INT_MAX ? mem_new(n + 1, sizeof *text) : NULL;
    if (!text) return; /* the size stays as it was */
    memcpy(text, line->buffer, n * sizeof *text);
    el_cursor(ed->el, (int)(n - at));
    el_deletestr(ed->el, (int)n);
    ed->prompt = "";
    el_set(ed->el, EL_REFRESH);
    el_resize(ed->el);
    fputs(CLEAR_BELOW, stdout);
    ed->prompt = prompt;
    el_winsertstr(ed->el, text);
    el_cursor(ed->el, (int)at - (int)n);
    el_set(ed->el, EL_REFRESH);
    free(text);
}

/* ---- characters ---- */

/* The terminal of standard input, opened again: Ctrl-C drops what was typed, perhaps between poll
 * and read, so reads must not wait; standard input itself is shared with who started this process.
 */
static int open_keys(void) {
    const char *name = ttyname(STDIN_FILENO);
    int fd = name ? open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    return fd >= 0 ? fd : STDIN_FILENO;
}

/* One byte: 1; 0 at the end; -1 if Ctrl-C was pressed or reading fails. */
static int read_byte(EditLine *el, char *out) {
    line_editor *ed = editor_of(el);
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        if (ed->config.interrupted()) return -1;
        if (leaves) leave_terminal(ed);
        if (resized) {
            resized = 0;
            resize_window(ed);
        }
        int ready = poll(&p, 1, POLL_MS);
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        ssize_t got = read(ed->keys, out, 1);
        if (got >= 0) return (int)got;
        if (errno != EINTR && errno != EAGAIN) return -1;
    }
}

static int read_char(EditLine *el, wchar_t *out) {
    char bytes[8];
    size_t n = 0;
    for (;;) {
        int got = read_byte(el, &bytes[n]);
        if (got <= 0) return got;
        n++;
        mbstate_t state;
        memset(&state, 0, sizeof state);
        size_t used = mbrtowc(out, bytes, n, &state);
        if (used && used <= n) return 1;
        /* Malformed, or a NUL, which a Ctrl-D becomes that was typed during an answer, and which
         * libedit takes for the key that quotes the next one: dropped. */
        if (!used || used == (size_t)-1 || n == sizeof bytes) n = 0;
    }
}

/* ---- keys ---- */

/* After PASTE_BEGIN: inserts what comes until PASTE_END, nothing of what is too long. Carriage
 * returns are what terminals send for line ends. */
static unsigned char on_paste(EditLine *el, int key) {
    static const size_t end_bytes = sizeof PASTE_END - 1;
    str text;
    char c;
    size_t matched = 0; /* bytes of PASTE_END, whose first one is not in its rest */
    (void)key;
    str_init(&text, PASTE_MAX_BYTES);
    while (matched < end_bytes && read_byte(el, &c) > 0) {
        matched = c == PASTE_END[matched] ? matched + 1 : c == PASTE_END[0];
        if (c) str_add_char(&text, c == '\r' ? '\n' : c);
    }
    bool whole = matched == end_bytes && !text.failed;
    if (whole) text.data[text.len - end_bytes] = '\0';
    int rc = !whole || (*str_cstr(&text) && el_insertstr(el, str_cstr(&text)));
    str_fini(&text);
    return rc ? CC_REFRESH_BEEP : CC_REFRESH;
}

/* What the offered words have in common. */
struct common {
    char text[128];
    size_t n_words;
};

static void offer_word(void *to, const char *word) {
    struct common *c = to;
    if (c->n_words++ == 0) {
        snprintf(c->text, sizeof c->text, "%s", word);
        return;
    }
    size_t n = 0;
    while (c->text[n] && c->text[n] == word[n])
        n++;
    c->text[n] = '\0';
}

static unsigned char on_tab(EditLine *el, int key) {
    const line_editor *ed = editor_of(el);
    const LineInfo *line = el_line(el);
    size_t n = (size_t)(line->cursor - line->buffer), word = n;
    struct common found = {.n_words = 0};
    (void)key;
    ed->config.complete(ed->config.arg, line->buffer, n, offer_word, &found);
    while (word && line->buffer[word - 1] != ' ')
        word--;
    size_t have = n - word;
    if (!found.n_words || strlen(found.text) < have) return CC_REFRESH_BEEP;
    bool longer = found.text[have] != '\0';
    if (longer) el_insertstr(el, found.text + have);
    if (found.n_words == 1) el_insertstr(el, " ");
    return found.n_words == 1 || longer ? CC_REFRESH : CC_REFRESH_BEEP;
}

static void bind_keys(EditLine *el) {
    static const char *const keys[][2] = {
        {"^I", "inferd-complete"},     {PASTE_BEGIN, "inferd-paste"},
        {"^R", "em-inc-search-prev"},  {"\033[3~", "ed-delete-next-char"},
        {"\033[1;5C", "em-next-word"}, {"\033[1;5D", "ed-prev-word"},
        {"\033[H", "ed-move-to-beg"},  {"\033[F", "ed-move-to-end"},
        {"\033[1~", "ed-move-to-beg"}, {"\033[4~", "ed-move-to-end"},
    };
    el_set(el, EL_ADDFN, "inferd-complete", "completes a command", on_tab);
    el_set(el, EL_ADDFN, "inferd-paste", "inserts a pasted text", on_paste);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

/* ---- lines ---- */

static void open_history(line_editor *ed) {
    HistEvent ev;
    if (!(ed->history = history_init())) return;
    history(ed->history, &ev, H_SETSIZE, HISTORY_LINES);
    history(ed->history, &ev, H_SETUNIQUE, 1);
    if (ed->config.history) history(ed->history, &ev, H_LOAD, ed->config.history);
    el_set(ed->el, EL_HIST, history, ed->history);
}

/* libedit converts between bytes and characters by the locale. */
static void choose_locale(void) {
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "UTF-8");
}

int line_editor_open(const struct line_editor_config *config, line_editor **out, err *e) {
    line_editor *ed = mem_new(1, sizeof *ed);
    *out = ed;
    if (!ed) return err_no_memory(e);
    ed->config = *config;
    ed->keys = STDIN_FILENO;
    if (!config->terminal) return 0;
    choose_locale();
    if (!(ed->el = el_init("inferd", stdin, stdout, stderr))) return 0; /* lines as they come */
    ed->keys = open_keys();
    struct sigaction act = {.sa_handler = on_resize, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    sigaction(SIGWINCH, &act, NULL);
    el_set(ed->el, EL_CLIENTDATA, ed);
    el_set(ed->el, EL_PROMPT, prompt_of);
    el_set(ed->el, EL_EDITOR, "emacs");
    el_set(ed->el, EL_SIGNAL, 0);
    el_set(ed->el, EL_GETCFN, read_char);
    open_history(ed);
    bind_keys(ed->el);
    el_source(ed->el, NULL); /* the user's own bindings, ~/.editrc */
    return 0;
}

void line_editor_close(line_editor *ed) {
    if (!ed) return;
    if (ed->el) el_end(ed->el);
    if (ed->history) history_end(ed->history);
    if (ed->keys != STDIN_FILENO) close(ed->keys);
    free(ed->line);
    free(ed);
}

static void remember_line(line_editor *ed, const char *line) {
    HistEvent ev;
    if (!ed->history || !line[strspn(line, " \t\n")] || strlen(line) > REMEMBERED_BYTES) return;
    history(ed->history, &ev, H_ENTER, line);
    if (ed->config.history) history(ed->history, &ev, H_SAVE, ed->config.history);
}

static enum line_result edit_line(line_editor *ed, str *line) {
    int n = 0;
    take_terminal(ed);
    const char *text = el_gets(ed->el, &n);
    give_terminal(ed);
    if (!text || n <= 0) putchar('\n');
    fflush(stdout);
    if (ed->config.interrupted()) return LINE_INTERRUPTED; /* what was typed is forgotten */
    if (!text || n <= 0) return LINE_END;
    size_t len = strlen(text);
    str_add_n(line, text, len - (len && text[len - 1] == '\n'));
    remember_line(ed, str_cstr(line));
    return LINE_READ;
}

enum line_result line_editor_read(line_editor *ed, const char *prompt, str *line) {
    str_clear(line);
    ed->prompt = prompt;
    if (ed->el) return edit_line(ed, line);
    errno = 0;
    client_interrupt_calls(true);
    ssize_t n = getline(&ed->line, &ed->capacity, stdin);
    int why = errno;
    client_interrupt_calls(false);
    if (n < 0) {
        bool interrupted = why == EINTR && ed->config.interrupted();
        clearerr(stdin);
        return interrupted ? LINE_INTERRUPTED : LINE_END;
    }
    str_add_n(line, ed->line, (size_t)n - (ed->line[n - 1] == '\n'));
    return LINE_READ;
}
