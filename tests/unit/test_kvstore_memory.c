/* test_kvstore_memory.c - the memory tier, alone and above a folder: what is there, in which order
 * it goes, its bound at every moment, and readings of segments that leave meanwhile. */
#include "core/base/file.h"
#include "core/base/mem.h"
#include "tests/support/kvstore_kit.h"

#include <errno.h>

/* Of a segment of two blocks (put). */
static const uint64_t each = 192 + 2 * 33 + 16 + 2 * (BLOCK + 16) + WINDOW + 16 + STATE + 16;

static bool put_now(kvstore *ks, kvstore_space *sp, int which) {
    return put(sp, alice, which, 0, 2) && kvstore_flush(ks, SOON);
}

static bool is_there(kvstore_space *sp, int which) {
    uint32_t found;
    int n = get(sp, alice, which, 2, &found);
    CHECK((found == 2 && n == 4) || (found == 0 && n == 0));
    return found;
}

static void test_alone(void) {
    const struct kvstore_config c = {.version = "1", .max_memory_bytes = 4 * each + 10};
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a"), *other = space_of(ks, "b");
    struct kvstore_name names[MAX_N];
    CHECK(!stats_of(ks).writable);
    for (int i = 0; i < 10; i++) {
        CHECK(put_now(ks, sp, i));
        names_of(sp, alice, 0, names);
        kvstore_touch(sp, names, 2); /* chain 0 has hits: it stays */
        const struct kvstore_stats s = stats_of(ks);
        CHECK(s.memory_bytes <= c.max_memory_bytes && s.memory_bytes == s.memory_segments * each);
        CHECK(s.files == 0 && s.bytes == 0 && s.written == 0);
    }
    CHECK(stats_of(ks).memory_segments == 4 && stats_of(ks).memory_evicted == 6);
    for (int i = 0; i < 10; i++)
        CHECK_MSG(is_there(sp, i) == (i == 0 || i > 6), "chain %d", i);
    CHECK(!is_there(other, 9));
    uint32_t found;
    CHECK(get(sp, bob, 9, 2, &found) == 0);
    CHECK(put_now(ks, sp, 9) && stats_of(ks).memory_segments == 4); /* it is there already */
    kvstore_space_close(sp);
    kvstore_space_close(other);
    kvstore_close(ks);
}

/* Larger than the bound, or no memory: it is not kept, and nothing leaves for it. */
static void test_no_room(void) {
    struct kvstore_config c = {.version = "1", .max_memory_bytes = each - 1};
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    CHECK(put_now(ks, sp, 1) && !is_there(sp, 1) && stats_of(ks).memory_bytes == 0);
    kvstore_space_close(sp);
    kvstore_close(ks);
    c.max_memory_bytes = 3 * each;
    ks = open_with(&c);
    sp = space_of(ks, "a");
    CHECK(put_now(ks, sp, 1));
    for (uint64_t n = 1; n < 3; n++) { /* the image, then the segment */
        mem_fail_elsewhere_at(n);
        CHECK(put_now(ks, sp, 2));
        CHECK(mem_fail_elsewhere_at(0) == 0);
        CHECK(!is_there(sp, 2) && is_there(sp, 1) && stats_of(ks).memory_bytes == each);
    }
    CHECK(put_now(ks, sp, 2) && is_there(sp, 2));
    kvstore_space_close(sp);
    kvstore_close(ks);
}

/* Above a folder: what leaves the memory is read from there. */
static void test_above_folder(void) {
    fresh_folder("above");
    struct kvstore_config c = config_of();
    c.max_memory_bytes = 2 * each;
    for (int again = 0; again < 2; again++) {
        kvstore *ks = open_with(&c);
        kvstore_space *sp = space_of(ks, "a");
        for (int i = 0; i < 5; i++)
            CHECK(again || put_now(ks, sp, i));
        const struct kvstore_stats s = stats_of(ks);
        CHECK(s.files == 5 && s.bytes == 5 * each && s.writable);
        CHECK(s.memory_segments == (again ? 0 : 2) && s.memory_evicted == (again ? 0 : 3));
        if (!again) run_shell("mv '%s' '%s.away'", folder, folder);
        for (int i = 4; i >= 0 && !again; i--) /* newest first: those are in memory */
            if (i >= 3) CHECK(is_there(sp, i));
        if (!again) run_shell("mv '%s.away' '%s'", folder, folder);
        for (int i = 0; i < 5; i++)
            CHECK(is_there(sp, i));
        kvstore_space_close(sp);
        kvstore_close(ks);
    }
}

/* A folder that fails, or may not be written any more today, leaves the memory as it is. */
static void test_folder_fails(void) {
    for (int full = 0; full < 2; full++) {
        fresh_folder("fails");
        struct kvstore_config c = config_of();
        c.max_memory_bytes = 3 * each;
        c.max_daily_bytes = full ? each : 0;
        kvstore *ks = open_with(&c);
        kvstore_space *sp = space_of(ks, "a");
        CHECK(put_now(ks, sp, 0));
        file_fail_at(full ? 0 : 1, ENOSPC);
        for (int i = 1; i < 6; i++)
            CHECK(put_now(ks, sp, i));
        file_fail_at(0, 0);
        const struct kvstore_stats s = stats_of(ks);
        CHECK(s.files == 1 && s.memory_segments == 3 && s.writable == full);
        CHECK(s.failed == (full ? 0 : 1) && s.over_budget == (full ? 1 : 0));
        for (int i = 0; i < 6; i++)
            CHECK_MSG(is_there(sp, i) == (i == 0 || i > 2), "chain %d", i);
        kvstore_space_close(sp);
        kvstore_close(ks);
    }
}

/* Readings of segments that leave the memory meanwhile: all bytes come, or the end. */
static void test_read_while_it_leaves(void) {
    const struct kvstore_config c = {.version = "1", .max_memory_bytes = 3 * each};
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "a");
    int n_whole = 0;
    for (int i = 0; i < 200; i++) {
        uint32_t found;
        CHECK(put(sp, alice, i, 0, 2) || kvstore_flush(ks, SOON));
        int n = get(sp, alice, i > 2 ? i - 2 : i, 2, &found); /* the next one to leave */
        CHECK(n <= 4);
        n_whole += n == 4;
        CHECK(stats_of(ks).memory_bytes <= c.max_memory_bytes);
    }
    CHECK(n_whole > 0 && stats_of(ks).damaged == 0);
    kvstore_space_close(sp);
    CHECK(kvstore_flush(ks, SOON));
    CHECK(stats_of(ks).memory_bytes == stats_of(ks).memory_segments * each);
    kvstore_close(ks);
}

int main(void) {
    make_root();
    RUN(test_alone);
    RUN(test_no_room);
    RUN(test_above_folder);
    RUN(test_folder_fails);
    RUN(test_read_while_it_leaves);
    remove_root();
    return check_done();
}
