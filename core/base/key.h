/* key.h - what an API key may do, for the rooms that store keys and those that check them. */
#ifndef INFERD_CORE_BASE_KEY_H
#define INFERD_CORE_BASE_KEY_H

enum key_scope {
    KEY_INFER = 1,   /* generate; what is stored of answers */
    KEY_EMBED = 2,   /* embeddings and scores */
    KEY_ADMIN = 4,   /* change the registry and which models are loaded */
    KEY_METRICS = 8, /* what the server does for everyone */
    KEY_ALL_SCOPES = 15
};

enum {
    KEY_PREFIX_BYTES = 12,  /* "ik_", 8 characters that name the key in logs, NUL */
    KEY_TEXT_BYTES = 65,    /* the prefix, '_', 52 characters of 256 random bits, NUL */
    KEY_MODELS_BYTES = 1024 /* a list of models, with the NUL */
};

#endif
