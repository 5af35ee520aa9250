// A benchmark's own calls succeed, or it ends with what is wrong.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "windrow/status.h"

namespace windrow {

[[noreturn]] inline void fail(const Status& status) {
  fmt::print(stderr, "{}\n", status.message());
  std::exit(1);
}
template <typename T>
T take(Result<T> result) {
  if (!result.ok()) fail(result.status());
  return std::move(*result);
}
inline void check(const Status& status) {
  if (!status.ok()) fail(status);
}

}  // namespace windrow
