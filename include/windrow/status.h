// Errors as values. No function of the public API throws, prints or aborts on its
// input (what a header marks REQUIRES is the caller's duty, not input): it returns a
// Status, or a Result<T> that holds a T or the Status that says why there is none. A message names the object
// and the numbers, in one line.
//
// Thread safety: values; as safe as a std::string.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

#include "windrow/export.h"

namespace windrow {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,     // the caller's argument (a flag, a shape, an id) is wrong
  kCorrupt,             // a file's content breaks its format
  kIo,                  // the operating system refused a read or a write
  kUnsupported,         // well formed, but not something this build can do
  kFailedPrecondition,  // legal call, wrong moment (a closed step, a busy row)
  kResourceExhausted,   // a planned limit or the memory is used up
  kInternal,            // an invariant of our own is broken: a bug, please report it
};

// "invalid argument", "corrupt file", ...: for people, not for parsing.
WINDROW_API const char* status_code_name(StatusCode code) noexcept;

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
    assert(code != StatusCode::kOk);
  }

  bool ok() const noexcept { return code_ == StatusCode::kOk; }
  StatusCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

  // The same error, said of an enclosing object: "CONTEXT: message".
  Status with_context(const std::string& context) const {
    return ok() ? Status() : Status(code_, context + ": " + message_);
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// REQUIRES for value(), operator* and operator->: ok(). For status(): any time.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Status error) : v_(std::in_place_index<1>, std::move(error)) {  // NOLINT: implicit
    assert(!std::get<1>(v_).ok());
  }

  bool ok() const noexcept { return v_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(v_); }

  T& value() & { return *std::get_if<0>(&v_); }
  const T& value() const& { return *std::get_if<0>(&v_); }
  T&& value() && { return std::move(*std::get_if<0>(&v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return std::get_if<0>(&v_); }
  const T* operator->() const { return std::get_if<0>(&v_); }

 private:
  std::variant<T, Status> v_;
};

}  // namespace windrow
