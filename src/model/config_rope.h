// The rope keys of config.json, old and new.
#pragma once

#include "base/json.h"
#include "model/config.h"

namespace windrow {

struct RopePair {
  RopeConfig full;
  RopeConfig sliding;
};

// `theta` and `local_theta` are the family's defaults; local_theta 0: sliding layers turn as full ones do,
// unless the file says otherwise. Errors go into the reader.
RopePair read_rope(JsonReader& text, double theta, double local_theta);

}  // namespace windrow
