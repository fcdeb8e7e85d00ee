/* gen_int.h - the files of a generation, from the bottom: gen_answer.c, gen_events.c, gen_resume.c,
 * gen.c. */
#ifndef INFERD_API_GENERATE_GEN_INT_H
#define INFERD_API_GENERATE_GEN_INT_H

#include "api/generate/gen.h"

/* ---- gen_answer.c: splits answers into pieces. Adds to the choice or, in a stream, writes. ----
 */

int gen_answer_init(struct gen_choice *c, const struct chat_parser_config *parser,
                    const struct gen_options *o, err *e);
bool gen_answer_take(struct gen *g, struct gen_choice *c, int32_t token); /* true: it stopped */
void gen_answer_finish(struct gen *g, struct gen_choice *c, bool cut);
/* Writes the text and log-probabilities that are complete. */
void gen_write_text(struct gen *g, struct gen_choice *c);

/* ---- gen_events.c: events of the engine's streams ---- */

/* Takes events until every stream is empty (only then does the engine notify again), something
 * failed, or enough bytes wait for the socket. */
void gen_take_events(struct gen *g);
/* Takes the final event of a choice that had reached its end when its connection was lost. */
void gen_end_choice(struct gen *g, struct gen_choice *c);
bool gen_all_done(const struct gen *g);
/* Is memory missing in what the choice has collected? */
bool gen_pending_failed(const struct gen_choice *c);

/* ---- gen_resume.c: a generation without its connection ---- */

/* Ends its engine streams: nothing runs and nothing points to the request any more. */
void gen_detach(struct gen *g);
/* Continues after frame number `after`, on r. ERR_NOT_FOUND: that frame is not kept any more;
 * errors of engine_submit. */
int gen_attach(struct gen *g, struct request *r, uint64_t after, err *e);
/* Keeps the frames that were read, for gen_attach. */
void gen_note_read(struct gen *g);

#endif
