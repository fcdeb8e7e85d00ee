/* notify.h - reports the service's state to systemd (Type=notify), if NOTIFY_SOCKET is set. */
#ifndef INFERD_NOTIFY_H
#define INFERD_NOTIFY_H

/* state: "READY=1", "STOPPING=1". A failure is only logged. */
void notify_send(const char *state);

#endif
