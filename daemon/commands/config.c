/* commands/config.c - inferd config example | check FILE | man. */
#include "daemon/commands/commands.h"
#include "daemon/help.h"
#include "daemon/options.h"

#include <stdio.h>

enum { TEXT_MAX_BYTES = 1 << 18 };

static int run_example(int argc, char **argv, err *e) {
    const struct options o = {.usage = "config example",
                              .summary = "Prints daemon.conf with every key at its default."};
    int rc = options_parse(&o, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    str text;
    str_init(&text, TEXT_MAX_BYTES);
    config_add_example(&text);
    fputs(str_cstr(&text), stdout);
    str_fini(&text);
    return 0;
}

static int run_man(int argc, char **argv, err *e) {
    const struct options o = {.usage = "config man",
                              .summary = "Prints the manual page inferd.conf(5)."};
    int rc = options_parse(&o, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    str text;
    str_init(&text, TEXT_MAX_BYTES);
    help_add_config_page(&text);
    fputs(str_cstr(&text), stdout);
    str_fini(&text);
    return 0;
}

static int run_check(int argc, char **argv, err *e) {
    const char *file;
    const struct options o = {
        .usage = "config check FILE",
        .summary = "Checks a configuration file. Prints ok, or each problem as FILE:LINE: text.",
        .args = &file,
        .min_args = 1,
        .max_args = 1};
    int rc = options_parse(&o, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    struct config c;
    str problems;
    rc = config_init(&c, e);
    if (rc) return 1;
    str_init(&problems, TEXT_MAX_BYTES);
    rc = config_load(&c, file, &problems, e);
    if (problems.len) {
        fputs(str_cstr(&problems), stderr);
        err_clear(e); /* already printed */
    }
    str_fini(&problems);
    config_fini(&c);
    if (rc) return EXIT_USAGE;
    puts("ok");
    return 0;
}

int cmd_config(int argc, char **argv, err *e) {
    static const struct command commands[] = {
        {"example", "print daemon.conf with every key at its default", run_example},
        {"check", "check a file", run_check},
        {"man", "print the manual page inferd.conf(5)", run_man},
    };
    static const struct command_table table = {"inferd config", "The configuration file.", commands,
                                               sizeof commands / sizeof commands[0]};
    return command_run(&table, argc, argv, e);
}
