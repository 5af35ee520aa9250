// Reading templates.
#include "text/post_processor.h"

#include <fmt/format.h>

#include "text/vocabulary.h"

namespace windrow::text {

PostProcessor PostProcessor::parse(Component& component, const std::function<bool(std::int32_t)>& known) {
  PostProcessor result;
  result.append(component, known);
  return result;
}

void PostProcessor::append(Component& component, const std::function<bool(std::int32_t)>& known) {
  const std::string type = component.type();
  if (type == "Sequence") {
    component.allow({"processors"});
    component.each("processors", [&](Component& item) { append(item, known); });
  } else if (type == "TemplateProcessing") {
    append_template(component, known);
  } else if (type == "ByteLevel") {
    component.allow({"add_prefix_space", "trim_offsets", "use_regex"});
  } else {
    component.refuse_type(type);
  }
}

// "single": [{"SpecialToken": {"id": "<bos>", ...}}, {"Sequence": {"id": "A", ...}}, ...]; "pair" is for
// two texts in one encoding, which we don't offer.
void PostProcessor::append_template(Component& component, const std::function<bool(std::int32_t)>& known) {
  component.allow({"single", "pair", "special_tokens"});
  std::vector<std::int32_t> before, after;
  bool sequence = false;
  const Json* tokens = component.find("special_tokens");
  component.each("single", [&](Component& item) {
    item.allow({"SpecialToken", "Sequence"});
    const bool special = item.has("SpecialToken");
    if (special == item.has("Sequence")) return item.fail_here("is neither a SpecialToken nor a Sequence");
    JsonReader part = item.object(special ? "SpecialToken" : "Sequence");
    const std::string id = part.require_string("id");
    if (!special) {
      if (id != "A" || sequence) item.fail_here("is not the one sequence A, which is not supported");
      sequence = true;
      return;
    }
    if (!item.ok()) return;
    const Json* token =
        tokens == nullptr || !tokens->is_object() || !tokens->contains(id) ? nullptr : &(*tokens)[id];
    if (token == nullptr) {
      return item.fail_here(fmt::format("names {}, which is not in special_tokens", quote(id)),
                            StatusCode::kCorrupt);
    }
    JsonReader entry(*token, component.name(), component.error(), component.path() + ".special_tokens." + id);
    for (const std::int32_t each : entry.int_list("ids", 0, kMaxIds - 1)) {
      if (!known(each)) entry.fail("ids", fmt::format("holds {}, which is not in the vocabulary", each));
      (sequence ? after : before).push_back(each);
    }
  });
  if (!sequence) component.fail("single", "has no sequence A", StatusCode::kUnsupported);
  before_.insert(before_.begin(), before.begin(), before.end());  // a later template goes around the earlier
  after_.insert(after_.end(), after.begin(), after.end());
}

}  // namespace windrow::text
