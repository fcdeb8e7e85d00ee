/* people.c - what a person asks of a folder: the list of segments, a check of every byte, pruning.
 * Owns nothing. Lists and checks change nothing, so a daemon may use the folder meanwhile. */
#include "core/kvstore/kvstore_int.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct listing {
    const char *folder;
    const struct kvstore_key *root; /* NULL: files are not read */
    void (*each)(void *arg, const struct kvstore_entry *s);
    void *arg;
};

static void entry_of(const struct kvstore_row *row, const char *file, struct kvstore_entry *out) {
    *out = (struct kvstore_entry){.file = file,
                                  .label = row->label ? row->label : "",
                                  .version = row->version ? row->version : "",
                                  .tenant = row->tenant,
                                  .first = row->first,
                                  .n_blocks = row->n_blocks,
                                  .block_tokens = row->block_tokens,
                                  .bytes = row->bytes,
                                  .hits = row->hits,
                                  .created_s = row->created_s,
                                  .used_s = row->used_s,
                                  .has_state = row->flags[row->n_blocks - 1] & KVSTORE_STATE};
    memcpy(out->space, row->space, sizeof out->space);
}

/* Every record of a file. */
static int read_all(struct kvstore_file *f, err *e) {
    const struct kvstore_shape *s = &f->head.shape;
    uint64_t most = s->block_bytes;
    if (s->window_bytes > most) most = s->window_bytes;
    if (s->state_bytes > most) most = s->state_bytes;
    uint8_t *bytes = mem_new(most + KVSTORE_TAG_BYTES, 1);
    if (!bytes) return err_no_memory(e);
    int rc = 0;
    for (uint32_t i = 0; i < f->head.n_blocks && !rc; i++) {
        rc = kvstore_file_read(f, KVSTORE_BLOCK, i, bytes, e);
        if (!rc && f->head.has_window[i]) rc = kvstore_file_read(f, KVSTORE_WINDOW, i, bytes, e);
    }
    if (!rc && f->head.has_state) rc = kvstore_file_read(f, KVSTORE_STATE, 0, bytes, e);
    free(bytes);
    return rc;
}

static int check_segment(const struct listing *l, const struct kvstore_row *row, err *e) {
    struct kvstore_file f;
    char path[KVSTORE_PATH];
    kvstore_path(l->folder, row->id, ".kv", path);
    int rc = kvstore_file_open(path, l->root, &f, e);
    if (rc) return rc;
    const struct kvstore_head *h = &f.head;
    if (memcmp(h->space, row->space, sizeof h->space) != 0 || h->n_blocks != row->n_blocks ||
        !hash128_same(h->tenant, row->tenant) ||
        memcmp(h->names, row->names, row->n_blocks * sizeof *h->names) != 0)
        rc = err_set(e, ERR_FORMAT, "its file holds another one");
    else
        rc = read_all(&f, e);
    kvstore_file_close(&f);
    return rc;
}

static int show_row(void *arg, const struct kvstore_row *row) {
    const struct listing *l = arg;
    struct kvstore_entry entry;
    char file[32];
    err damage;
    err_clear(&damage);
    snprintf(file, sizeof file, "%016llx.kv", (unsigned long long)row->id);
    entry_of(row, file, &entry);
    if (l->root) {
        check_segment(l, row, &damage);
        entry.damage = &damage;
    }
    l->each(l->arg, &entry);
    return 0;
}

static int list_segments(struct listing *l, err *e) {
    kvstore_catalog *c;
    int rc = kvstore_catalog_open(l->folder, NULL, &c, NULL, e);
    if (rc) return rc;
    rc = kvstore_catalog_each(c, show_row, l, e);
    kvstore_catalog_close(c);
    return rc;
}

int kvstore_list(const char *folder, void (*each)(void *arg, const struct kvstore_entry *s),
                 void *arg, err *e) {
    struct listing l = {folder, NULL, each, arg};
    return list_segments(&l, e);
}

int kvstore_verify(const char *folder, const char *secret,
                   void (*each)(void *arg, const struct kvstore_entry *s), void *arg, err *e) {
    struct kvstore_key root;
    struct listing l = {folder, &root, each, arg};
    int rc = kvstore_secret_read(secret, false, &root, e);
    return rc ? rc : list_segments(&l, e);
}

/* Which segments go: decided from the index, because it knows their labels. */
struct pruning {
    kvstore *ks;
    bool (*chosen)(void *arg, const struct kvstore_entry *s);
    void *arg;
    uint64_t n;
};

static int prune_row(void *arg, const struct kvstore_row *row) {
    struct pruning *p = arg;
    struct kvstore_entry entry;
    entry_of(row, "", &entry);
    if (p->chosen && !p->chosen(p->arg, &entry)) return 0;
    pthread_mutex_lock(&p->ks->lock);
    struct kvstore_segment *s = kvstore_find_segment(p->ks, row->id, &row->names[0]);
    if (s) {
        kvstore_drop_segment(p->ks, s);
        p->n++;
        pthread_cond_signal(&p->ks->work);
    }
    pthread_mutex_unlock(&p->ks->lock);
    return 0;
}

uint64_t kvstore_prune(kvstore *ks, bool (*chosen)(void *arg, const struct kvstore_entry *s),
                       void *arg) {
    struct pruning p = {ks, chosen, arg, 0};
    kvstore_catalog *c;
    if (kvstore_catalog_open(ks->folder, NULL, &c, NULL, NULL)) return 0;
    kvstore_catalog_each(c, prune_row, &p, NULL);
    kvstore_catalog_close(c);
    kvstore_flush(ks, clock_now_ns() + UINT64_C(60000000000));
    return p.n;
}
