/* json.c - the limits of request bodies, and the writers. Owns nothing; any thread. */
#include "api/http/json.h"

#include "core/base/mem.h"
#include "core/text/json.h"
#include "core/text/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json_parse(const char *text, size_t n, cJSON **out, err *e) {
    static const struct json_rules rules = {.subject = "the request body is ",
                                            .max_depth = JSON_MAX_DEPTH,
                                            .max_values = JSON_MAX_VALUES,
                                            .byte_order_mark = true, /* editors' and shells' */
                                            .sets_param = true};
    return json_decode(text, n, &rules, out, e);
}

bool json_int64(const cJSON *v, int64_t *out) {
    if (!cJSON_IsNumber(v)) return false;
    if (v->valuestring && !strpbrk(v->valuestring, ".eE")) {
        errno = 0;
        long long x = strtoll(v->valuestring, NULL, 10);
        if (errno) return false;
        *out = x;
        return true;
    }
    double d = v->valuedouble;
    if (d != floor(d) || fabs(d) > 9007199254740992.0) return false;
    *out = (int64_t)d;
    return true;
}

const char *json_type_name(const cJSON *v) {
    if (cJSON_IsString(v)) return "a string";
    if (cJSON_IsBool(v)) return "a boolean";
    if (cJSON_IsObject(v)) return "an object";
    if (cJSON_IsArray(v)) return "an array";
    if (cJSON_IsNull(v)) return "null";
    int64_t i;
    return json_int64(v, &i) ? "an integer" : "a number";
}

int json_wrong_type(const char *name, const char *wanted, const cJSON *v, err *e) {
    return err_set_param(e, ERR_INVALID, name, "Invalid type for '%s': expected %s, but got %s.",
                         name, wanted, json_type_name(v));
}

void json_add_string(str *s, const char *bytes, size_t n) {
    if (!utf8_valid(bytes, n)) {
        str fixed;
        str_init(&fixed, 3 * n);
        utf8_add_lossy(&fixed, bytes, n);
        if (fixed.failed)
            s->failed = true;
        else
            json_add_string(s, str_cstr(&fixed), fixed.len);
        str_fini(&fixed);
        return;
    }
    str_add_char(s, '"');
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
        str_add_n(s, bytes + from, i - from);
        from = i + 1;
        if (c == '"' || c == '\\') {
            char escape[2] = {'\\', (char)c};
            str_add_n(s, escape, 2);
        } else if (c == '\n') {
            str_add_n(s, "\\n", 2);
        } else {
            str_addf(s, "\\u%04x", c);
        }
    }
    str_add_n(s, bytes + from, n - from);
    str_add_char(s, '"');
}

void json_add_cstr(str *s, const char *text) {
    if (!text_holds_nul(text)) {
        json_add_string(s, text, strlen(text));
        return;
    }
    char *restored = mem_strdup(text);
    if (restored)
        json_add_string(s, restored, text_restore_nuls(restored, text));
    else
        s->failed = s->no_memory = true;
    free(restored);
}

void json_add_number(str *s, double v) {
    if (!isfinite(v)) v = v > 0 ? 9999 : -9999;
    str_addf(s, "%.9g", v);
}

void json_add_value(str *s, const cJSON *v) {
    if (cJSON_IsString(v)) {
        json_add_cstr(s, v->valuestring);
    } else if (cJSON_IsNumber(v)) {
        int64_t whole;
        if (v->valuestring)
            str_add(s, v->valuestring);
        else if (json_int64(v, &whole))
            str_addf(s, "%lld", (long long)whole);
        else
            str_addf(s, "%.17g", v->valuedouble);
    } else if (cJSON_IsObject(v) || cJSON_IsArray(v)) {
        bool object = cJSON_IsObject(v);
        str_add_char(s, object ? '{' : '[');
        for (const cJSON *c = v->child; c; c = c->next) {
            if (c != v->child) str_add_char(s, ',');
            if (object) {
                json_add_cstr(s, c->string);
                str_add_char(s, ':');
            }
            json_add_value(s, c);
        }
        str_add_char(s, object ? '}' : ']');
    } else {
        str_add(s, cJSON_IsTrue(v) ? "true" : cJSON_IsFalse(v) ? "false" : "null");
    }
}
