/* test_models.c - the table of served models: references, removal, and many threads that use a
 * model while it goes. The engines are numbers: the table calls none. */
#include "api/generate/models.h"

#include "core/base/mem.h"

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const aliases[] = {"other", "org/other"};

static struct api_model model_of(const char *id, size_t n_aliases) {
    return (struct api_model){.id = id, .aliases = aliases, .n_aliases = n_aliases};
}

static const struct api_model *find(model_table *t, const char *name) {
    return models_find(t, name, strlen(name));
}

static void names_and_references(void) {
    model_table *t = models_new();
    struct models_list list;
    err e = {0};
    size_t n;
    const struct api_model a = model_of("a", 2), b = model_of("other", 0);
    CHECK(!models_only(t, &n) && n == 0 && !find(t, "a"));
    CHECK(models_add(t, &a, &e) == 0);
    CHECK(models_add(t, &a, &e) == ERR_EXISTS && strstr(e.msg, "loaded already"));
    const struct api_model *only = models_only(t, &n), *by_alias = find(t, "other");
    CHECK(only && only == by_alias && n == 1 && only->serial == 1);
    CHECK(models_add(t, &b, &e) == 0);
    const struct api_model *exact = find(t, "other");
    CHECK(exact && exact != only && exact->serial == 2); /* an id goes before an alias */
    CHECK(!models_only(t, &n) && n == 2);
    models_list(t, false, &list, NULL);
    CHECK(list.n == 2 && list.models[0] == only && list.models[1] == exact);
    models_list_release(t, &list);
    models_release(t, only);
    models_release(t, by_alias);
    models_release(t, exact);
    models_release(t, NULL);
    models_free(t);
}

static void a_withdrawn_model_waits_for_its_users(void) {
    model_table *t = models_new();
    struct engine_totals *did = mem_new(1, sizeof *did), *gone = mem_new(1, sizeof *gone);
    struct models_counts counts;
    struct models_list list;
    err e = {0};
    const struct api_model a = model_of("a", 2);
    CHECK(t && did && gone && models_add(t, &a, &e) == 0);
    const struct api_model *used = find(t, "a");
    const struct api_model *m = models_withdraw(t, "a");
    CHECK(m == used && models_is_withdrawn(t, m));
    CHECK(!find(t, "a") && !find(t, "other") && !models_withdraw(t, "a"));
    CHECK(models_add(t, &a, &e) == ERR_EXISTS && strstr(e.msg, "being unloaded"));
    models_list(t, false, &list, NULL);
    CHECK(list.n == 0);
    models_list(t, true, &list, NULL);
    CHECK(list.n == 1 && list.leaving[0]);
    models_list_release(t, &list);
    did->stats.generated_tokens_total = 7;
    did->stats.kv_blocks = 5;
    did->n_kernels = 1;
    strcpy(did->kernels[0].name, "gemv");
    did->kernels[0].sum.dispatches = 3;
    CHECK(!models_wait(t, m, 1) && !models_forget(t, m, did));
    models_release(t, used);
    CHECK(models_wait(t, m, 1000) && models_forget(t, m, did));
    models_counts(t, &counts);
    CHECK(counts.n_added == 1 && counts.n_removed == 1);
    models_list(t, true, &list, gone);
    CHECK(list.n == 0 && gone->stats.generated_tokens_total == 7 && gone->stats.kv_blocks == 0);
    CHECK(gone->n_kernels == 1 && gone->kernels[0].sum.dispatches == 3);
    CHECK(models_add(t, &a, &e) == 0); /* it may come back, as another one */
    m = models_withdraw(t, "a");
    CHECK(m && m->serial == 2);
    models_restore(t, m);
    used = find(t, "a");
    CHECK(used == m);
    models_release(t, used);
    models_free(t);
    free(did);
    free(gone);
}

static void the_table_is_bounded(void) {
    char names[API_MAX_MODELS + 1][16];
    model_table *t = models_new();
    err e = {0};
    for (int i = 0; i <= API_MAX_MODELS; i++) {
        snprintf(names[i], sizeof names[i], "m%d", i);
        const struct api_model m = model_of(names[i], 0);
        CHECK(models_add(t, &m, &e) == (i < API_MAX_MODELS ? 0 : ERR_UNAVAILABLE));
    }
    CHECK(strstr(e.msg, "unload one first") != NULL);
    models_free(t);
}

/* ---- many users of a model that comes and goes ---- */

enum { USERS = 4, ROUNDS = 200 };

/* What a model points to; freed as soon as its last user has released it. */
struct thing {
    char id[8];
    atomic_int alive;
};

static model_table *shared;
static atomic_bool stop;
static atomic_uint n_found, n_dead;

static void *use_models(void *arg) {
    (void)arg;
    while (!atomic_load(&stop)) {
        const struct api_model *m = find(shared, "m");
        if (!m) continue;
        const struct thing *thing = (const void *)m->id;
        atomic_fetch_add(&n_found, 1);
        if (atomic_load(&thing->alive) != 1) atomic_fetch_add(&n_dead, 1);
        models_release(shared, models_retain(shared, m));
        models_release(shared, m);
    }
    return NULL;
}

static void a_forgotten_model_has_no_user(void) {
    pthread_t users[USERS];
    struct engine_totals *did = mem_new(1, sizeof *did);
    err e = {0};
    shared = models_new();
    for (int i = 0; i < USERS; i++)
        CHECK(pthread_create(&users[i], NULL, use_models, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct thing *thing = mem_new(1, sizeof *thing);
        strcpy(thing->id, "m");
        atomic_init(&thing->alive, 1);
        const struct api_model m = model_of(thing->id, 0);
        CHECK_MSG(models_add(shared, &m, &e) == 0, "%s", e.msg);
        unsigned before = atomic_load(&n_found);
        while (atomic_load(&n_found) == before) {
        }
        const struct api_model *leaving = models_withdraw(shared, "m");
        while (!models_wait(shared, leaving, 1000) || !models_forget(shared, leaving, did)) {
        }
        atomic_store(&thing->alive, 0);
        free(thing);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < USERS; i++)
        pthread_join(users[i], NULL);
    CHECK(atomic_load(&n_found) >= ROUNDS && atomic_load(&n_dead) == 0);
    models_free(shared);
    free(did);
}

int main(void) {
    RUN(names_and_references);
    RUN(a_withdrawn_model_waits_for_its_users);
    RUN(the_table_is_bounded);
    RUN(a_forgotten_model_has_no_user);
    return check_done();
}
