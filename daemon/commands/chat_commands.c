/* chat_commands.c - the table and the commands. */
#include "daemon/commands/chat_commands.h"

#include "core/base/file.h"
#include "daemon/commands/settings.h"
#include "daemon/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAVED_MAX_BYTES = 64 << 20, READ_MAX_BYTES = 1 << 20, NAME_BYTES = 32, PATH_BYTES = 4352 };

struct chat_command {
    const char *name, *arguments, *also; /* also: other names, "a|b" */
    const char *help;
    int (*run)(struct chat_session *s, const char *rest, err *e);
};

static int change_system(struct chat_session *s, const char *rest, err *e) {
    if (*rest) return conversation_set(&s->talk.system, strcmp(rest, "-") ? rest : NULL, e);
    print_safe(s->talk.system ? s->talk.system : "(no system message)");
    putchar('\n');
    return 0;
}

static int change_setting(struct chat_session *s, const char *rest, err *e) {
    char name[NAME_BYTES];
    size_t n = strcspn(rest, " \t");
    if (!n) {
        printf("  %-20s %s\n", "verbose", s->talk.verbose ? "on" : "off");
        settings_print(s->talk.settings);
        return 0;
    }
    snprintf(name, sizeof name, "%.*s", (int)n, rest);
    rest += n + strspn(rest + n, " \t");
    if (strcmp(name, "verbose") != 0) return settings_set(s->talk.settings, name, rest, e);
    if (strcmp(rest, "on") != 0 && strcmp(rest, "off") != 0)
        return err_set(e, ERR_INVALID, "expected /set verbose on or off");
    s->talk.verbose = strcmp(rest, "on") == 0;
    return 0;
}

static int change_model(struct chat_session *s, const char *rest, err *e) {
    cJSON *root;
    const cJSON *m;
    if (*rest) return conversation_choose_model(&s->talk, rest, e);
    int rc = client_get(s->talk.client, "/v1/models", &root, e);
    if (rc) return rc;
    cJSON_ArrayForEach(m, cJSON_GetObjectItemCaseSensitive(root, "data")) {
        const char *id = client_string(m, "id");
        if (!id) continue;
        fputs(strcmp(id, s->talk.model) ? "  " : "* ", stdout);
        print_safe(id);
        putchar('\n');
    }
    cJSON_Delete(root);
    return 0;
}

/* A name becomes chats/NAME.json in the state folder; what has a slash is a path. */
static int find_saved(const char *name, char path[PATH_BYTES], err *e) {
    char *folder;
    if (!*name) return err_set(e, ERR_INVALID, "expected a name or a path");
    if (strchr(name, '/')) {
        snprintf(path, PATH_BYTES, "%s", name);
        return 0;
    }
    if (name[0] == '.' || strlen(name) > 200)
        return err_set(e, ERR_INVALID, "\"%.200s\" is not a name of a chat", name);
    int rc = config_state_folder("chats", &folder, e);
    if (rc) return rc;
    snprintf(path, PATH_BYTES, "%s/%s.json", folder, name);
    free(folder);
    return 0;
}

static int save_chat(struct chat_session *s, const char *rest, err *e) {
    char path[PATH_BYTES], part[PATH_BYTES + 8];
    int rc = find_saved(rest, path, e);
    if (rc) return rc;
    cJSON *body = conversation_body(&s->talk);
    char *text = body ? cJSON_Print(body) : NULL;
    cJSON_Delete(body);
    if (!text) return err_no_memory(e);
    snprintf(part, sizeof part, "%s.part", path);
    int fd = file_open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || file_write_at(fd, text, strlen(text), 0) || file_sync(fd) ||
        file_rename(part, path))
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    cJSON_free(text);
    if (rc)
        unlink(part);
    else
        printf("saved to %s\n", path);
    return rc;
}

