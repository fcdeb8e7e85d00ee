/* parts.c - which part of a model each rank of a group has, and which models cannot be split. Pure.
 */
#include "core/model/model_int.h"

#include <stdio.h>
#include <string.h>

static int refuse_count(const struct model_hparams *hp, uint64_t n, const char *of_what,
                        uint32_t n_ranks, err *e) {
    return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                         "n_ranks = %u: the model (%s) has %llu %s, which cannot be shared "
                         "out evenly",
                         n_ranks, hp->arch, (unsigned long long)n, of_what);
}

/* Can n things be shared out so that each rank has some of its own, or (shared) at least one that
 * the next ranks may have as well? */
static bool divides(uint32_t n, uint32_t n_ranks, bool shared) {
    return n % n_ranks == 0 || (shared && n_ranks % n == 0);
}

/* Is the output of recurrent layers normed over all heads, */
static bool norms_all(const struct model_hparams *hp) {
    return hp->recurrent.normed && hp->recurrent.n_norm_groups == 1;
}

/* and not beside attention? */
static bool norms_whole(const struct model_hparams *hp) {
    return norms_all(hp) && !(hp->layers[0] & MODEL_LAYER_PARALLEL);
}

/* Do the recurrent layers divide? */
static bool recurrent_fits(const struct model_hparams *hp, uint32_t n_ranks) {
    const struct model_recurrent *r = &hp->recurrent;
    if (r->channels) return r->channels % n_ranks == 0;
    return divides(r->n_v_heads, n_ranks, false) && divides(r->n_k_heads, n_ranks, r->mamba2) &&
           (!r->normed || r->n_norm_groups % n_ranks == 0 || norms_whole(hp));
}

static int check_recurrent(const struct model_hparams *hp, uint32_t n_ranks, err *e) {
    const struct model_recurrent *r = &hp->recurrent;
    uint32_t most = n_ranks;
    char what[96];
    if (!r->n_layers || recurrent_fits(hp, n_ranks)) return 0;
    if (norms_all(hp) && !norms_whole(hp))
        return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                             "n_ranks = %u: the model (%s) norms all heads of Mamba-2 at once "
                             "(ssm_norm has one group) in layers that have attention, too, and no "
                             "rank has all heads: run it on one device (n_ranks = 1), or use a "
                             "model whose norm has a group for each rank",
                             n_ranks, hp->arch);
    while (most > 1 && (!recurrent_fits(hp, most) || hp->n_heads % most || hp->n_kv_heads % most))
        most--;
    if (r->channels)
        snprintf(what, sizeof what, "%u channels", r->channels);
    else
        snprintf(what, sizeof what, "%u K heads%s, %u V heads", r->n_k_heads,
                 r->mamba2 ? " (groups)" : "", r->n_v_heads);
    if (r->normed) {
        const size_t at = strlen(what);
        snprintf(what + at, sizeof what - at, ", %u groups that are normed as a whole",
                 r->n_norm_groups);
    }
    return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                         "n_ranks = %u: the recurrent layers of the model (%s) have %s, which "
                         "cannot be shared out evenly; n_ranks = %u fits",
                         n_ranks, hp->arch, what, most);
}

/* Heads of every layer: they may differ. */
static int check_heads(const struct model_hparams *hp, uint32_t n_ranks, err *e) {
    if (hp->n_heads % n_ranks) return refuse_count(hp, hp->n_heads, "heads", n_ranks, e);
    if (hp->n_kv_heads % n_ranks) return refuse_count(hp, hp->n_kv_heads, "KV heads", n_ranks, e);
    if (hp->n_window_kv_heads % n_ranks)
        return refuse_count(hp, hp->n_window_kv_heads, "KV heads in layers with a window", n_ranks,
                            e);
    for (uint32_t i = 0; i < hp->n_layers; i++)
        if (hp->layer_heads[i] % n_ranks)
            return refuse_count(hp, hp->layer_heads[i], "heads in some layers", n_ranks, e);
    return 0;
}

