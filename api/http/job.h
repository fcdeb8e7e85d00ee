/* job.h - the work behind an answer that has to wait for tokens. Started by a route's handler, it
 * belongs to the request until its `free` or `cut`. */
#ifndef INFERD_API_HTTP_JOB_H
#define INFERD_API_HTTP_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct request;

enum job_status { JOB_WAIT, JOB_REPLY, JOB_WORK };
enum {
    JOB_READ_END = -1,
    JOB_READ_WORK = -2,
    JOB_READ_CUT =
        -3 /* bytes are lost: the connection closes, and the client sees a truncated body */
};

struct job_ops {
    /* Looks for events. JOB_REPLY: the reply is filled, possibly with an error. JOB_WAIT: call
     * again after the next notification. JOB_WORK: call `work` first. HTTP thread. */
    enum job_status (*poll)(struct request *r, void *job);
    /* Body of a streamed reply: bytes written (up to max), 0 if there are none now, or JOB_READ_*.
     * HTTP thread. */
    ssize_t (*read)(struct request *r, void *job, char *buf, size_t max);
    /* Work that would take too long on an HTTP thread, which serves other streams too. Pool
     * thread. */
    void (*work)(struct request *r, void *job);
    /* Also ends the job's streams: no notification comes afterwards. */
    void (*free)(void *job);
    /* The connection ended before the job. true: the job lives on and has left the request; false,
     * or a NULL pointer: `free` follows. */
    bool (*cut)(struct request *r, void *job);
};

#endif
