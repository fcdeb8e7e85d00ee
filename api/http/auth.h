/* auth.h - access control: API keys, and the browser rules that keep other sites out. The checks
 * fill the reply and return false if the request is refused. HTTP threads; auth_key also on pool
 * threads. */
#ifndef INFERD_API_HTTP_AUTH_H
#define INFERD_API_HTTP_AUTH_H

#include <stdbool.h>

struct request;

/* The key, and that it has one of the scopes of r's route. */
bool auth_check_key(struct request *r);
/* After auth_check_key: may r change what the server has? With keys, an administrator's key;
 * without any, programs of this machine, but neither web pages of other sites nor clients of a
 * proxy. */
bool auth_check_admin(struct request *r);
bool auth_is_admin(const struct request *r); /* the same, without a reply */
bool auth_check_host(struct request *r);
bool auth_check_origin(struct request *r);
/* May r's key use the model with that id? */
bool auth_may_use(const struct request *r, const char *model);
/* Whose r is: the accepted API key of a checked request, or what stands for it when its secret
 * changes; NULL if no keys are configured. */
const char *auth_key(const struct request *r);

#endif
