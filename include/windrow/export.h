// Marks what the shared library exports; everything else is hidden.
#pragma once

#if defined(__GNUC__) || defined(__clang__)
#define WINDROW_API __attribute__((visibility("default")))
#else
#define WINDROW_API
#endif
