/* keys.h - API keys, accounts and audit log of the registry, for the HTTP server, which does not
 * see the registry. */
#ifndef INFERD_API_KEYS_H
#define INFERD_API_KEYS_H

#include "api/http/key.h"

struct request;
struct request_usage;

/* http_setup.account, if there is a ledger. */
void api_account(struct request *r, const struct request_usage *more);
/* http_setup.ended, if there is an audit log: notes administrative acts. */
void api_audit(struct request *r, unsigned status);
extern const struct http_keys api_registry_keys;

#endif
