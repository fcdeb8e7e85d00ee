/* commands/reload.c - inferd reload: asks a daemon to read its configuration again. */
#include "daemon/commands/client.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"

#include <stdio.h>

static void print_names(const char *what, const cJSON *names) {
    const cJSON *name;
    if (!cJSON_GetArraySize(names)) return;
    printf("%s:", what);
    cJSON_ArrayForEach(name, names) {
        printf(" %s", cJSON_GetStringValue(name));
    }
    putchar('\n');
}

int cmd_reload(int argc, char **argv, err *e) {
    struct client c = {0};
    bool json = false;
    const struct option own[] = {
        CLIENT_OPTIONS(&c),
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print a JSON object"}};
    const struct options o = {
        .usage = "reload",
        .summary =
            "Asks a running daemon to read its configuration file, its files of API keys and "
            "its certificates again, as SIGHUP does, and prints which keys it applied and "
            "which need a restart. Needs an administrator's key where keys are set. A file "
            "with a mistake changes nothing.",
        .options = own,
        .n_options = sizeof own / sizeof own[0]};
    cJSON *answer = NULL;
    int rc = options_parse(&o, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    int status = client_open(&c, e);
    if (status >= 0) return status;
    rc = client_post(&c, "/v1/inferd/reload", "{}", &answer, e);
    client_close(&c);
    if (rc) return 1;
    if (json) return printing_json(answer, e) ? 1 : 0;
    const cJSON *applied = cJSON_GetObjectItemCaseSensitive(answer, "applied");
    const cJSON *pending = cJSON_GetObjectItemCaseSensitive(answer, "needs_restart");
    print_names("applied", applied);
    print_names("needs a restart", pending);
    if (!cJSON_GetArraySize(applied) && !cJSON_GetArraySize(pending)) puts("nothing has changed");
    cJSON_Delete(answer);
    return 0;
}
