/* test_rerank.c - the prompt of a reranker: its pieces, which of them are trusted, and templates
 * that are refused. */
#include "core/base/str.h"
#include "core/chat/rerank.h"

#include "check.h"

#include <string.h>

static struct rerank_text text_of(const char *text) {
    return (struct rerank_text){text, text ? strlen(text) : 0};
}

/* Splits, and writes the pieces as text, those that are not trusted in braces. */
static int split(const char *source, const char *instruction, const char *query,
                 const char *document, char out[1024], err *e) {
    const struct rerank_input in = {source, text_of(instruction), text_of(query),
                                    text_of(document)};
    tokenizer_piece pieces[RERANK_MAX_PIECES];
    size_t n;
    memset(e, 0, sizeof *e);
    *out = '\0';
    int rc = rerank_split(&in, pieces, &n, e);
    for (size_t i = 0; !rc && i < n; i++)
        snprintf(out + strlen(out), 1024 - strlen(out), pieces[i].trusted ? "%.*s" : "{%.*s}",
                 (int)pieces[i].n, pieces[i].text);
    return rc;
}

static void texts_are_not_trusted(void) {
    char got[1024];
    err e;
    CHECK(split("a {query} b {document} c", NULL, "Q", "D", got, &e) == 0);
    CHECK_MSG(strcmp(got, "a {Q} b {D} c") == 0, "%s", got);
    CHECK(split("{document}{query}{query}", NULL, "Q", "D", got, &e) == 0);
    CHECK_MSG(strcmp(got, "{D}{Q}{Q}") == 0, "%s", got);
    /* What is put in is not searched again. */
    CHECK(split("a {query} b {document}", NULL, "{document}", "{query}", got, &e) == 0);
    CHECK_MSG(strcmp(got, "a {{document}} b {{query}}") == 0, "%s", got);
    CHECK(split("a {query} b {document} c", NULL, "", "", got, &e) == 0);
    CHECK_MSG(strcmp(got, "a  b  c") == 0, "%s", got);
}

static void an_instruction_replaces_its_line(void) {
    static const char source[] = "<Instruct>: old\n{query} {document}";
    char got[1024];
    err e;
    CHECK(split(source, "new", "Q", "D", got, &e) == 0);
    CHECK_MSG(strcmp(got, "<Instruct>: {new}\n{Q} {D}") == 0, "%s", got);
    CHECK(split(source, NULL, "Q", "D", got, &e) == 0);
    CHECK_MSG(strcmp(got, "<Instruct>: old\n{Q} {D}") == 0, "%s", got);
    CHECK(split("{query} {document}", "new", "Q", "D", got, &e) == ERR_UNSUPPORTED);
    CHECK(strcmp(e.param, "instruction") == 0);
    CHECK(split(rerank_qwen3_template, "new", "Q", "D", got, &e) == 0);
    CHECK(strstr(got, "<Instruct>: {new}\n<Query>: {Q}\n<Document>: {D}<|im_end|>\n") != NULL);
}

static void other_templates_are_refused(void) {
    static const char *const sources[] = {
        "",
        "{query}",
        "{document}",
        "{% for m in messages %}{query}{document}{% endfor %}",
        "{{ query }} {document} {query}",
        "{query}{document}{query}{document}{query}{document}{query}{document}{query}{document}"
        "{query}{document}{query}{document}{query}{document}{query}",
    };
    char got[1024];
    err e;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        CHECK_MSG(split(sources[i], NULL, "Q", "D", got, &e) == ERR_UNSUPPORTED && e.msg[0],
                  "template %zu", i);
}

int main(void) {
    RUN(texts_are_not_trusted);
    RUN(an_instruction_replaces_its_line);
    RUN(other_templates_are_refused);
    return check_done();
}