int model_ranks_check(const struct model_hparams *hp, uint32_t n_ranks, err *e) {
    int rc;
    if (n_ranks < 2) return 0;
    gguf_str name = {hp->arch, strlen(hp->arch)};
    const struct model_arch *arch = model_arch_find(name);
    if (arch && arch->qk_norm == MODEL_QK_NORM_ROW)
        return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                             "n_ranks = %u: %s norms Q and K over all heads at once "
                             "(attn_q_norm), which no rank has",
                             n_ranks, hp->arch);
    if (hp->mla.kv_rank)
        return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                             "n_ranks = %u: models with multi-head latent attention (%s) run on "
                             "one device",
                             n_ranks, hp->arch);
    if ((rc = check_heads(hp, n_ranks, e))) return rc;
    if ((uint64_t)backend_share(hp->n_vocab, n_ranks) * (n_ranks - 1) >= hp->n_vocab)
        return refuse_count(hp, hp->n_vocab, "tokens", n_ranks, e);
    if (norms_whole(hp) &&
        (uint64_t)backend_share(hp->n_embd, n_ranks) * (n_ranks - 1) >= hp->n_embd)
        return refuse_count(hp, hp->n_embd, "columns", n_ranks, e);
    return check_recurrent(hp, n_ranks, e);
}

/* Reduces r to what one of n_ranks ranks has. */
static void split_recurrent(struct model_recurrent *r, uint32_t n_ranks) {
    r->n_k_heads = r->n_k_heads < n_ranks && r->n_k_heads ? 1 : r->n_k_heads / n_ranks;
    r->n_v_heads /= n_ranks;
    r->channels /= n_ranks;
    r->n_norm_groups = r->normed && r->n_norm_groups > n_ranks ? r->n_norm_groups / n_ranks : 1;
}

struct backend_state model_state_shape(const struct model_hparams *hp, uint32_t n_ranks,
                                       uint32_t block_tokens) {
    struct model_recurrent r = hp->recurrent;
    if (!r.n_layers) return (struct backend_state){0};
    split_recurrent(&r, n_ranks);
    return (struct backend_state){.chunk = block_tokens,
                                  .n_taps = r.n_taps,
                                  .n_k_heads = r.n_k_heads,
                                  .n_v_heads = r.n_v_heads,
                                  .k_dim = r.k_dim,
                                  .v_dim = r.v_dim,
                                  .channels = r.channels,
                                  .channel_decay = r.channel_decay};
}

static struct model_range split_evenly(uint64_t n, const struct model_part *p) {
    return (struct model_range){n / p->n_ranks * p->rank, n / p->n_ranks};
}

/* As backend_all_gather joins them. */
static struct model_range split_to_gather(uint32_t n, const struct model_part *p) {
    uint64_t share = backend_share(n, p->n_ranks), first = share * p->rank;
    return (struct model_range){first, n - first < share ? n - first : share};
}

/* The largest quantization block of the tensors blk.*.name: a rank's columns are a multiple of it.
 */
static uint32_t largest_block(const gguf *g, const struct model_hparams *hp, const char *name) {
    uint32_t largest = 1;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        char text[64];
        snprintf(text, sizeof text, "blk.%u.%s", i, name);
        const gguf_tensor *t = gguf_tensor_find(g, text);
        const struct qtype_info *type = t ? qtype_find(t->type) : NULL;
        if (type && type->block_elems > largest) largest = type->block_elems;
    }
    return largest;
}

/* Splits the n FFN columns that tensors blk.*.name read. If possible a rank's columns begin at a
 * multiple of 32, which suits the vectors of every device. */
