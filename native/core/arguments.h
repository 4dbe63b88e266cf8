// Compile-time lookup of a call's arguments by name. A name that the call does not declare, or declares with another kind, does
// not compile.
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>
#include <type_traits>

#include "kernels/core/contract.gen.h"
#include "native/core/arguments.gen.h"

namespace lockstep {

template <typename Declared>
inline constexpr size_t kArgumentCount = std::size(Declared::kArguments);

// The index and the name of an argument. Only Name, which checks the name at compile time, constructs it.
class Slot {
 public:
  constexpr size_t index() const { return index_; }
  constexpr const char* text() const { return text_; }

 protected:
  constexpr Slot(size_t index, const char* text) : index_(index), text_(text) {}

 private:
  size_t index_;
  const char* text_;
};

// The index of the argument named `prefix` + `rest`, or kArgumentCount if the call declares none of that name.
template <typename Declared>
consteval size_t slotIn(std::string_view prefix, std::string_view rest) {
  for (size_t slot = 0; slot < kArgumentCount<Declared>; ++slot) {
    const std::string_view name = Declared::kArguments[slot].name;
    if (name.size() == prefix.size() + rest.size() && name.starts_with(prefix) && name.ends_with(rest)) return slot;
  }
  return kArgumentCount<Declared>;
}

// Whether a call declares an argument of this name.
template <typename Declared>
consteval bool declares(std::string_view name) {
  return slotIn<Declared>(name, "") < kArgumentCount<Declared>;
}

// The name of an argument whose kind is one of `kinds`. Without `kinds`, any kind is accepted.
template <typename Declared, Kind... kinds>
class Name : public Slot {
 public:
  consteval Name(const char* text) : Name(text, "") {}
  consteval Name(std::string_view prefix, std::string_view rest) : Name(slotOf(prefix, rest)) {}

 private:
  consteval explicit Name(size_t slot) : Slot(slot, Declared::kArguments[slot].name) {}

  static consteval size_t slotOf(std::string_view prefix, std::string_view rest) {
    const size_t slot = slotIn<Declared>(prefix, rest);
    if (slot == kArgumentCount<Declared>)
      throw "the call does not declare this argument (src/backends/cuda/native-calls.ts)";
    const Kind kind = Declared::kArguments[slot].kind;
    if (sizeof...(kinds) > 0 && !(... || (kind == kinds))) throw "the call declares this argument as another kind";
    return slot;
  }
};

// As Name, for an argument that may be omitted.
template <typename Declared, Kind... kinds>
class OptionalName : public Name<Declared, kinds...> {
 public:
  consteval OptionalName(const char* text) : OptionalName(text, "") {}
  consteval OptionalName(std::string_view prefix, std::string_view rest) : Name<Declared, kinds...>(prefix, rest) {
    if (!Declared::kArguments[this->index()].optional) throw "the call always has this argument";
  }
};

// The argument kind for members of an enumeration.
template <typename E>
consteval Kind kindOf() {
  if constexpr (std::is_same_v<E, Activation>)
    return Kind::kActivation;
  else if constexpr (std::is_same_v<E, Overflow>)
    return Kind::kOverflow;
  else if constexpr (std::is_same_v<E, Rounding>)
    return Kind::kRounding;
  else if constexpr (std::is_same_v<E, ScaleRule>)
    return Kind::kScaleRule;
  else if constexpr (std::is_same_v<E, Staging>)
    return Kind::kStaging;
  else if constexpr (std::is_same_v<E, Wide>)
    return Kind::kWide;
  else
    throw "no argument is of this enumeration";
}

}  // namespace lockstep
