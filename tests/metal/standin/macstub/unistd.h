#pragma once
#include <stddef.h>
int getpagesize(void);
long sysconf(int);
#define _SC_PAGESIZE 29
