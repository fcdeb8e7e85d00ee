/* test_step_check.c - a step from another process: each value of each array, moved outside what
 * there is here, is found; at the last place inside it is not. A model that another process opens:
 * no pointer of it is used. */
#include "core/engine/group_int.h"
#include "core/engine/step_check.h"
#include "tests/unit/check.h"

#include <string.h>

enum { N_SEQS = 3, N_ROWS = 7, N_OUT = 4, N_HISTORY = 5, CONTEXT = 600 };
static const struct step_bounds bounds = {
    .n_vocab = 50, .n_blocks = 90, .n_windows = 20, .n_states = 6, .block_tokens = 16};
static const struct model_limits limits = {.max_rows = 8,
                                           .max_logit_rows = 8,
                                           .max_seqs = 4,
                                           .table_stride = 100,
                                           .max_history = 16,
                                           .window_tables = true};
static struct step_batch b;
static struct model_shape shape;

static int check_step(void) {
    err e = {0};
    int rc = step_check(&bounds, &b, &shape, N_HISTORY, &e);
    CHECK(!rc == !e.msg[0] && (!rc || rc == ERR_FORMAT));
    return rc;
}

/* All zeros are inside, but for the rows of sequences. */
static void fill(void) {
    step_batch_fini(&b);
    CHECK(step_batch_init(&b, &limits) == 0);
    shape = (struct model_shape){.n_rows = N_ROWS,
                                 .n_seqs = N_SEQS,
                                 .n_logit_rows = 3,
                                 .n_hidden_rows = N_OUT - 3,
                                 .max_context = CONTEXT,
                                 .samples = true};
    b.stride = model_table_stride(&limits, CONTEXT, bounds.block_tokens);
    const int32_t starts[] = {0, 1, 4, N_ROWS};
    memcpy(b.row_start, starts, sizeof starts);
    CHECK(check_step() == 0);
}

static void test_arrays(void) {
    const struct {
        int32_t *values;
        uint32_t n;
        int32_t end;
    } arrays[] = {
        {b.token_ids, N_ROWS, 50},         {b.positions, N_ROWS, CONTEXT},
        {b.slots, N_ROWS, 90 * 16},        {b.tables, N_SEQS * b.stride, 90},
        {b.window_slots, N_ROWS, 20 * 16}, {b.window_tables, N_SEQS * b.stride, 20},
        {b.state_tables, 2 * N_SEQS, 6},   {b.out_rows, N_OUT, N_ROWS},
    };
    for (size_t a = 0; a < sizeof arrays / sizeof arrays[0]; a++)
        for (uint32_t i = 0; i < arrays[a].n; i++) {
            int32_t *v = &arrays[a].values[i];
            *v = arrays[a].end;
            CHECK_MSG(check_step() == ERR_FORMAT, "array %zu, value %u", a, i);
            *v = -1;
            CHECK_MSG(check_step() == ERR_FORMAT, "array %zu, value %u", a, i);
            *v = arrays[a].end - 1;
            CHECK(check_step() == 0);
            *v = 0;
            CHECK(check_step() == 0);
        }
}

static void test_shapes(void) {
    for (int i = 0; i <= N_SEQS; i++) {
        fill();
        b.row_start[i] = i ? b.row_start[i - 1] : 1; /* an empty sequence; rows of none */
        CHECK(check_step() == ERR_FORMAT);
    }
    fill();
    b.stride--;
    CHECK(check_step() == ERR_FORMAT);
    fill();
    shape.max_context = 100 * 16 + 1;
    CHECK(check_step() == ERR_FORMAT);
    fill();
    b.sampling[2].first_history = 3;
    b.sampling[2].n_history = 2;
    CHECK(check_step() == 0);
    b.sampling[2].n_history = 3;
    CHECK(check_step() == ERR_FORMAT);
    b.sampling[2].first_history = UINT32_MAX;
    CHECK(check_step() == ERR_FORMAT);
    fill();
    b.history[N_HISTORY].token = 50; /* is not one of them */
    CHECK(check_step() == 0);
    b.history[N_HISTORY - 1].token = 50;
    CHECK(check_step() == ERR_FORMAT);
    b.history[N_HISTORY - 1].token = -1; /* an unused entry */
    CHECK(check_step() == 0);
    b.history[N_HISTORY - 1].token = -2;
    CHECK(check_step() == ERR_FORMAT);
}

static void test_copies(void) {
    err e = {0};
    int32_t pairs[] = {0, 89, 88, 1};
    CHECK(step_check_copies(pairs, 2, 90, &e) == 0);
    CHECK(step_check_copies(pairs, 2, 89, &e) == ERR_FORMAT);
    pairs[3] = -1;
    CHECK(step_check_copies(pairs, 2, 90, &e) == ERR_FORMAT);
    CHECK(step_check_copies(pairs, 1, 90, &e) == 0);
}

/* A message that opens a model, of nothing but ones: its pointers are not used. */
static void test_open(void) {
    static struct open_message m;
    struct engine_config c;
    memset(&m, 0xff, sizeof m);
    memset(&m.config.prefix_cache, 1, sizeof m.config.prefix_cache);
    memset(&m.config.store_all, 0, sizeof m.config.store_all);
    memset(&m.config.ignore_sampling, 0, sizeof m.config.ignore_sampling);
    memset(&m.config.time_kernels, 0, sizeof m.config.time_kernels);
    group_read_open(&m, &c);
    CHECK(c.model_path == m.path && c.backend == m.backend && c.isa == m.isa);
    CHECK(strlen(m.path) < sizeof m.path && strlen(m.backend) < sizeof m.backend);
    CHECK(strlen(m.isa) < sizeof m.isa && strlen(m.model) < sizeof m.model);
    CHECK(!c.group && !c.store && !c.model_sha256 && !c.model_label && !c.importance);
    CHECK(!c.on_load && !c.on_load_arg && !c.on_step && !c.on_step_arg && !c.listener.on_block &&
          !c.listener.arg);
    CHECK(c.max_sequences == UINT32_MAX && c.prefix_cache);
}

int main(void) {
    fill();
    RUN(test_arrays);
    RUN(test_shapes);
    RUN(test_copies);
    RUN(test_open);
    step_batch_fini(&b);
    return check_done();
}
