/* test_kvevents.c - batches of KV events byte for byte, by the rules of MessagePack's
 * specification, and the publisher's thread between caches that come and go. What subscribers see
 * of it: tests/http/kv_events.test.mjs. */
#include "core/kvevents/kvevents.h"
#include "core/kvevents/pack.h"

#include "check.h"

#include <pthread.h>

/* bytes as hex digits, with blanks. */
static void check_bytes(const str *got, const char *want) {
    char text[3 * 512];
    size_t n = 0;
    for (size_t i = 0; i < got->len && n + 4 < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%02x", i ? " " : "",
                              (unsigned char)got->data[i]);
    CHECK_STR(text, want);
}

static void events_are_arrays(void) {
    const struct pack_event events[] = {
        {.kind = PACK_STORED, .hash = 0x7f, .tokens = {0, 127, 128, 255}},
        {.kind = PACK_STORED,
         .hash = 256,
         .parent = 0x7f,
         .has_parent = true,
         .tokens = {256, 65535, 65536, INT32_MAX}},
        {.kind = PACK_STORED,
         .hash = UINT64_MAX,
         .parent = 5,
         .has_parent = true,
         .tokens = {1, 1, 1, 1}},
        {.kind = PACK_REMOVED, .hash = 256},
        {.kind = PACK_REMOVED, .hash = 0x7f},
        {.kind = PACK_CLEARED},
        {.kind = PACK_CLEARED},
    };
    str out;
    str_init(&out, 4096);
    pack_batch(events, sizeof events / sizeof *events, 4, 1.5, &out);
    check_bytes(&out, "93 cb 3f f8 00 00 00 00 00 00 95 "
                      /* the second follows the first; the third does not follow the second */
                      "98 ab 42 6c 6f 63 6b 53 74 6f 72 65 64 92 7f cd 01 00 c0 "
                      "98 00 7f cc 80 cc ff cd 01 00 cd ff ff ce 00 01 00 00 ce 7f ff ff ff "
                      "04 c0 a3 47 50 55 c0 "
                      "98 ab 42 6c 6f 63 6b 53 74 6f 72 65 64 91 cf ff ff ff ff ff ff ff ff 05 "
                      "94 01 01 01 01 04 c0 a3 47 50 55 c0 "
                      "93 ac 42 6c 6f 63 6b 52 65 6d 6f 76 65 64 92 cd 01 00 7f a3 47 50 55 "
                      "91 b0 41 6c 6c 42 6c 6f 63 6b 73 43 6c 65 61 72 65 64 "
                      "91 b0 41 6c 6c 42 6c 6f 63 6b 73 43 6c 65 61 72 65 64 "
                      "00");
    str_fini(&out);
}

static void long_runs_have_long_arrays(void) {
    struct pack_event events[16] = {{.kind = PACK_REMOVED}};
    str out;
    for (size_t i = 0; i < 16; i++)
        events[i] = (struct pack_event){.kind = PACK_REMOVED, .hash = i};
    str_init(&out, 4096);
    pack_batch(events, 16, 16, 0, &out);
    check_bytes(&out, "93 cb 00 00 00 00 00 00 00 00 91 "
                      "93 ac 42 6c 6f 63 6b 52 65 6d 6f 76 65 64 dc 00 10 "
                      "00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f a3 47 50 55 00");
    str_fini(&out);
}

/* More than the ring holds, as fast as they can be told. */
static void *flood(void *arg) {
    const struct kv_listener *l = arg;
    static const int32_t tokens[16];
    for (uint64_t i = 0; i < 8 * (uint64_t)KVEVENTS_QUEUED; i++)
        l->on_block(l->arg, &(struct kv_event){.stored = i % 2 == 0, .hash = i, .tokens = tokens});
    return NULL;
}

static void caches_come_and_go(void) {
    const struct kvevents_config config = {.endpoint = "tcp://127.0.0.1:*",
                                           .replay = "tcp://127.0.0.1:*",
                                           .name = "n",
                                           .replay_bytes = 1 << 16};
    struct kv_listener listener, other;
    kvevents *k;
    err e;
    int rc = kvevents_open(&config, &k, &e);
    if (rc == ERR_UNAVAILABLE) {
        printf("skip %s: %s\n", __func__, e.msg);
        return;
    }
    CHECK_MSG(!rc, "%s", e.msg);
    if (rc) return;
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        CHECK(kvevents_attach(k, round % 2 ? "a" : "b", 16, &listener));
        CHECK(!kvevents_attach(k, "c", 16, &other) && !other.on_block);
        kvevents_detach(k, "c");
        CHECK(!pthread_create(&thread, NULL, flood, &listener));
        pthread_join(thread, NULL);
        kvevents_detach(k, round % 2 ? "a" : "b");
    }
    CHECK(!kvevents_attach(k, "d", 64, &other)); /* blocks are too large */
    kvevents_close(k);
    CHECK(!kvevents_attach(NULL, "d", 16, &other) && !other.on_block);
    kvevents_detach(NULL, "d");
    kvevents_close(NULL);
}

int main(void) {
    RUN(events_are_arrays);
    RUN(long_runs_have_long_arrays);
    RUN(caches_come_and_go);
    return check_done();
}
