// The "post_processor" of tokenizer.json: the ids put around those of a text.
//
// Types: TemplateProcessing (of its template "single"), ByteLevel (changes offsets only), Sequence.
// Thread safety: immutable after parse.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "text/component.h"

namespace windrow::text {

class PostProcessor {
 public:
  // `known` says whether an id is in the vocabulary. Errors go to the component.
  static PostProcessor parse(Component& component, const std::function<bool(std::int32_t)>& known);

  const std::vector<std::int32_t>& before() const noexcept { return before_; }
  const std::vector<std::int32_t>& after() const noexcept { return after_; }

 private:
  void append(Component& component, const std::function<bool(std::int32_t)>& known);
  void append_template(Component& component, const std::function<bool(std::int32_t)>& known);

  std::vector<std::int32_t> before_;
  std::vector<std::int32_t> after_;
};

}  // namespace windrow::text
