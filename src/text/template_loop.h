// The `loop` of a for statement.
//
// Thread safety: belongs to one rendering.
#pragma once

#include "text/template_value.h"

namespace windrow::text {

struct LoopState {
  std::shared_ptr<const List> items;  // after the loop's `if`
  std::size_t at = 0;
  int nesting = 1;  // as a value
};

}  // namespace windrow::text
