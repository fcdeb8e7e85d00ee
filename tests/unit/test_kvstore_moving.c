/* test_kvstore_moving.c - chains that move to a store with another secret: every byte comes, the
 * tenant is the importer's, and a file that was cut, altered at any byte of its frames or opened
 * with another passphrase changes nothing. */
#include "core/kvstore/kvstore_int.h"
#include "tests/support/kvstore_kit.h"

#include <stdio.h>
#include <string.h>

static char there[PATH_MAX + 64]; /* the exported file */

/* The file of the segment that holds a block of a chain. */
static void file_of(kvstore *ks, kvstore_space *sp, int which, uint32_t block, char file[32]) {
    struct kvstore_name names[MAX_N];
    names_of(sp, alice, which, names);
    pthread_mutex_lock(&ks->lock);
    struct kvstore_slot *slot = kvstore_find_slot(ks, &names[block], KVSTORE_BLOCK);
    CHECK(slot != NULL);
    if (slot) snprintf(file, 32, "%016llx.kv", (unsigned long long)slot->segment->row.id);
    pthread_mutex_unlock(&ks->lock);
}

/* A chain of three segments in the folder "a"; exports what ends with the last one. */
static void export_chain(struct kvstore_moved *m) {
    char file[32] = "";
    int32_t *ids;
    err e = {0};
    fresh_folder("a");
    const struct kvstore_config c = config_of();
    const struct kvstore_place place = {folder, secret};
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "x");
    CHECK(put(sp, alice, 1, 0, 5) && put(sp, alice, 1, 5, 3) && put(sp, alice, 1, 8, 2));
    CHECK(put(sp, alice, 2, 0, 5) && kvstore_flush(ks, SOON));
    CHECK(put(sp, bob, 1, 0, 8) && kvstore_flush(ks, SOON));
    file_of(ks, sp, 1, 9, file);
    kvstore_space_close(sp);
    CHECK(kvstore_show(&place, file, &ids, m, &e) == 0);
    CHECK(m->n_blocks == 10 && m->n_segments == 3 && m->has_state && m->block_tokens == 4);
    CHECK_STR(m->label, "model");
    for (int i = 0; ids && i < 40; i++)
        CHECK(ids[i] == 1000 + i);
    free(ids);
    snprintf(there, sizeof there, "%s/chain", root);
    unlink(there);
    CHECK_MSG(kvstore_export(&place, file, there, "correct horse", m, &e) == 0, "%s", e.msg);
    CHECK(kvstore_export(&place, file, there, "correct horse", m, &e) == ERR_IO); /* it exists */
    CHECK(kvstore_show(&place, "0123456789abcdef", &ids, m, &e) == ERR_NOT_FOUND);
    CHECK(kvstore_show(&place, "../etc", &ids, m, &e) == ERR_INVALID);
    kvstore_close(ks);
}

static void test_a_chain_moves(void) {
    struct kvstore_moved m;
    uint32_t found;
    err e = {0};
    export_chain(&m);
    fresh_folder("b");
    struct kvstore_config c = config_of();
    kvstore *ks = open_with(&c);
    CHECK(kvstore_import(ks, there, "wrong horse", bob, &m, &e) == ERR_FORMAT);
    CHECK(strstr(e.msg, "passphrase") && stats_of(ks).files == 0);
    CHECK_MSG(kvstore_import(ks, there, "correct horse", bob, &m, &e) == 0, "%s", e.msg);
    CHECK(m.n_blocks == 10 && m.n_segments == 3 && stats_of(ks).files == 3);
    kvstore_space *sp = space_of(ks, "x"), *other = space_of(ks, "y");
    CHECK(get(sp, bob, 1, 10, &found) == 10 + 5 + 3 && found == 10); /* windows, states */
    CHECK(get(sp, alice, 1, 10, &found) == 0 && get(sp, bob, 2, 10, &found) == 0);
    CHECK(get(other, bob, 1, 10, &found) == 0);
    kvstore_space_close(sp);
    kvstore_space_close(other);
    CHECK(kvstore_import(ks, there, "correct horse", bob, &m, &e) == 0 && m.n_segments == 0);
    kvstore_close(ks);
    ks = open_with(&c); /* it lasts */
    sp = space_of(ks, "x");
    CHECK(get(sp, bob, 1, 10, &found) == 18);
    kvstore_space_close(sp);
    kvstore_close(ks);
    fresh_folder("c");
    c = config_of();
    c.version = "2";
    ks = open_with(&c);
    CHECK(kvstore_import(ks, there, "correct horse", bob, &m, &e) == ERR_UNSUPPORTED);
    kvstore_close(ks);
    fresh_folder("d");
    c = config_of();
    c.max_files = 2;
    ks = open_with(&c); /* bounds hold */
    kvstore_import(ks, there, "correct horse", bob, &m, &e);
    CHECK(stats_of(ks).files == 2);
    kvstore_close(ks);
}

/* With few iterations, so that thousands of files can be tried. */
static void test_damage_changes_nothing(void) {
    static uint8_t bytes[1 << 16], bad[1 << 16];
    struct kvstore_moved m;
    err e = {0};
    FILE *f = fopen(there, "rb");
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    CHECK(n > 10000 && n < sizeof bytes);
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/bad", root);
    const size_t places[] = {0,   8,   12,  15,  16,  47,    48,     51,     52,
                             100, 307, 308, 324, 400, n / 2, n - 20, n - 17, n - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        for (int cut = 0; cut < 2; cut++) {
            memcpy(bad, bytes, n);
            bad[places[i]] ^= 0x10;
            if (places[i] == 12 || places[i] == 15) bad[15] = 0xff; /* not for hours */
            f = fopen(path, "wb");
            CHECK(f && fwrite(bad, 1, cut ? places[i] : n, f) == (cut ? places[i] : n));
            if (f) fclose(f);
            int rc = kvstore_export_check(path, "correct horse", &m, &e);
            CHECK_MSG(rc == ERR_FORMAT, "byte %zu, cut %d: %d", places[i], cut, rc);
        }
    memcpy(bad, bytes, n); /* more behind its end */
    bad[n] = 0;
    f = fopen(path, "wb");
    CHECK(f && fwrite(bad, 1, n + 1, f) == n + 1);
    if (f) fclose(f);
    CHECK(kvstore_export_check(path, "correct horse", &m, &e) == ERR_FORMAT);
    CHECK(kvstore_export_check(root, "correct horse", &m, &e) == ERR_INVALID);
}

/* Without its beginning a chain is of no use. */
static void test_what_is_gone(void) {
    char file[32] = "";
    int32_t *ids;
    struct kvstore_moved m;
    err e = {0};
    fresh_folder("e");
    const struct kvstore_config c = config_of();
    const struct kvstore_place place = {folder, secret};
    kvstore *ks = open_with(&c);
    kvstore_space *sp = space_of(ks, "x");
    CHECK(put(sp, alice, 1, 5, 3) && put(sp, alice, 2, 0, 5) && kvstore_flush(ks, SOON));
    file_of(ks, sp, 1, 6, file);
    kvstore_space_close(sp);
    CHECK(kvstore_show(&place, file, &ids, &m, &e) == ERR_NOT_FOUND);
    CHECK_MSG(strstr(e.msg, "before token 20"), "%s", e.msg);
    kvstore_close(ks);
}

int main(void) {
    make_root();
    RUN(test_a_chain_moves);
    RUN(test_damage_changes_nothing);
    RUN(test_what_is_gone);
    remove_root();
    return check_done();
}
