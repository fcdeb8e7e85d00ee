/* id.h - random ids of requests, answers and tool calls. Any thread. */
#ifndef INFERD_API_HTTP_ID_H
#define INFERD_API_HTTP_ID_H

/* Writes prefix and 24 random hex digits. dst holds 48 bytes; prefix is shorter than 24. */
void id_new(char *dst, const char *prefix);

#endif
