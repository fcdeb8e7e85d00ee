/* keywords.h - the grammar of a call's arguments with names that have no quotes: Python's keyword
 * arguments, `city="Rome", days=[1, 2]`, or a bare object, `{city:<|"|>Rome<|"|>,days:[1, 2]}`. The
 * names of a schema's properties in its order, their values as JSON; Python's booleans also as True
 * and False; strings of a bare object, and lists and objects of them, between marks unless the
 * schema says more of a string than which texts it may be. Any thread. */
#ifndef INFERD_API_KEYWORDS_H
#define INFERD_API_KEYWORDS_H

#include "core/grammar/grammar.h"

/* How they are written. */
struct keywords_form {
    bool bare;
    grammar_node quote, text; /* of bare objects: the mark around strings; any text without it */
};

/* Can an object's schema be written so? Its properties have Python's names, and no other keyword
 * says which of them an object has. */
bool keywords_fit(const cJSON *schema);
/* For a schema that fits; in_order is not read. As for grammar_json, negative on failure. */
grammar_node keywords_node(grammar_builder *b, const struct keywords_form *form,
                           const struct grammar_schema *schema);

#endif
