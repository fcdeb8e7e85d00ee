/* keywords.h - the grammar of a call's arguments as Python's keyword arguments, `city="Rome",
 * days=[1, 2]`: the names of a schema's properties in its order, their values as JSON (booleans
 * also as True and False). Any thread. */
#ifndef INFERD_API_KEYWORDS_H
#define INFERD_API_KEYWORDS_H

#include "core/grammar/grammar.h"

/* Can an object's schema be written so? Its properties have Python's names, and no other keyword
 * says which of them an object has. */
bool keywords_fit(const cJSON *schema);
/* For a schema that fits; in_order is not read. As for grammar_json, negative on failure. */
grammar_node keywords_node(grammar_builder *b, const struct grammar_schema *schema);

#endif
