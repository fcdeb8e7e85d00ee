/* client.h - what the commands that talk to a running daemon share: its address, the API key,
 * Ctrl-C, and answers as JSON. Main thread. */
#ifndef INFERD_DAEMON_COMMANDS_CLIENT_H
#define INFERD_DAEMON_COMMANDS_CLIENT_H

#include "daemon/config.h"
#include "daemon/options.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#define CLIENT_DEFAULT_URL "http://127.0.0.1:8080"

/* Zero at first; options fill url and key_file. Others read url and api_key after client_open. */
struct client {
    const char *url; /* NULL: not given */
    const char *key_file;
    const char *api_key; /* NULL: none */
    struct config_api_keys keys;
    char *found; /* owns url if it was found, not given */
};

/* Rows of a command's options. */
#define CLIENT_OPTIONS(C)                                                                          \
    {.name = "url",                                                                                \
     .kind = OPTION_TEXT,                                                                          \
     .target = &(C)->url,                                                                          \
     .value = "URL",                                                                               \
     .help = "daemon to talk to, http, https or unix:/PATH (default: the one of this user that "   \
             "runs, else "                                                                         \
             "http://127.0.0.1:8080)"},                                                            \
    {                                                                                              \
        .name = "api-key-file", .kind = OPTION_TEXT, .target = &(C)->key_file, .value = "FILE",    \
        .help = "file with the API key in its first line (default: $INFERD_API_KEY)"               \
    }

/* Checks the address, or finds a daemon, and reads the key. Returns -1 to continue, else the exit
 * status. */
int client_open(struct client *c, err *e);
void client_close(struct client *c);

/* GET path. The answer's object goes to *root (cJSON_Delete). ERR_INVALID: another status than 200,
 * with the server's message. */
int client_get(const struct client *c, const char *path, cJSON **root, err *e);

/* The same by POST of a JSON body. */
int client_post(const struct client *c, const char *path, const char *body, cJSON **root, err *e);

/* POST of a file as /v1/files takes it. */
int client_upload(const struct client *c, const char *file, cJSON **root, err *e);
/* GET path, whose body is written to out. ERR_IO: it cannot be. */
int client_download(const struct client *c, const char *path, FILE *out, err *e);

/* GET path as text, at most 1 MiB; the caller frees *text. Errors as client_get's. */
int client_get_text(const struct client *c, const char *path, char **text, err *e);

/* Parses a body of the server; NULL if it is not JSON. */
cJSON *client_parse(const char *text, size_t n);
const char *client_string(const cJSON *o, const char *name); /* NULL: no such string */

/* Reads {"error": {"message": ...}}. false: text is something else. status 0: of a stream. */
bool client_read_error(const char *text, size_t n, int status, err *e);

/* Ctrl-C is counted from now on and no longer ends the process; SIGPIPE is ignored. No write is
 * interrupted: stdio would lose the text. */
void client_catch_interrupts(void);
/* SIGTERM and SIGHUP (unless ignored) count as Ctrl-C, for a command that leaves something to
 * remove or to write. */
void client_catch_ends(void);
void client_release_interrupts(void); /* Ctrl-C ends the process again */
/* Does Ctrl-C interrupt system calls? For the time of a read that may wait for ever. */
void client_interrupt_calls(bool on);
bool client_interrupted(void);
void client_forget_interrupts(void);

#endif
