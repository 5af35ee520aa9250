// What generate does with a session: one row and its text, kept in a file.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "windrow/engine.h"
#include "windrow/model.h"
#include "windrow/session.h"
#include "windrow/threads.h"

namespace windrow::cli {

// The session at `path`; nullopt where nothing stands there or the path is empty. A Failure for what is no
// session of one row.
std::optional<SessionFile> open_session(const std::string& path);
// The tokens of its text, all inside the model's vocabulary, at least one.
std::vector<std::int32_t> session_tokens(const SessionFile& file, const ModelInfo& info);
// A Failure where the text, past and new, has more tokens than the model has positions.
void check_length(const std::string& path, std::size_t tokens, const ModelInfo& info);

// Of a model folder whose products are computed in a mode. Reads all of its weights.
SessionIdentity session_identity(const std::string& folder, const char* compute, ThreadPool& pool);
void restore_session(const SessionFile& file, const SessionIdentity& identity, Generator& generator,
                     ThreadPool& pool);
// The row of the generation and its text: the prompt and what was written.
void save_session(const std::string& path, const SessionIdentity& identity, const Generator& generator,
                  std::vector<std::int32_t> prompt, const Generation& generation);

}  // namespace windrow::cli
