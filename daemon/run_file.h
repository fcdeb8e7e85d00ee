/* run_file.h - which daemons of this user run: a file for each in the state folder, run/PID, with
 * its address, its models and "own" if it is one, locked by the daemon while it lives. A file
 * without a lock was left by a daemon that crashed and is removed. Main thread. */
#ifndef INFERD_RUN_FILE_H
#define INFERD_RUN_FILE_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct run_file {
    int fd; /* holds the lock; -1: none */
    char *path;
};

/* models: names, separated by commas. own: see run_daemon. ERR_IO: the folder cannot be written;
 * f->fd is -1. */
int run_file_open(struct run_file *f, const char *url, const char *models, bool own, err *e);
void run_file_close(struct run_file *f); /* and removes it */

struct run_daemon {
    pid_t pid;
    char *url, *models;
    bool own; /* of a program that started it for itself and ends it */
};

struct run_list {
    struct run_daemon *daemons; /* (n), in the order of their ids */
    size_t n;
};

/* ERR_IO, ERR_NOMEM. Without a state folder the list is empty. */
int run_list_read(struct run_list *list, err *e);
void run_list_fini(struct run_list *list);

#endif
