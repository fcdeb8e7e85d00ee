/* dispatch.h - Metal.h includes it; the host code uses none of it. */
#pragma once
