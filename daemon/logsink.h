/* logsink.h - writes log lines to stderr, as "2026-01-31T12:00:00Z info  text"; if stderr leads to
 * systemd's journal, as "<6>text", since the journal adds the time. With format "json" each line is
 * a JSON object with time, level, message and what the message says in values. */
#ifndef INFERD_LOGSINK_H
#define INFERD_LOGSINK_H

/* level: debug, info, warn or error; format: text or json. Once, before other threads start. */
void logsink_open(const char *level, const char *format);
void logsink_set(const char *level, const char *format); /* any thread */

#endif
