/* commands/serve.c - inferd serve: arguments, log, then the lifecycle. */
#include "daemon/commands/commands.h"
#include "daemon/lifecycle.h"
#include "daemon/logsink.h"
#include "daemon/options.h"

int cmd_serve(int argc, char **argv, err *e) {
    struct config c;
    bool until_stdin_ends = false;
    const struct option own[] = {
        {.name = "until-stdin-ends",
         .kind = OPTION_SWITCH,
         .target = &until_stdin_ends,
         .help = "stop when standard input ends, for programs that start a daemon for themselves"}};
    if (config_init(&c, e)) return 1;
    const struct options o = {
        .usage = "serve",
        .summary =
            "Serves models over an OpenAI-compatible HTTP API until SIGTERM or Ctrl-C. SIGHUP "
            "is ignored: a changed configuration needs a restart.",
        .options = own,
        .n_options = 1,
        .config = &c};
    int status, rc = options_parse(&o, argc, argv, NULL, e);
    if (rc) {
        status = options_exit(rc);
    } else {
        logsink_open(c.log_level);
        status = lifecycle_serve(&c, until_stdin_ends, e) ? 1 : 0;
    }
    config_fini(&c);
    return status;
}
