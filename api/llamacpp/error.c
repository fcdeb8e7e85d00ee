/* error.c - llama.cpp's form of errors. Pure; any thread. */
#include "api/http/json.h"
#include "api/http/route.h"
#include "api/llamacpp/llamacpp.h"

#include <string.h>

/* llama.cpp's word for an error, by its status. */
static const char *error_type(const struct api_error *error) {
    const char *code = error->code ? error->code : "";
    if (!strcmp(code, "context_length_exceeded")) return "exceed_context_size_error";
    if (!strcmp(code, "unsupported_value")) return "not_supported_error";
    switch (error->status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
    case 503:
        return "unavailable_error";
    case 500:
    case 504:
        return "server_error";
    default:
        return "invalid_request_error";
    }
}

/* "param" is ours, and last. */
void llama_write_error(str *out, const struct api_error *error) {
    str_addf(out, "{\"error\":{\"code\":%u,\"message\":", error->status);
    json_add_cstr(out, error->message);
    str_addf(out, ",\"type\":\"%s\"", error_type(error));
    if (error->param && *error->param) {
        str_add(out, ",\"param\":");
        json_add_cstr(out, error->param);
    }
    str_add(out, "}}");
}

const struct protocol llama_protocol = {.write_error = llama_write_error};