static int load_chat(struct chat_session *s, const char *rest, err *e) {
    char path[PATH_BYTES], *text;
    size_t n;
    int rc = find_saved(rest, path, e);
    if (!rc) rc = textfile_read(path, SAVED_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    cJSON *body = client_parse(text, n);
    free(text);
    rc = conversation_take(&s->talk, body, e);
    cJSON_Delete(body);
    if (rc) return err_prefix(e, "%s: ", path);
    printf("loaded %d messages for %s\n", cJSON_GetArraySize(s->talk.messages), s->talk.model);
    return 0;
}

/* Adds a file's text to what precedes the next message. */
static int read_file(struct chat_session *s, const char *rest, err *e) {
    char *text;
    size_t n;
    str all;
    if (!*rest) return err_set(e, ERR_INVALID, "expected /read FILE");
    int rc = textfile_read(rest, READ_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    if ((rc = textfile_check(rest, text, n, e))) {
        free(text);
        return rc;
    }
    str_init(&all, 4 * READ_MAX_BYTES);
    if (s->prefix) str_add(&all, s->prefix);
    str_addf(&all, "%s\n\n", text);
    free(text);
    char *joined = str_take(&all);
    str_fini(&all);
    if (!joined)
        return err_set(e, ERR_TOO_LONG, "the files are longer than %d bytes together",
                       4 * READ_MAX_BYTES);
    free(s->prefix);
    s->prefix = joined;
    printf("%zu bytes of %s precede the next message\n", n, rest);
    return 0;
}

static int regenerate_answer(struct chat_session *s, const char *rest, err *e) {
    (void)rest;
    int n = cJSON_GetArraySize(s->talk.messages);
    const char *role = client_string(cJSON_GetArrayItem(s->talk.messages, n - 1), "role");
    if (n < 2 || strcmp(role, "assistant") != 0)
        return err_set(e, ERR_INVALID, "there is no answer yet");
    s->again = true;
    return 0;
}

static int clear_chat(struct chat_session *s, const char *rest, err *e) {
    (void)rest, (void)e;
    conversation_clear(&s->talk);
    free(s->prefix);
    s->prefix = NULL;
    return 0;
}

/* The server says what a model takes, in its capabilities; this one never lists images. */
static int add_image(struct chat_session *s, const char *rest, err *e) {
    (void)rest;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s takes no images: inferd serves models of text only. Describe the image in "
                   "words, or add a text file with /read",
                   s->talk.model);
}

static int end_chat(struct chat_session *s, const char *rest, err *e) {
    (void)rest, (void)e;
    s->ended = true;
    return 0;
}

static int say_help(struct chat_session *s, const char *rest, err *e);

static const struct chat_command commands[] = {
    {"help", "", "?", "this list", say_help},
    {"system", "[TEXT]", "", "show or replace the system message; - removes it", change_system},
    {"set", "[NAME [VALUE]]", "", "show or change a setting; no value: the default",
     change_setting},
    {"model", "[NAME]", "", "list the models or choose another one", change_model},
    {"regen", "", "", "answer the last message again", regenerate_answer},
    {"read", "FILE", "", "put a text file before the next message", read_file},
    {"image", "FILE", "", "models that inferd serves take no images", add_image},
    {"save", "NAME", "", "save the chat; a name with / is a path", save_chat},
    {"load", "NAME", "", "continue a saved chat", load_chat},
    {"clear", "", "reset", "forget the conversation", clear_chat},
    {"bye", "", "quit|exit", "end, as Ctrl-D does", end_chat},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int say_help(struct chat_session *s, const char *rest, err *e) {
    (void)s, (void)rest, (void)e;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        char words[48];
        snprintf(words, sizeof words, "/%s %s", commands[i].name, commands[i].arguments);
        printf("  %-22s %s\n", words, commands[i].help);
    }
    puts("\nA message of several lines stands between two lines of \"\"\", or each of its lines\n"
         "but the last ends with \\. A pasted text may have several lines.\n"
         "Ctrl-C stops an answer, Ctrl-D ends, Up and Ctrl-R find earlier lines.");
    return 0;
}

bool chat_command_is(const char *line) {
    size_t n = line[0] == '/' ? strcspn(line, " \t\n") : 0;
    return n > 1 && !memchr(line + 1, '/', n - 1) && !strchr(line, '\n');
}

int chat_command_run(struct chat_session *s, const char *line, err *e) {
    char name[NAME_BYTES];
    struct suggest similar;
    size_t n = strcspn(++line, " \t");
    snprintf(name, sizeof name, "%.*s", (int)n, line);
    line += n + strspn(line + n, " \t");
    suggest_init(&similar, name);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0 || words_hold(commands[i].also, name))
            return commands[i].run(s, line, e);
        suggest_offer(&similar, commands[i].name);
    }
    if (similar.best)
        return err_set(e, ERR_INVALID, "unknown command /%s: did you mean /%s?", name,
                       similar.best);
    return err_set(e, ERR_INVALID, "unknown command /%s; /help lists them", name);
}

void chat_command_complete(void *arg, const char *line, size_t n,
                           void (*offer)(void *to, const char *word), void *to) {
    char word[64];
    (void)arg;
    bool is_set = n >= 5 && strncmp(line, "/set ", 5) == 0;
    if (is_set) {
        line += 5;
        n -= 5;
    }
    if (memchr(line, ' ', n) || (!is_set && (!n || line[0] != '/'))) return;
    const char *name;
    for (size_t i = 0; (name = is_set           ? settings_name(i)
                               : i < N_COMMANDS ? commands[i].name
                                                : 0);
         i++) {
        snprintf(word, sizeof word, "%s%s", is_set ? "" : "/", name);
        if (strncmp(word, line, n) == 0) offer(to, word);
    }
}
