/* settings.h - what a chat sends beside its messages: the sampling parameters, from the table of
 * core/base/sampling.h, and the bounds of an answer. One table makes the options of `inferd chat`,
 * its /set, and the fields of the request. Main thread. */
#ifndef INFERD_DAEMON_COMMANDS_SETTINGS_H
#define INFERD_DAEMON_COMMANDS_SETTINGS_H

#include "daemon/options.h"

#include <cjson/cJSON.h>

enum { SETTINGS_MAX = 16 };

/* Options and what they were given; settings_options fills it. Zero at first. */
struct settings_options {
    char names[SETTINGS_MAX][32];
    const char *values[SETTINGS_MAX];
};

/* Writes a row of options for each setting; returns how many (at most SETTINGS_MAX). */
size_t settings_options(struct settings_options *s, struct option *rows);
/* Stores the options that were given. ERR_INVALID. */
int settings_take(const struct settings_options *s, cJSON *values, err *e);

/* Sets a member of values, an object of request fields; '-' in names is '_'. An empty value removes
 * it: the server's default. ERR_INVALID (bounds; an unknown name, with a suggestion). */
int settings_set(cJSON *values, const char *name, const char *value, err *e);

/* Prints every setting with its value, or "default". */
void settings_print(const cJSON *values);
/* The i-th name; NULL: no more. */
const char *settings_name(size_t i);

#endif
