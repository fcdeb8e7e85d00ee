/* follow.h - a request that follows a model task: its job writes a line whenever the task changes,
 * or one answer when it has ended. Shared by the endpoints that load and pull; they differ in how
 * they write. */
#ifndef INFERD_API_GENERATE_FOLLOW_H
#define INFERD_API_GENERATE_FOLLOW_H

#include "api/generate/model_admin.h"
#include "core/base/str.h"

struct api_error;
struct request;

struct follow_writer {
    const char *content_type;
    /* Appends what a stream says of t, which changed since the last call or has not for a while. */
    void (*change)(const struct model_task *t, str *out);
    /* Appends the end of a stream: t succeeded, or error says why not. */
    void (*end)(const struct model_task *t, const struct api_error *error, str *out);
    /* The whole answer of a task that succeeded. */
    void (*whole)(const struct model_task *t, str *out);
};

struct follow_config {
    uint64_t task;
    const struct follow_writer *writer;
    bool stream;
    bool cancels; /* the task ends when its last follower hangs up */
};
/* Attaches the job to r. On failure nothing is left, and the task goes on. ERR_UNAVAILABLE: too
 * many follow it. */
int follow_start(struct request *r, const struct follow_config *config, err *e);

#endif
