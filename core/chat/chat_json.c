/* chat_json.c - the JSON that templates see. Pure. */
#include "core/chat/chat.h"

#include "core/text/json.h"

/* What clients and models write is taken as it comes: duplicate keys, raw line ends in strings. */
int chat_json_parse(const char *text, size_t n, cJSON **out, err *e) {
    static const struct json_rules rules = {.max_depth = 1000,
                                            .nul = JSON_NUL_REFUSED,
                                            .duplicate_keys = true,
                                            .control_characters = true,
                                            .byte_order_mark = true,
                                            .all_literals = true};
    return json_decode(text, n, &rules, out, e);
}
