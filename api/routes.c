/* routes.c - the table of all endpoints, and the only file that names them. Each is a `const struct
 * route` in its ep_*.c; a new one is one line here. The order is that of GET /metrics and of
 * GET /v1/inferd/fields; a path goes before one whose {id} it would be. */
#include "api/routes.h"

#include "api/http/http.h"

#define ROUTES(X)                                                                                  \
    X(chat_route)                                                                                  \
    X(chat_render_route)                                                                           \
    X(chat_list_route)                                                                             \
    X(chat_get_route)                                                                              \
    X(chat_update_route)                                                                           \
    X(chat_delete_route)                                                                           \
    X(chat_messages_route)                                                                         \
    X(completions_route)                                                                           \
    X(completions_render_route)                                                                    \
    X(embeddings_route)                                                                            \
    X(rerank_route)                                                                                \
    X(rerank_2_route)                                                                              \
    X(score_route)                                                                                 \
    X(messages_route)                                                                              \
    X(messages_count_route)                                                                        \
    X(ollama_chat_route)                                                                           \
    X(ollama_generate_route)                                                                       \
    X(ollama_embed_route)                                                                          \
    X(ollama_embeddings_route)                                                                     \
    X(ollama_show_route)                                                                           \
    X(ollama_tags_route)                                                                           \
    X(ollama_ps_route)                                                                             \
    X(ollama_delete_route)                                                                         \
    X(ollama_copy_route)                                                                           \
    X(ollama_pull_route)                                                                           \
    X(ollama_create_route)                                                                         \
    X(ollama_version_route)                                                                        \
    X(llama_completion_route)                                                                      \
    X(llama_completions_route)                                                                     \
    X(llama_infill_route)                                                                          \
    X(llama_embedding_route)                                                                       \
    X(llama_embeddings_route)                                                                      \
    X(llama_template_route)                                                                        \
    X(llama_props_route)                                                                           \
    X(llama_slots_route)                                                                           \
    X(responses_route)                                                                             \
    X(response_tokens_route)                                                                       \
    X(response_get_route)                                                                          \
    X(response_delete_route)                                                                       \
    X(response_items_route)                                                                        \
    X(response_cancel_route)                                                                       \
    X(conversations_route)                                                                         \
    X(conversation_get_route)                                                                      \
    X(conversation_update_route)                                                                   \
    X(conversation_delete_route)                                                                   \
    X(conversation_items_route)                                                                    \
    X(conversation_append_route)                                                                   \
    X(conversation_item_route)                                                                     \
    X(conversation_item_delete_route)                                                              \
    X(models_route)                                                                                \
    X(model_route)                                                                                 \
    X(tokenize_route)                                                                              \
    X(detokenize_route)                                                                            \
    X(render_route)                                                                                \
    X(openapi_route)                                                                               \
    X(admin_models_route)                                                                          \
    X(admin_load_route)                                                                            \
    X(admin_unload_route)                                                                          \
    X(admin_named_load_route)                                                                      \
    X(admin_named_unload_route)                                                                    \
    X(admin_pull_route)                                                                            \
    X(admin_cancel_route)                                                                          \
    X(reload_route)                                                                                \
    X(usage_route)                                                                                 \
    X(usage_completions_route)                                                                     \
    X(usage_embeddings_route)                                                                      \
    X(history_route)                                                                               \
    X(fields_route)                                                                                \
    X(livez_route)                                                                                 \
    X(readyz_route)                                                                                \
    X(health_route)                                                                                \
    X(metrics_route)                                                                               \
    X(web_route)

#define DECLARE(name) extern const struct route name;
ROUTES(DECLARE)

#define ADDRESS(name) &name,
const struct route *const api_routes[] = {ROUTES(ADDRESS)};
const size_t api_n_routes = sizeof api_routes / sizeof *api_routes;

_Static_assert(sizeof api_routes / sizeof *api_routes <= HTTP_MAX_ROUTES,
               "sums of costs keep one more row, for requests without a route");
