// The rope keys of config.json, old and new.
#pragma once

#include "model/config_parts.h"

namespace windrow {

// rope_full and rope_sliding. Needs the sizes, layer_types and global_head_dim of the configuration.
void read_rope(const ConfigPart& part);

}  // namespace windrow
