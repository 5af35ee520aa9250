// The syntax tree of a template.
//
// Thread safety: immutable once parsed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/template_value.h"

namespace windrow::text {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Expr {
  enum class Kind {
    kConstant,   // value
    kName,       // name
    kList,       // parts; name "tuple" for one
    kMapping,    // parts: key, value, key, value, ...
    kAttribute,  // parts[0] . name
    kItem,       // parts[0] [ parts[1] ]
    kSlice,      // parts[0] [ parts[1] : parts[2] : parts[3] ], absent ones null
    kCall,       // parts[0] ( arguments )
    kFilter,     // parts[0] | name ( arguments )
    kTest,       // parts[0] is name ( arguments )
    kNot,
    kNegative,
    kPositive,
    kAnd,
    kOr,
    kConcat,   // parts[0] ~ parts[1] ~ ...
    kBinary,   // parts[0] name parts[1], name one of + - * / // % **
    kCompare,  // parts[0] names[0] parts[1] names[1] parts[2] ...
    kChoice,   // parts[1] if parts[0] else parts[2], which may be null
  };
  Kind kind;
  int line = 0;
  int height = 1;  // of the tree
  Value value = {};
  std::string name = {};
  std::vector<std::string> names = {};
  std::vector<ExprPtr> parts = {};
  Arguments arguments = {};
};

struct Statement;
using Block = std::vector<Statement>;

// What a for or a set binds: one name, several, or a member of a namespace.
struct Target {
  std::vector<std::string> names;
  bool unpack = false;  // also where there is one name: `for a, in x`
  std::string member;   // set NAME.MEMBER
};

struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // a default may be null
  Block body;
};

struct Statement {
  enum class Kind {
    kText,      // text
    kOutput,    // expr
    kIf,        // branches
    kFor,       // target, expr, filter, body, otherwise
    kSet,       // target, expr
    kCapture,   // set NAME, body; expr: filters over it, which reads the name ""
    kMacro,     // macro
    kGenerate,  // body
    kBreak,
    kContinue,
  };
  struct Branch {
    ExprPtr condition;  // null: else
    Block body;
  };
  Kind kind;
  int line = 0;
  Value text = {};
  ExprPtr expr = {};
  ExprPtr filter = {};
  Target target = {};
  std::vector<Branch> branches = {};
  Block body = {};
  Block otherwise = {};
  std::shared_ptr<Macro> macro = {};
};

}  // namespace windrow::text
