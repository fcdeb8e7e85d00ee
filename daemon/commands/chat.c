/* commands/chat.c - inferd chat: a prompt from arguments and standard input, or a conversation at
 * the terminal. Main thread. */
#include "daemon/commands/chat.h"

#include "daemon/commands/chat_commands.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/line_editor.h"
#include "daemon/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT_MAX_BYTES = 16 << 20 };

/* ---- one prompt ---- */

static size_t without_line_ends(const char *text, size_t n) {
    while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    return n;
}

/* The words, then what a pipe or file on standard input says. */
static int read_prompt(const struct chat_line *l, bool piped, str *prompt, err *e) {
    char *text = NULL;
    size_t n = 0;
    for (size_t i = 0; i < l->n_words; i++)
        str_addf(prompt, "%s%s", i ? " " : "", l->words[i]);
    if (piped) client_release_interrupts(); /* who writes into the pipe may take for ever */
    int rc = piped ? textfile_read("-", PROMPT_MAX_BYTES, &text, &n, e) : 0;
    if (!rc && text) rc = textfile_check("standard input", text, n, e);
    n = text ? without_line_ends(text, n) : 0;
    if (n && prompt->len) str_add(prompt, "\n\n");
    str_add_n(prompt, text ? text : "", n);
    free(text);
    if (!rc && prompt->failed)
        rc = err_set(e, ERR_TOO_LONG, "the prompt is longer than %d bytes", PROMPT_MAX_BYTES);
    return rc;
}

static int ask_once(struct conversation *talk, const char *prompt, err *e) {
    bool stopped;
    if (!prompt[strspn(prompt, " \t\r\n")]) {
        err_set(e, ERR_INVALID, "there is no prompt: give it as an argument or on standard input");
        return EXIT_USAGE;
    }
    return conversation_ask(talk, prompt, &stopped, e) ? 1 : 0;
}

/* ---- a conversation ---- */

/* Has text, which began with """, the closing one? Removes both. */
static bool close_block(str *text) {
    if (text->len < 6 || strcmp(text->data + text->len - 3, "\"\"\"") != 0) return false;
    size_t begin = 3 + (text->data[3] == '\n');
    text->len -= 3;
    if (text->len > begin && text->data[text->len - 1] == '\n') text->len--;
    if (text->len < begin) text->len = begin;
    text->data[text->len] = '\0';
    memmove(text->data, text->data + begin, text->len - begin + 1);
    text->len -= begin;
    return true;
}

/* Reads a message: a line, lines that end with '\', or a block between """. */
static enum line_result read_message(line_editor *ed, str *message) {
    str line;
    str_init(&line, PROMPT_MAX_BYTES);
    str_clear(message);
    enum line_result got = line_editor_read(ed, ">>> ", &line);
    bool is_block = got == LINE_READ && strncmp(str_cstr(&line), "\"\"\"", 3) == 0;
    while (got == LINE_READ) {
        bool goes_on = !is_block && line.len && line.data[line.len - 1] == '\\';
        str_add_n(message, str_cstr(&line), line.len - goes_on);
        if (is_block ? close_block(message) : !goes_on) break;
        str_add_char(message, '\n');
        got = line_editor_read(ed, "... ", &line);
    }
    if (got == LINE_END && message->len) got = LINE_READ; /* the end closes a block, too */
    if (line.failed) message->failed = true;
    str_fini(&line);
    return got;
}

/* Asks text, after what /read added. */
static int ask_model(struct chat_session *s, const char *text, bool *stopped, err *e) {
    str whole;
    str_init(&whole, PROMPT_MAX_BYTES);
    if (s->prefix) str_add(&whole, s->prefix);
    str_add(&whole, text);
    int rc = whole.failed
                 ? err_set(e, ERR_TOO_LONG, "the message is longer than %d bytes", PROMPT_MAX_BYTES)
                 : conversation_ask(&s->talk, str_cstr(&whole), stopped, e);
    str_fini(&whole);
    if (!rc) {
        free(s->prefix);
        s->prefix = NULL;
    }
    return rc;
}

/* Asks the last message again. Its answer stays until there is another one. */
static int ask_again(struct chat_session *s, bool *stopped, err *e) {
    cJSON *messages = s->talk.messages;
    int n = cJSON_GetArraySize(messages) - 2;
    cJSON *question = cJSON_DetachItemFromArray(messages, n);
    cJSON *answer = cJSON_DetachItemFromArray(messages, n);
    int rc = conversation_ask(&s->talk, client_string(question, "content"), stopped, e);
    if (cJSON_GetArraySize(messages) > n) {
        cJSON_Delete(question);
        cJSON_Delete(answer);
    } else {
        cJSON_AddItemToArray(messages, question);
        cJSON_AddItemToArray(messages, answer);
    }
    return rc;
}

/* A command or a message. */
static int take_message(struct chat_session *s, const char *text, bool *stopped, err *e) {
    if (!text[strspn(text, " \t\n")]) return 0;
    if (!chat_command_is(text)) return ask_model(s, text, stopped, e);
    int rc = chat_command_run(s, text, e);
    if (rc || !s->again) return rc;
    s->again = false;
    return ask_again(s, stopped, e);
}

