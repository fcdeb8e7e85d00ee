/* settings.c - the table of settings and their parsing. */
#include "daemon/commands/settings.h"

#include "core/base/sampling.h"
#include "daemon/input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { REAL, ABOVE, COUNT, TEXT };

struct setting {
    const char *name, *value;
    enum kind kind;
    double least, most;
    const char *help;
};

#define SETTING_V_REAL  "X"
#define SETTING_V_ABOVE "X"
#define SETTING_V_COUNT "N"
#define SETTING_ROW(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                   \
    {#NAME, SETTING_V_##KIND, KIND, LEAST, MOST, HELP},

static const struct setting settings[] = {
    SAMPLING_ROWS(SETTING_ROW, ){"max_tokens", "N", COUNT, 1, 1 << 24,
                                 "Maximum length of an answer, tokens."},
    {"seed", "N", COUNT, 0, 9007199254740991, "The same seed gives the same answer."},
    {"stop", "TEXT", TEXT, 0, 0, "Ends the answer before this text."},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

const char *settings_name(size_t i) {
    return i < N_SETTINGS ? settings[i].name : NULL;
}

static void swap_char(char *text, char from, char to) {
    for (; *text; text++)
        if (*text == from) *text = to;
}

size_t settings_options(struct settings_options *s, struct option *rows) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        snprintf(s->names[i], sizeof s->names[i], "%s", settings[i].name);
        swap_char(s->names[i], '_', '-');
        rows[i] = (struct option){.name = s->names[i],
                                  .kind = OPTION_TEXT,
                                  .target = &s->values[i],
                                  .value = settings[i].value,
                                  .help = settings[i].help};
    }
    return N_SETTINGS;
}

int settings_take(const struct settings_options *s, cJSON *values, err *e) {
    int rc = 0;
    for (size_t i = 0; i < N_SETTINGS && !rc; i++)
        if (s->values[i]) rc = settings_set(values, settings[i].name, s->values[i], e);
    return rc;
}

static const struct setting *find_setting(const char *name, err *e) {
    char folded[40];
    struct suggest s;
    snprintf(folded, sizeof folded, "%s", name);
    swap_char(folded, '-', '_');
    suggest_init(&s, folded);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (strcmp(settings[i].name, folded) == 0) return &settings[i];
        suggest_offer(&s, settings[i].name);
    }
    if (s.best)
        err_set(e, ERR_INVALID, "there is no setting %s: did you mean %s?", folded, s.best);
    else
        err_set(e, ERR_INVALID, "there is no setting %s; /set lists them", folded);
    return NULL;
}

int settings_set(cJSON *values, const char *name, const char *value, err *e) {
    const struct setting *s = find_setting(name, e);
    if (!s) return ERR_INVALID;
    cJSON *item = NULL;
    if (s->kind == TEXT) {
        item = cJSON_CreateString(value);
    } else if (value[0]) {
        char *end;
        double v = strtod(value, &end);
        if (*end || end == value || !isfinite(v) || (s->kind == COUNT && v != floor(v)))
            return err_set(e, ERR_INVALID, "%s: \"%.40s\" is not %s number", s->name, value,
                           s->kind == COUNT ? "a whole" : "a");
        if (v < s->least || v > s->most || (s->kind == ABOVE && v <= s->least))
            return err_set(e, ERR_INVALID, "%s: %s is out of bounds (%s%.16g to %.16g)", s->name,
                           value, s->kind == ABOVE ? "above " : "", s->least, s->most);
        item = cJSON_CreateNumber(v);
    }
    cJSON_DeleteItemFromObjectCaseSensitive(values, s->name);
    if (value[0])
        cJSON_AddItemToObject(values, s->name, item);
    else
        cJSON_Delete(item);
    return 0;
}

void settings_print(const cJSON *values) {
    for (size_t i = 0; i < N_SETTINGS; i++) {
        char *text =
            cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(values, settings[i].name));
        printf("  %-20s %-10s %s\n", settings[i].name, text ? text : "default", settings[i].help);
        cJSON_free(text);
    }
}
