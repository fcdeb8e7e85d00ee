/* pooling.c - turns the hidden states of a prompt's tokens into one vector. Rows come in the order
 * of their positions, each once, in any chunks: the sum does not depend on the chunks. Allocates at
 * submission only; otherwise runs on the worker thread. */
#include "core/base/mem.h"
#include "core/engine/engine_int.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)ENGINE_POOLING_NONE == (int)MODEL_POOLING_NONE &&
                   (int)ENGINE_POOLING_MEAN == (int)MODEL_POOLING_MEAN &&
                   (int)ENGINE_POOLING_CLS == (int)MODEL_POOLING_CLS &&
                   (int)ENGINE_POOLING_LAST == (int)MODEL_POOLING_LAST &&
                   (int)ENGINE_POOLING_RANK == (int)MODEL_POOLING_RANK,
               "one set of values");

int pooled_init(struct pooled *p, enum engine_pooling how, const engine *en) {
    const uint32_t n_embd = en->hp.n_embd;
    p->scores = how == ENGINE_POOLING_RANK;
    if (p->scores) how = (enum engine_pooling)en->heads.score.of;
    p->how = how;
    if (how == ENGINE_POOLING_NONE) return 0;
    p->result = mem_new(n_embd, sizeof *p->result);
    if (how == ENGINE_POOLING_MEAN) p->sum = mem_new(n_embd, sizeof *p->sum);
    return p->result && (p->sum || how != ENGINE_POOLING_MEAN) ? 0 : ERR_NOMEM;
}

void pooled_fini(struct pooled *p) {
    free(p->sum);
    free(p->result);
}

bool pooled_wants(const struct pooled *p, uint32_t pos, uint32_t n_prompt) {
    switch (p->how) {
    case ENGINE_POOLING_MEAN:
        return pos >= p->n;
    case ENGINE_POOLING_CLS:
        return pos == 0 && p->n == 0;
    case ENGINE_POOLING_LAST:
        return pos + 1 == n_prompt;
    default:
        return false;
    }
}

void pooled_take(struct pooled *p, const float *row, uint32_t n_embd) {
    p->n++;
    if (p->how == ENGINE_POOLING_MEAN)
        for (uint32_t i = 0; i < n_embd; i++)
            p->sum[i] += (double)row[i];
    else
        memcpy(p->result, row, n_embd * sizeof *row);
}

void pooled_finish(struct pooled *p, const engine *en) {
    const uint32_t n_embd = en->hp.n_embd;
    if (p->how == ENGINE_POOLING_MEAN)
        for (uint32_t i = 0; i < n_embd; i++)
            p->result[i] = (float)(p->sum[i] / p->n);
    if (p->scores)
        p->result[0] = (float)model_score_of(&en->heads.score, p->result, n_embd);
    else
        model_dense_apply(&en->heads.dense, p->result);
}
