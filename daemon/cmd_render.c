/* cmd_render.c - inferd render: messages through the model's chat template, as a request would. */
#include "core/base/clock.h"
#include "daemon/commands.h"
#include "daemon/input.h"
#include "daemon/instrument.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES_MAX_BYTES = 16 << 20, TEXT_MAX_BYTES = 64 << 20 };

/* The file is an array of messages, or an object as a request has it. */
static int fill_input(const cJSON *root, struct chat_input *in, const char *file, err *e) {
    if (cJSON_IsArray(root)) {
        in->messages = root;
        return 0;
    }
    in->messages = cJSON_GetObjectItemCaseSensitive(root, "messages");
    in->tools = cJSON_GetObjectItemCaseSensitive(root, "tools");
    in->documents = cJSON_GetObjectItemCaseSensitive(root, "documents");
    in->extra = cJSON_GetObjectItemCaseSensitive(root, "chat_template_kwargs");
    if (!cJSON_IsArray(in->messages))
        return err_set(e, ERR_INVALID, "%s: expected an array of messages or {\"messages\": [...]}",
                       file);
    if (in->extra && !cJSON_IsObject(in->extra))
        return err_set(e, ERR_INVALID, "%s: chat_template_kwargs is not an object", file);
    if ((in->tools && !cJSON_IsArray(in->tools)) ||
        (in->documents && !cJSON_IsArray(in->documents)))
        return err_set(e, ERR_INVALID, "%s: tools and documents are arrays", file);
    return 0;
}

static int read_messages(const char *file, cJSON **root, err *e) {
    char *text;
    const char *end = NULL;
    size_t n;
    int rc = textfile_read(file, MESSAGES_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    *root = cJSON_ParseWithLengthOpts(text, n, &end, false);
    size_t at = end ? (size_t)(end - text) : 0;
    if (*root && at + strspn(text + at, " \t\r\n") != n) {
        cJSON_Delete(*root);
        *root = NULL;
    }
    rc = *root ? chat_json_keep_numbers(*root, text, e)
               : err_set(e, ERR_FORMAT, "%s: no JSON at byte %zu", textfile_name(file), at);
    free(text);
    return rc;
}

static int render(const chat_template *chat, const char *file, bool no_prompt, err *e) {
    struct chat_input in = {.add_generation_prompt = !no_prompt, .now = clock_wall_s()};
    struct chat_output out = {0};
    cJSON *root = NULL;
    int rc = read_messages(file, &root, e);
    if (!rc) rc = fill_input(root, &in, file, e);
    if (!rc) rc = chat_render(chat, &in, TEXT_MAX_BYTES, &out, e);
    if (!rc) fwrite(out.text, 1, out.n, stdout);
    if (!rc) chat_output_fini(&out);
    cJSON_Delete(root);
    return rc;
}

int cmd_render(int argc, char **argv, err *e) {
    const char *messages = NULL;
    bool no_prompt = false;
    const struct option own[] = {
        {.name = "messages",
         .kind = OPTION_TEXT,
         .target = &messages,
         .value = "FILE",
         .help = "JSON: an array of messages, or an object with messages and tools (- is stdin)"},
        {.name = "no-generation-prompt",
         .kind = OPTION_SWITCH,
         .target = &no_prompt,
         .help = "do not open the assistant's answer at the end"}};
    struct instrument in = {
        .options = {.usage = "render --messages FILE",
                    .summary = "Prints the prompt text that a model's chat template makes of "
                               "messages, byte for byte.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .keys = instrument_text_keys}};
    tokenizer *tok = NULL;
    chat_template *chat = NULL;
    int status = instrument_parse(&in, argc, argv, e);
    if (status < 0 && !messages) {
        err_set(e, ERR_INVALID, "--messages FILE is missing");
        status = EXIT_USAGE;
    } else if (status < 0) {
        int rc = tokenizer_open(in.model.path, &tok, e);
        if (!rc) rc = loader_chat_template(tok, &chat, e);
        if (!rc) rc = render(chat, messages, no_prompt, e);
        status = rc ? 1 : 0;
    }
    chat_template_free(chat);
    tokenizer_close(tok);
    instrument_fini(&in);
    return status;
}
