/* commands/tokenize.c - inferd tokenize: text to ids and back, with the model's tokenizer. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/text/utf8.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/instrument.h"
#include "daemon/commands/jsonl.h"
#include "daemon/commands/printing.h"
#include "daemon/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX_BYTES = 256 << 20, IDS_MAX = 64 << 20 };

struct tokenize_args {
    const char *file, *decode; /* decode: "" with --jsonl, whose lines have the ids */
    bool json, jsonl, bare, add_special, parse_special, with_control;
};

static int print_ids_json(const tokenizer *tok, const int32_t *ids, size_t n, err *e) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "n_tokens", (double)n);
    cJSON *tokens = cJSON_AddArrayToObject(o, "tokens");
    cJSON *pieces = cJSON_AddArrayToObject(o, "pieces");
    for (size_t i = 0; i < n; i++) {
        str piece;
        instrument_piece(tok, ids[i], &piece);
        cJSON_AddItemToArray(tokens, cJSON_CreateNumber(ids[i]));
        cJSON_AddItemToArray(pieces, cJSON_CreateString(str_cstr(&piece)));
        str_fini(&piece);
    }
    return printing_json(o, e);
}

static void print_ids(const tokenizer *tok, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        str piece;
        instrument_piece(tok, ids[i], &piece);
        printf("%d\t%s\n", (int)ids[i], str_cstr(&piece));
        str_fini(&piece);
    }
}

