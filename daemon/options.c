/* options.c - argument tables: --name VALUE, --name=VALUE, --switch, -- ends options. */
#include "daemon/options.h"

#include "daemon/help.h"
#include "daemon/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEMS_MAX_BYTES = 1 << 16 };

/* One parsed --flag: one of option and key, or is_config or help. */
struct flag {
    const struct option *option;
    const struct config_key *key;
    const struct help_format *help; /* NULL: none is asked for */
    bool is_config;
    char name[64];
    const char *value; /* after '=', or NULL */
};

bool options_take_key(const struct options *o, const struct config_key *key) {
    if (!o->config) return false;
    if (!o->keys) return true;
    for (const char *const *k = o->keys; *k; k++)
        if (strcmp(*k, key->name) == 0) return true;
    return false;
}

static int err_unknown(const struct options *o, const char *name, err *e) {
    struct suggest s;
    size_t n;
    const struct config_key *keys = config_keys(&n);
    suggest_init(&s, name);
    for (size_t i = 0; i < o->n_options; i++)
        suggest_offer(&s, o->options[i].name);
    for (size_t i = 0; i < n; i++)
        if (options_take_key(o, &keys[i])) suggest_offer(&s, keys[i].name);
    if (o->config) suggest_offer(&s, "config");
    suggest_offer(&s, "help");
    if (s.best)
        return err_set(e, ERR_INVALID, "unknown option --%s: did you mean --%s?", name, s.best);
    return err_set(e, ERR_INVALID, "unknown option --%s", name);
}

static int identify_flag(const struct options *o, const char *arg, struct flag *f, err *e) {
    bool bad;
    memset(f, 0, sizeof *f);
    f->help = help_asked(arg, &bad, e);
    if (f->help || bad) return bad ? ERR_INVALID : 0;
    if (arg[1] != '-') return err_set(e, ERR_INVALID, "unknown option %.40s", arg);
    const char *equals = strchr(arg, '=');
    size_t n = equals ? (size_t)(equals - arg - 2) : strlen(arg + 2);
    snprintf(f->name, sizeof f->name, "%.*s", n < sizeof f->name ? (int)n : (int)sizeof f->name - 1,
             arg + 2);
    f->value = equals ? equals + 1 : NULL;
    if (o->config && strcmp(f->name, "config") == 0) {
        f->is_config = true;
        return 0;
    }
    for (size_t i = 0; i < o->n_options; i++)
        if (strcmp(o->options[i].name, f->name) == 0) f->option = &o->options[i];
    if (f->option) return 0;
    f->key = config_find(f->name);
    if (f->key && options_take_key(o, f->key)) return 0;
    return err_unknown(o, f->name, e);
}

static int set_option(const struct option *option, const char *value, err *e) {
    if (option->kind == OPTION_SWITCH) {
        *(bool *)option->target = true;
    } else if (option->kind == OPTION_TEXT || option->kind == OPTION_MAYBE) {
        *(const char **)option->target = value;
    } else if (option->kind == OPTION_LIST) {
        struct option_list *list = option->target;
        if (list->n == OPTION_LIST_MAX)
            return err_set(e, ERR_INVALID, "--%s is repeated more than %d times", option->name,
                           OPTION_LIST_MAX);
        list->items[list->n++] = value;
    } else {
        char *end;
        errno = 0;
        unsigned long long n = strtoull(value, &end, 10);
        if (*value < '0' || *value > '9' || *end || errno)
            return err_set(e, ERR_INVALID, "--%s: \"%.64s\" is not a number", option->name, value);
        if (n < option->min || n > option->max)
            return err_set(e, ERR_INVALID, "--%s: %llu is out of bounds (%llu to %llu)",
                           option->name, n, (unsigned long long)option->min,
                           (unsigned long long)option->max);
        *(uint64_t *)option->target = n;
    }
    return 0;
}

static int load_config(struct config *c, const char *path, err *e) {
    str problems;
    str_init(&problems, PROBLEMS_MAX_BYTES);
    int rc = config_load(c, path, &problems, e);
    str_fini(&problems);
    return rc;
}

/* One pass over argv. The first pass reads files of --config, the second sets everything else, so
 * flags take precedence in any position. */
static int parse_pass(const struct options *o, int argc, char **argv, bool files, size_t *n_args,
                      err *e) {
    bool only_args = false;
    *n_args = 0;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!only_args && strcmp(arg, "--") == 0) {
            only_args = true;
            continue;
        }
        if (only_args || arg[0] != '-' || arg[1] == '\0') {
            if (*n_args == o->max_args)
                return err_set(e, ERR_INVALID, "unexpected argument \"%.64s\"", arg);
            o->args[(*n_args)++] = arg;
            continue;
        }
        struct flag f;
        int rc = identify_flag(o, arg, &f, e);
        if (rc) return rc;
        if (f.help) {
            if (files) help_print_options(o, f.help);
            return OPTIONS_HELP;
        }
        bool is_switch = f.option && f.option->kind == OPTION_SWITCH;
        if (is_switch && f.value) return err_set(e, ERR_INVALID, "--%s takes no value", f.name);
        bool may_lack = f.option && f.option->kind == OPTION_MAYBE;
        if (may_lack && !f.value && (i + 1 == argc || argv[i + 1][0] == '-')) f.value = "";
        if (!is_switch && !f.value) {
            if (i + 1 == argc) return err_set(e, ERR_INVALID, "--%s requires a value", f.name);
            f.value = argv[++i];
        }
        if (f.is_config) {
            if (files) rc = load_config(o->config, f.value, e);
        } else if (!files) {
            rc = f.option ? set_option(f.option, f.value, e)
                          : config_set(o->config, f.name, f.value, e);
        }
        if (rc) return rc;
    }
    return 0;
}

int options_parse(const struct options *o, int argc, char **argv, size_t *n_args, err *e) {
    size_t n;
    int rc = parse_pass(o, argc, argv, true, &n, e);
    if (!rc) rc = parse_pass(o, argc, argv, false, &n, e);
    if (!rc && n < o->min_args) rc = err_set(e, ERR_INVALID, "usage: inferd %s", o->usage);
    if (n_args) *n_args = n;
    return rc;
}

int options_exit(int rc) {
    return rc == OPTIONS_HELP ? 0 : EXIT_USAGE;
}
