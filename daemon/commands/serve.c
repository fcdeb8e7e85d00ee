/* commands/serve.c - inferd serve: arguments, log, then the lifecycle. */
#include "core/base/log.h"
#include "daemon/commands/commands.h"
#include "daemon/key_names.h"
#include "daemon/lifecycle.h"
#include "daemon/logsink.h"
#include "daemon/options.h"
#include "daemon/ranks.h"

#include <string.h>

struct arguments {
    int argc;
    char **argv;
    bool until_stdin_ends;
};

/* Returns as options_parse does; c is empty after anything but 0. */
static int read_arguments(struct arguments *a, struct config *c, err *e) {
    const struct option own[] = {
        {.name = "until-stdin-ends",
         .kind = OPTION_SWITCH,
         .target = &a->until_stdin_ends,
         .help = "stop when standard input ends, for programs that start a daemon for themselves"}};
    const struct options o = {
        .usage = "serve",
        .summary =
            "Serves models over an OpenAI-compatible HTTP API until SIGTERM or Ctrl-C. SIGHUP, or "
            "`inferd reload`, reads the configuration file again.",
        .options = own,
        .n_options = 1,
        .config = c};
    int rc = config_init(c, e);
    if (rc) return rc;
    rc = options_parse(&o, a->argc, a->argv, NULL, e);
    if (rc) config_fini(c);
    return rc;
}

static int read_again(void *arg, struct config *c, err *e) {
    struct arguments same = *(const struct arguments *)arg;
    int rc = read_arguments(&same, c, e);
    if (rc || !(rc = ranks_check(c, e))) return rc;
    config_fini(c);
    return rc;
}

int cmd_serve(int argc, char **argv, err *e) {
    struct arguments arguments = {argc, argv, false};
    struct config c;
    int rc = read_arguments(&arguments, &c, e);
    if (rc) return options_exit(rc);
    struct lifecycle_options o = {arguments.until_stdin_ends, NULL, read_again, &arguments};
    bool followed = false;
    logsink_open(c.log_level, c.log_format);
    rc = ranks_check(&c, e);
    if (!rc) rc = ranks_join(&c, &o.group, &followed, e);
    if (!rc && !followed) rc = lifecycle_serve(&c, &o, e);
    engine_group_leave(o.group);
    if (rc && !followed) config_locate(&c, e);
    if (rc && strcmp(c.log_format, "json") == 0) { /* main would print it as text */
        key_names_put(e);
        log_error("%s", e->msg);
        e->msg[0] = '\0';
    }
    config_fini(&c);
    return rc ? 1 : 0;
}
