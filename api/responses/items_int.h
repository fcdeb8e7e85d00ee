/* items_int.h - what the files about items share: access to their members. Private to
 * api/responses. */
#ifndef INFERD_API_RESPONSES_ITEMS_INT_H
#define INFERD_API_RESPONSES_ITEMS_INT_H

#include "api/responses/client_tools.h"
#include "api/responses/responses.h"

#include <string.h>

static inline const cJSON *item_member(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static inline const char *item_text(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(item_member(object, name));
    return text ? text : "";
}

static inline bool item_is(const cJSON *item, const char *type) {
    return strcmp(item_text(item, "type"), type) == 0;
}

static inline bool item_is_call(const cJSON *item) {
    return item_is(item, "function_call") || item_is(item, "custom_tool_call") ||
           client_tool_of(CLIENT_TOOL_CALL, item_text(item, "type"));
}

static inline bool item_is_output(const cJSON *item) {
    return item_is(item, "function_call_output") || item_is(item, "custom_tool_call_output") ||
           client_tool_of(CLIENT_TOOL_OUTPUT, item_text(item, "type"));
}

/* Appends value to list, which owns it afterwards; returns NULL and frees it on failure. */
static inline cJSON *item_append(cJSON *list, cJSON *value) {
    if (value && cJSON_AddItemToArray(list, value)) return value;
    cJSON_Delete(value);
    return NULL;
}

#endif