static int encode_text(const tokenizer *tok, const struct tokenize_args *a, err *e) {
    char *text;
    int32_t *ids = NULL;
    size_t n, n_ids;
    int rc = textfile_read(a->file ? a->file : "-", TEXT_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    int flags =
        (a->bare ? 0 : TOKENIZER_ADD_SPECIAL) | (a->parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
    rc = tokenizer_encode(tok, text, n, flags, IDS_MAX, &ids, &n_ids, e);
    free(text);
    if (!rc && a->json)
        rc = print_ids_json(tok, ids, n_ids, e);
    else if (!rc)
        print_ids(tok, ids, n_ids);
    free(ids);
    return rc;
}

static int decode_ids(const tokenizer *tok, const struct tokenize_args *a, err *e) {
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n_ids, n;
    int rc = idlist_parse(a->decode, tokenizer_n_vocab(tok), &ids, &n_ids, e);
    if (!rc) rc = tokenizer_decode(tok, ids, n_ids, a->with_control, &text, &n, e);
    if (!rc && a->json) {
        str lossy;
        str_init(&lossy, TEXT_MAX_BYTES);
        utf8_add_lossy(&lossy, text, n);
        cJSON *o = cJSON_CreateObject();
        cJSON_AddNumberToObject(o, "n_tokens", (double)n_ids);
        cJSON_AddStringToObject(o, "text", str_cstr(&lossy));
        str_fini(&lossy);
        rc = printing_json(o, e);
    } else if (!rc) {
        fwrite(text, 1, n, stdout);
        if (n == 0 || text[n - 1] != '\n') putchar('\n');
    }
    free(text);
    free(ids);
    return rc;
}

struct line_tools {
    const tokenizer *tok;
    const struct tokenize_args *a;
};

static int encode_line(const tokenizer *tok, const struct tokenize_args *a, const cJSON *o,
                       str *out, err *e) {
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(o, "text");
    int flags = (a->add_special ? TOKENIZER_ADD_SPECIAL : 0) |
                (a->parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
    int32_t *ids;
    size_t n;
    if (!cJSON_IsString(text))
        return err_set(e, ERR_INVALID, "expected an object with the string \"text\"");
    int rc = tokenizer_encode(tok, text->valuestring, strlen(text->valuestring), flags, IDS_MAX,
                              &ids, &n, e);
    if (rc) return rc;
    str_add(out, "{\"ids\":[");
    for (size_t i = 0; i < n; i++)
        str_addf(out, "%s%d", i ? "," : "", (int)ids[i]);
    str_add(out, "]}");
    free(ids);
    return 0;
}

static int decode_line(const tokenizer *tok, const struct tokenize_args *a, const cJSON *o,
                       str *out, err *e) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "ids"), *item;
    if (!cJSON_IsArray(list))
        return err_set(e, ERR_INVALID, "expected an object with the list \"ids\"");
    size_t n_ids = 0, n;
    int32_t *ids = mem_new((uint64_t)cJSON_GetArraySize(list), sizeof *ids);
    char *text;
    int rc = ids ? 0 : err_no_memory(e);
    cJSON_ArrayForEach(item, list) {
        bool known = cJSON_IsNumber(item) && item->valuedouble == (double)item->valueint &&
                     item->valueint >= 0 && item->valueint < tokenizer_n_vocab(tok);
        if (!rc && !known)
            rc = err_set(e, ERR_INVALID, "element %zu of \"ids\" is not a token id", n_ids);
        if (!rc) ids[n_ids++] = item->valueint;
    }
    if (!rc) rc = tokenizer_decode(tok, ids, n_ids, a->with_control, &text, &n, e);
    free(ids);
    if (rc) return rc;
    str_add(out, "{\"text\":");
    jsonl_add_text(out, text, n);
    str_add_char(out, '}');
    free(text);
    return 0;
}

static int convert_line(void *arg, const cJSON *o, str *out, err *e) {
    const struct line_tools *t = arg;
    return t->a->decode ? decode_line(t->tok, t->a, o, out, e)
                        : encode_line(t->tok, t->a, o, out, e);
}

static int convert_lines(const tokenizer *tok, const struct tokenize_args *a, err *e) {
    struct line_tools tools = {tok, a};
    return jsonl_run(&(struct jsonl){convert_line, &tools, TEXT_MAX_BYTES}, e);
}

static int convert_input(const tokenizer *tok, const struct tokenize_args *a, err *e) {
    if (a->jsonl) return convert_lines(tok, a, e);
    if (a->decode && !a->decode[0])
        return err_set(e, ERR_INVALID, "--decode requires ids, or --jsonl");
    return a->decode ? decode_ids(tok, a, e) : encode_text(tok, a, e);
}

int cmd_tokenize(int argc, char **argv, err *e) {
    struct tokenize_args a = {0};
    const struct option own[] = {
        {.name = "file",
         .kind = OPTION_TEXT,
         .target = &a.file,
         .value = "FILE",
         .help = "text to encode (default: standard input)"},
        {.name = "decode",
         .kind = OPTION_MAYBE,
         .target = &a.decode,
         .value = "[IDS]",
         .help = "print the text of these ids (1,2,3) instead; with --jsonl: of each line's ids"},
        {.name = "jsonl",
         .kind = OPTION_SWITCH,
         .target = &a.jsonl,
         .help =
             "read a line {\"text\": ...} of standard input for each text, or {\"ids\": [...]}\n"
             "with --decode; print a line for each; BOS and EOS only with --add-special"},
        {.name = "add-special",
         .kind = OPTION_SWITCH,
         .target = &a.add_special,
         .help = "with --jsonl: add the tokens that begin or end a text"},
        {.name = "bare",
         .kind = OPTION_SWITCH,
         .target = &a.bare,
         .help = "do not add the tokens that begin or end a text"},
        {.name = "parse-special",
         .kind = OPTION_SWITCH,
         .target = &a.parse_special,
         .help = "read the text of control tokens as those tokens"},
        {.name = "with-control",
         .kind = OPTION_SWITCH,
         .target = &a.with_control,
         .help = "with --decode: show control tokens"},
        {.name = "json", .kind = OPTION_SWITCH, .target = &a.json, .help = "print JSON"}};
    struct instrument in = {
        .options = {.usage = "tokenize",
                    .summary = "Shows how a model's tokenizer cuts a text into tokens.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .keys = instrument_text_keys}};
    tokenizer *tok = NULL;
    int status = instrument_parse(&in, argc, argv, e);
    if (status < 0) {
        int rc = tokenizer_open(in.model.path, &tok, e);
        if (!rc) rc = convert_input(tok, &a, e);
        status = rc ? 1 : 0;
    }
    tokenizer_close(tok);
    instrument_fini(&in);
    return status;
}
