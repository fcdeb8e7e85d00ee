/* zmq.c - see zmq.h. */
#include "core/kvevents/zmq.h"

#include <dlfcn.h>
#include <string.h>

#ifdef __APPLE__
static const char *const names[] = {"libzmq.5.dylib", "/opt/homebrew/lib/libzmq.5.dylib",
                                    "/usr/local/lib/libzmq.5.dylib"};
#else
static const char *const names[] = {"libzmq.so.5"};
#endif

int zmq_load(struct zmq *out, err *e) {
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, ERR_UNAVAILABLE,
                       "libzmq 4 is not installed (Debian: libzmq5, Homebrew: zeromq)");
    const struct {
        const char *name;
        void *function; /* a pointer in out */
    } rows[] = {{"zmq_ctx_new", &out->ctx_new},
                {"zmq_ctx_term", &out->ctx_term},
                {"zmq_socket", &out->socket},
                {"zmq_close", &out->close},
                {"zmq_setsockopt", &out->setsockopt},
                {"zmq_getsockopt", &out->getsockopt},
                {"zmq_bind", &out->bind},
                {"zmq_send", &out->send},
                {"zmq_recv", &out->recv},
                {"zmq_errno", &out->error},
                {"zmq_strerror", &out->strerror}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *function = dlsym(library, rows[i].name);
        if (!function)
            return err_set(e, ERR_UNAVAILABLE, "this libzmq has no function %s", rows[i].name);
        memcpy(rows[i].function, &function, sizeof function);
    }
    return 0;
}