/* interactive: a failed turn does not end the conversation, as it ends a script. */
static int read_messages(struct chat_session *s, line_editor *ed, bool interactive, err *e) {
    str message;
    int rc = 0;
    str_init(&message, PROMPT_MAX_BYTES);
    while (!s->ended && !rc) {
        bool stopped = false;
        client_forget_interrupts();
        enum line_result got = read_message(ed, &message);
        if (got == LINE_END || (got == LINE_INTERRUPTED && !interactive)) break;
        if (got == LINE_INTERRUPTED) {
            puts("(Ctrl-D or /bye ends)");
            continue;
        }
        if (message.failed)
            rc = err_set(e, ERR_TOO_LONG, "the message is longer than %d bytes", PROMPT_MAX_BYTES);
        else
            rc = textfile_check("the message", str_cstr(&message), message.len, e);
        if (!rc) rc = take_message(s, str_cstr(&message), &stopped, e);
        if (rc && interactive) {
            fprintf(stderr, "inferd: %s\n", e->msg);
            err_clear(e);
            rc = 0;
        }
        if (stopped && !interactive) break;
        fflush(stdout);
    }
    str_fini(&message);
    return rc ? 1 : 0;
}

static int talk_at_terminal(struct chat_session *s, bool interactive, err *e) {
    char *folder = NULL, *history = NULL;
    line_editor *ed;
    bool terminal = interactive && isatty(STDOUT_FILENO);
    err none;
    if (terminal && config_state_folder("", &folder, &none) == 0) {
        str path;
        str_init(&path, 8192);
        str_addf(&path, "%s/chat_history", folder);
        history = str_take(&path);
        str_fini(&path);
    }
    free(folder);
    const struct line_editor_config config = {.terminal = terminal,
                                              .history = history,
                                              .interrupted = client_interrupted,
                                              .complete = chat_command_complete};
    int status = line_editor_open(&config, &ed, e) ? 1 : 0;
    if (interactive && !status)
        printf("Talking to %s. /help lists commands, Ctrl-C stops an answer, Ctrl-D ends.\n",
               s->talk.model);
    if (!status) status = read_messages(s, ed, interactive, e);
    line_editor_close(ed);
    free(history);
    return status;
}

int chat_talk(const struct chat_line *l, err *e) {
    bool tty = isatty(STDIN_FILENO);
    struct chat_session s = {.ended = false};
    str prompt;
    int status = 1, rc;
    str_init(&prompt, PROMPT_MAX_BYTES);
    rc = conversation_init(&s.talk, &l->client, l->system, e);
    s.talk.json = l->json;
    s.talk.verbose = l->verbose;
    s.talk.colour = isatty(STDOUT_FILENO);
    if (!rc && settings_take(&l->settings, s.talk.settings, e)) {
        status = EXIT_USAGE;
        rc = ERR_INVALID;
    }
    if (!rc) rc = read_prompt(l, !tty && !l->lines, &prompt, e);
    client_catch_interrupts();
    if (!rc)
        rc = l->model ? conversation_set(&s.talk.model, l->model, e)
                      : conversation_find_model(&s.talk, e);
    if (!rc && (l->n_words || (!tty && !l->lines)))
        status = ask_once(&s.talk, str_cstr(&prompt), e);
    else if (!rc)
        status = talk_at_terminal(&s, tty && !l->lines, e);
    str_fini(&prompt);
    conversation_fini(&s.talk);
    free(s.prefix);
    return status;
}

/* ---- the command ---- */

size_t chat_options(struct chat_line *l, struct option *rows) {
    const struct option own[] = {
        CLIENT_OPTIONS(&l->client),
        {.name = "system",
         .kind = OPTION_TEXT,
         .target = &l->system,
         .value = "TEXT",
         .help = "system message"},
        {.name = "lines",
         .kind = OPTION_SWITCH,
         .target = &l->lines,
         .help = "each line of standard input is a message or a command, in one conversation; "
                 "without it, all of standard input is one message"},
        {.name = "json",
         .kind = OPTION_SWITCH,
         .target = &l->json,
         .help = "print the server's whole answer as JSON, not streamed"},
        {.name = "verbose",
         .kind = OPTION_SWITCH,
         .target = &l->verbose,
         .help = "print tokens and speed of each answer to stderr"},
    };
    size_t n = sizeof own / sizeof *own;
    memcpy(rows, own, sizeof own);
    return n + settings_options(&l->settings, rows + n);
}

int cmd_chat(int argc, char **argv, err *e) {
    static const char summary[] =
        "Talks to a running daemon. A PROMPT, text on standard input, or both (the text follows "
        "the prompt) is asked once; otherwise the terminal is read, where /help lists commands.";
    struct chat_line l = {.model = NULL};
    struct option rows[CHAT_OPTIONS_MAX + 1];
    size_t n = chat_options(&l, rows);
    rows[n++] = (struct option){.name = "model",
                                .kind = OPTION_TEXT,
                                .target = &l.model,
                                .value = "MODEL",
                                .help = "model to use (default: the first that the daemon lists)"};
    const struct options o = {.usage = "chat [PROMPT]",
                              .summary = summary,
                              .options = rows,
                              .n_options = n,
                              .args = l.words,
                              .max_args = CHAT_WORDS_MAX};
    int rc = options_parse(&o, argc, argv, &l.n_words, e);
    if (rc) return options_exit(rc);
    int status = client_open(&l.client, e);
    if (status < 0) status = chat_talk(&l, e);
    client_close(&l.client);
    return status;
}
