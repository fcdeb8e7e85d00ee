/* preset.c - see preset.h. Owns nothing. */
#include "api/generate/preset.h"
#include "api/generate/api_state.h"
#include "api/generate/chat_request.h"
#include "api/http/request.h"

#include <string.h>

static const cJSON *member(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

int preset_parse(const char *text, cJSON **out, err *e) {
    err why = {0};
    int rc = json_parse(text, strlen(text), out, &why);
    if (!rc) return 0;
    if (rc == ERR_NOMEM) return err_no_memory(e);
    return err_set(e, ERR_IO,
                   "the preset of a model's name is damaged (%.200s): create it again or delete it",
                   why.msg);
}

/* The parameter's name among the sampling parameters. */
static const char *sampling_name(const char *name) {
    return strcmp(name, "repeat_penalty") == 0 ? "repetition_penalty" : name;
}

static void recommend_length(const cJSON *most, struct gen_fields *f) {
    int64_t n;
    if (json_int64(most, &n)) f->default_max_tokens = n > 0 ? n : -1;
}

void preset_recommend(const struct request *r, struct gen_fields *f) {
    struct sampling_recommended values = *engine_sampling(r->model->engine);
    const cJSON *parameters = member(r->preset, "parameters");
    for (const cJSON *v = parameters ? parameters->child : NULL; v; v = v->next)
        if (cJSON_IsNumber(v))
            sampling_recommend(&values, sampling_name(v->string), v->valuedouble, NULL);
    gen_fields_recommend(f, &values);
    recommend_length(member(parameters, "num_predict"), f);
    if (!f->has_seed) f->has_seed = json_int64(member(parameters, "seed"), &f->seed);
    if (!f->stop) f->stop = member(parameters, "stop");
}

static bool add_item(cJSON *list, cJSON *item) {
    if (item && cJSON_AddItemToArray(list, item)) return true;
    cJSON_Delete(item);
    return false;
}

static bool add_system(cJSON *list, const char *text) {
    cJSON *m = cJSON_CreateObject();
    return add_item(list, m) && cJSON_AddStringToObject(m, "role", "system") &&
           cJSON_AddStringToObject(m, "content", text);
}

/* Fills head with what comes before the rest of messages, which loses its system prompt to it. */
static bool fill_head(const cJSON *preset, cJSON *messages, cJSON *head) {
    const char *system = cJSON_GetStringValue(member(preset, "system"));
    const cJSON *list = member(preset, "messages");
    bool ok = true;
    while (ok && chat_is_system(messages->child))
        ok = add_item(head, cJSON_DetachItemViaPointer(messages, messages->child));
    if (ok && !head->child && system && *system) ok = add_system(head, system);
    for (const cJSON *v = list ? list->child : NULL; v && ok; v = v->next)
        ok = add_item(head, cJSON_Duplicate(v, true));
    return ok;
}

int preset_add_messages(const struct request *r, const struct chat_request *q, err *e) {
    if (!r->preset || !q->messages) return 0;
    cJSON *head = cJSON_CreateArray();
    bool ok = head && fill_head(r->preset, q->messages, head);
    /* From the last to the first: cJSON 1.7.17 inserts only at the beginning. */
    while (ok && head->child) {
        cJSON *last = cJSON_DetachItemViaPointer(head, head->child->prev);
        ok = cJSON_InsertItemInArray(q->messages, 0, last);
        if (!ok) cJSON_Delete(last);
    }
    cJSON_Delete(head);
    return ok ? 0 : err_no_memory(e);
}
