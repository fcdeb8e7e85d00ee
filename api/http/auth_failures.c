/* auth_failures.c - see auth_failures.h. Of two networks that want the same slot, the one whose
 * bucket is nearer to full loses its own: it has least to hide. */
#include "api/http/auth_failures.h"

#include "core/base/clock.h"

#include <string.h>
#include <sys/random.h>

const char *const auth_failure_names[AUTH_N_FAILURES] = {
    [AUTH_MISSING] = "missing", [AUTH_UNKNOWN] = "unknown", [AUTH_EXPIRED] = "expired",
    [AUTH_REVOKED] = "revoked", [AUTH_SCOPE] = "scope",     [AUTH_LIMITED] = "limited"};

static const uint64_t minute_ns = UINT64_C(60000000000);

void auth_failures_init(struct auth_failures *f, uint32_t per_minute) {
    memset(f, 0, sizeof *f);
    atomic_init(&f->per_minute, per_minute);
    pthread_mutex_init(&f->mu, NULL);
    if (getentropy(&f->seed, sizeof f->seed)) f->seed = clock_now_ns();
}

void auth_failures_fini(struct auth_failures *f) {
    pthread_mutex_destroy(&f->mu);
}

/* The slot of a network, or the one that it may have. With f->mu. */
static struct failure_slot *find_slot(struct auth_failures *f, const struct client_network *from) {
    uint64_t h = address_network_hash(from, f->seed);
    struct failure_slot *set =
        &f->slots[h % (AUTH_FAILURE_SLOTS / AUTH_FAILURE_WAYS) * AUTH_FAILURE_WAYS];
    struct failure_slot *best = set;
    for (size_t i = 0; i < AUTH_FAILURE_WAYS; i++) {
        if (memcmp(&set[i].from, from, sizeof *from) == 0) return &set[i];
        if (set[i].full_ns < best->full_ns) best = &set[i];
    }
    return best;
}

/* Time until its bucket is full, at most a minute. With f->mu. */
static uint64_t missing_ns(struct auth_failures *f, const struct client_network *from,
                           uint64_t now_ns, struct failure_slot **slot) {
    *slot = find_slot(f, from);
    bool own = memcmp(&(*slot)->from, from, sizeof *from) == 0;
    return own && (*slot)->full_ns > now_ns ? (*slot)->full_ns - now_ns : 0;
}

uint32_t auth_failures_wait_s(struct auth_failures *f, const struct address *client,
                              uint64_t now_ns) {
    struct client_network from = address_network(client);
    struct failure_slot *slot;
    uint32_t per_minute = atomic_load(&f->per_minute);
    if (!per_minute) return 0;
    pthread_mutex_lock(&f->mu);
    uint64_t missing = missing_ns(f, &from, now_ns, &slot);
    pthread_mutex_unlock(&f->mu);
    uint64_t after = missing + minute_ns / per_minute;
    return after <= minute_ns ? 0 : (uint32_t)((after - minute_ns) / UINT64_C(1000000000)) + 1;
}

void auth_failures_add(struct auth_failures *f, enum auth_failure why, const struct address *client,
                       uint64_t now_ns) {
    struct client_network from = address_network(client);
    struct failure_slot *slot;
    uint32_t per_minute = atomic_load(&f->per_minute);
    atomic_fetch_add(&f->counts[why], 1);
    if (!per_minute || (why != AUTH_UNKNOWN && why != AUTH_EXPIRED && why != AUTH_REVOKED)) return;
    pthread_mutex_lock(&f->mu);
    uint64_t missing = missing_ns(f, &from, now_ns, &slot) + minute_ns / per_minute;
    slot->from = from;
    slot->full_ns = now_ns + (missing < minute_ns ? missing : minute_ns);
    pthread_mutex_unlock(&f->mu);
}
