/* builtin.c - well-known formats, for files without a chat template. Written for this project from
 * the published formats; none supports tools. Constant data. */
#include "core/chat/chat.h"

#include <string.h>

/* Refuses messages that a format has no turn for. */
#define PLAIN_TURNS                                                                                \
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] or m.tool_calls "  \
    "%}"                                                                                           \
    "{{ raise_exception('this format does not support tools or the role ' ~ m.role) }}"            \
    "{% endif %}{% endfor %}"

/* A leading system message is put before the first user's text: `first`, for the turn at
 * loop.first; `rest`: the other messages, which must alternate. */
#define SYSTEM_IN_FIRST(before, after)                                                             \
    PLAIN_TURNS                                                                                    \
    "{% set first = '' %}{% set rest = messages %}"                                                \
    "{% if messages and messages[0].role == 'system' %}"                                           \
    "{% set first = '" before "' ~ messages[0].content ~ '" after "' %}"                           \
    "{% set rest = messages[1:] %}{% endif %}"                                                     \
    "{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"                     \
    "{{ raise_exception('roles must alternate: user, assistant, user, ...') }}"                    \
    "{% endif %}{% endfor %}"

#define PROMPT(text) "{% if add_generation_prompt %}" text "{% endif %}"

#define MISTRAL(space)                                                                             \
    SYSTEM_IN_FIRST("", "\\n\\n")                                                                  \
    "{{ bos_token }}{% for m in rest %}{% if m.role == 'user' %}"                                  \
    "{{ '[INST]" space "' ~ (first if loop.first) ~ m.content ~ '[/INST]' }}"                      \
    "{% else %}{{ '" space "' ~ m.content ~ eos_token }}{% endif %}{% endfor %}"

static const struct builtin {
    const char *name;
    const char *tokens[3]; /* control tokens by which it is recognised; NULL: it is not */
    int prefix;            /* 1, 0: for vocabularies with, without a space before texts; -1: both */
    const char *source;
} builtins[] = {
    {"llama3",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     -1,
     PLAIN_TURNS "{{ bos_token }}{% for m in messages %}"
                 "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ "
                 "m.content | trim ~ '<|eot_id|>' }}{% endfor %}" PROMPT(
                     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}")},
    {"chatml",
     {"<|im_start|>", "<|im_end|>"},
     -1,
     PLAIN_TURNS "{% for m in messages %}"
                 "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
                 "{% endfor %}" PROMPT("{{ '<|im_start|>assistant\\n' }}")},
    {"gemma",
     {"<start_of_turn>", "<end_of_turn>"},
     -1,
     SYSTEM_IN_FIRST(
         "", "\\n\\n") "{{ bos_token }}{% for m in rest %}"
                       "{{ '<start_of_turn>' ~ ('user' if m.role == 'user' else 'model') ~ '\\n' ~ "
                       "(first if loop.first) ~ m.content | trim ~ '<end_of_turn>\\n' }}{% endfor "
                       "%}" PROMPT("{{ '<start_of_turn>model\\n' }}")},
    {"phi3",
     {"<|user|>", "<|assistant|>", "<|end|>"},
     -1,
     PLAIN_TURNS "{% for m in messages %}"
                 "{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ '<|end|>\\n' }}"
                 "{% endfor %}" PROMPT("{{ '<|assistant|>\\n' }}")},
    {"zephyr",
     {"<|user|>", "<|assistant|>", "<|system|>"},
     -1,
     PLAIN_TURNS "{% for m in messages %}"
                 "{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ eos_token ~ '\\n' }}"
                 "{% endfor %}" PROMPT("{{ '<|assistant|>\\n' }}")},
    {"mistral", {"[INST]", "[/INST]"}, 1, MISTRAL(" ")},
    {"mistral-tekken", {"[INST]", "[/INST]"}, 0, MISTRAL("")},
    {"llama2",
     {NULL},
     -1,
     SYSTEM_IN_FIRST("<<SYS>>\\n",
                     "\\n<</SYS>>\\n\\n") "{% for m in rest %}{% if m.role == 'user' %}"
                                          "{{ bos_token ~ '[INST] ' ~ (first if loop.first) ~ "
                                          "m.content | trim ~ ' [/INST]' }}"
                                          "{% else %}{{ ' ' ~ m.content | trim ~ ' ' ~ eos_token "
                                          "}}{% endif %}{% endfor %}"},
    {"vicuna",
     {NULL},
     -1,
     PLAIN_TURNS
     "{{ bos_token }}{% for m in messages %}"
     "{% if m.role == 'system' %}{{ m.content ~ ' ' }}"
     "{% elif m.role == 'user' %}{{ 'USER: ' ~ m.content ~ ' ' }}"
     "{% else %}{{ 'ASSISTANT: ' ~ m.content ~ eos_token }}{% endif %}{% endfor %}" PROMPT(
         "{{ 'ASSISTANT:' }}")},
    {"alpaca",
     {NULL},
     -1,
     PLAIN_TURNS "{{ bos_token }}{% for m in messages %}"
                 "{% if m.role == 'system' %}{{ m.content ~ '\\n\\n' }}"
                 "{% elif m.role == 'user' %}{{ '### Instruction:\\n' ~ m.content ~ '\\n\\n' }}"
                 "{% else %}{{ '### Response:\\n' ~ m.content ~ eos_token ~ '\\n\\n' }}"
                 "{% endif %}{% endfor %}" PROMPT("{{ '### Response:\\n' }}")},
};

enum { N_BUILTINS = sizeof builtins / sizeof *builtins };

const char *chat_builtin_source(const char *name) {
    for (int i = 0; i < N_BUILTINS; i++)
        if (strcmp(builtins[i].name, name) == 0) return builtins[i].source;
    return NULL;
}

const char *chat_builtin_name(int i) {
    return i >= 0 && i < N_BUILTINS ? builtins[i].name : NULL;
}

const char *chat_builtin_for(const tokenizer *tok) {
    for (int i = 0; i < N_BUILTINS; i++) {
        const struct builtin *b = &builtins[i];
        bool known = b->tokens[0] != NULL;
        for (int j = 0; known && j < 3 && b->tokens[j]; j++) {
            int32_t id = tokenizer_find(tok, b->tokens[j]);
            known = id >= 0 && tokenizer_is_control(tok, id);
        }
        if (known && (b->prefix < 0 || b->prefix == tokenizer_strips_leading_space(tok)))
            return b->name;
    }
    return NULL;
}