static int split_ffn(const gguf *g, const struct model_hparams *hp, uint64_t n, const char *name,
                     const struct model_part *p, struct model_range *out, err *e) {
    uint64_t unit = largest_block(g, hp, name), ranks = p->n_ranks;
    if (unit == 1 && n % Q_ELEMS == 0 && n / Q_ELEMS >= ranks) unit = Q_ELEMS;
    uint64_t units = n / unit;
    if (n && units < ranks)
        return err_set_param(e, ERR_UNSUPPORTED, "n_ranks",
                             "n_ranks = %u: the %llu columns of %s are %llu blocks of %llu, "
                             "fewer than one for each",
                             p->n_ranks, (unsigned long long)n, name, (unsigned long long)units,
                             (unsigned long long)unit);
    uint64_t first = units * p->rank / ranks * unit, end = units * (p->rank + 1) / ranks * unit;
    *out = (struct model_range){first, end - first};
    return 0;
}

int model_part_find(const gguf *g, const struct model_hparams *hp, uint32_t rank, uint32_t n_ranks,
                    struct model_part *out, err *e) {
    const struct model_experts *x = &hp->experts;
    struct model_part *p = out;
    *p = (struct model_part){.rank = rank, .n_ranks = n_ranks};
    p->heads = (struct model_range){0, hp->n_heads};
    p->kv_heads = (struct model_range){0, hp->n_kv_heads};
    p->vocab = (struct model_range){0, hp->n_vocab};
    p->ff = (struct model_range){0, hp->n_ff};
    p->ff_shared_kv = (struct model_range){0, hp->gemma4.n_ff_shared_kv};
    p->ff_expert = (struct model_range){0, x->n_ff};
    p->ff_shared = (struct model_range){0, x->n_ff_shared};
    if (n_ranks < 2) return 0;
    int rc = model_ranks_check(hp, n_ranks, e);
    if (rc) return rc;
    p->heads = split_evenly(hp->n_heads, p);
    p->kv_heads = split_evenly(hp->n_kv_heads, p);
    struct model_recurrent rec = hp->recurrent;
    split_recurrent(&rec, n_ranks);
    p->k_heads =
        (struct model_range){(uint64_t)hp->recurrent.n_k_heads * rank / n_ranks, rec.n_k_heads};
    p->v_heads = split_evenly(hp->recurrent.n_v_heads, p);
    p->channels = split_evenly(hp->recurrent.channels, p);
    p->gathers = hp->recurrent.n_layers && norms_whole(hp);
    p->out_rows = split_to_gather(hp->n_embd, p);
    p->vocab = split_to_gather(hp->n_vocab, p);
    if (!x->n_experts || x->n_dense || hp->gemma4.on)
        rc = split_ffn(g, hp, hp->n_ff, "ffn_down.weight", p, &p->ff, e);
    if (!rc)
        rc = split_ffn(g, hp, hp->gemma4.n_ff_shared_kv, "ffn_down.weight", p, &p->ff_shared_kv, e);
    if (rc || !x->n_experts) return rc;
    rc = split_ffn(g, hp, x->n_ff, "ffn_down_exps.weight", p, &p->ff_expert, e);
    return rc ? rc : split_ffn(g, hp, x->n_ff_shared, "ffn_down_shexp.weight", p, &p->ff_shared, e);
}

void model_part_apply(const struct model_part *p, struct model_hparams *hp) {
    if (p->n_ranks > 1) split_recurrent(&hp->recurrent, p->n_ranks);
    hp->n_heads = (uint32_t)p->heads.n;
    hp->n_kv_heads = (uint32_t)p->kv_heads.n;
    hp->n_window_kv_heads /= p->n_ranks;
    for (uint32_t i = 0; i < hp->n_layers; i++)
        hp->layer_heads[i] /= (uint16_t)p->n_ranks;
    hp->n_ff = (uint32_t)p->ff.n;
    hp->gemma4.n_ff_shared_kv = (uint32_t)p->ff_shared_kv.n;
    hp->experts.n_ff = (uint32_t)p->ff_expert.n;
    hp->experts.n_ff_shared = (uint32_t)p->ff_shared.n;
}
