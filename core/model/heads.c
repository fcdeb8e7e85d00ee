/* heads.c - reads the heads for scores and vectors in one opening of the file. */
#include "core/model/model_int.h"

#include <stdio.h>

int model_heads_read(const char *path, const struct model_hparams *hp,
                     const struct model_words *words, struct model_heads *out, err *e) {
    err why;
    gguf *g = NULL;
    *out = (struct model_heads){.dense.n_embd = hp->n_embd};
    err_clear(&why);
    int rc = 0, scores = model_score_may(hp, words, &why);
    if (!scores || hp->both_ways) rc = model_file_open(path, 0, &g, e);
    if (rc) return rc;
    if (!scores) scores = model_score_read(g, hp, words, &out->score, &why);
    if (scores && (scores != ERR_UNSUPPORTED || hp->pooling == MODEL_POOLING_RANK))
        rc = err_set_param(e, why.code, why.param, "%s", why.msg);
    if (scores) snprintf(out->scores_lack, sizeof out->scores_lack, "%s", why.msg);
    /* No other architecture has layers behind pooling. */
    if (!rc && hp->both_ways) rc = model_dense_read(g, hp, &out->dense, e);
    gguf_close(g);
    if (rc) model_heads_fini(out);
    return rc;
}

void model_heads_fini(struct model_heads *h) {
    model_score_fini(&h->score);
    model_dense_fini(&h->dense);
}
