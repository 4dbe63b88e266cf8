// Frames of tensors over standard input and output (docs/protocol.md), for subjects of `lockstep conform`, in C++17 alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace frames {

/** A tensor of a frame: its type as safetensors files name it (F32, U8), its shape, and its bytes in C order. */
struct Tensor {
  std::string dtype;
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> bytes;
};

using Tensors = std::map<std::string, Tensor>;

/** A value of JSON. `text` is a text, or a number or constant as it is written; `items` are those of an array or an object. */
struct Json {
  std::string text;
  std::vector<std::string> names;
  std::vector<Json> items;

  const Json& operator[](const std::string& name) const {
    for (std::size_t i = 0; i < names.size(); i++)
      if (names[i] == name) return items[i];
    throw std::runtime_error("the message has no field " + name);
  }
};

/** Reads JSON. Throws `std::exception` where the text ends early. */
class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : text_(text) {}

  Json value() {
    Json result;
    const char first = peek();
    if (first == '"') {
      result.text = string();
    } else if (first == '{' || first == '[') {
      const char last = first == '{' ? '}' : ']';
      for (at_++; peek() != last; at_ += peek() == ',') {
        if (first == '{') {
          result.names.push_back(string());
          if (peek() == ':') at_++;
        }
        result.items.push_back(value());
      }
      at_++;
    } else {
      const std::size_t end = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
      result.text = text_.substr(at_, end - at_);
      at_ = end;
    }
    return result;
  }

 private:
  char peek() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    return text_.at(at_);
  }

  std::string string() {
    std::string result;
    for (at_++; text_.at(at_) != '"'; at_++) {
      if (text_[at_] != '\\') {
        result += text_[at_];
        continue;
      }
      const char c = text_.at(++at_);
      const char* found = std::strchr("b\bf\fn\nr\rt\t", c);
      if (c == 'u') {  // Lockstep writes only control characters so
        result += static_cast<char>(std::stoi(text_.substr(at_ + 1, 4), nullptr, 16));
        at_ += 4;
      } else {
        result += found ? found[1] : c;
      }
    }
    at_++;
    return result;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

/** A text as JSON. */
inline std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + '"';
}

/** Reads a frame. Returns false at the end of the input. */
inline bool read_frame(Json& message, Tensors& tensors) {
  std::uint64_t length = 0, size = 0;
  if (std::fread(&length, 8, 1, stdin) != 1) return false;
  std::vector<std::uint8_t> payload(length);
  if (length < 8 || std::fread(payload.data(), 1, length, stdin) != length) throw std::runtime_error("half a frame");
  std::memcpy(&size, payload.data(), 8);
  const auto data = payload.begin() + 8 + static_cast<std::ptrdiff_t>(size);
  const std::string text(payload.begin() + 8, data);
  const Json header = JsonReader(text).value();
  message = JsonReader(header["__metadata__"]["lockstep"].text).value();
  tensors.clear();
  for (std::size_t i = 0; i < header.names.size(); i++) {
    if (header.names[i] == "__metadata__") continue;
    const Json& entry = header.items[i];
    Tensor& tensor = tensors[header.names[i]];
    tensor.dtype = entry["dtype"].text;
    for (const Json& each : entry["shape"].items) tensor.shape.push_back(std::stoull(each.text));
    const auto& span = entry["data_offsets"].items;
    tensor.bytes.assign(data + std::stoll(span.at(0).text), data + std::stoll(span.at(1).text));
  }
  return true;
}

/** Writes a frame. `message` is JSON. */
inline void write_frame(const std::string& message, const Tensors& tensors) {
  std::string header = "{\"__metadata__\":{\"lockstep\":" + quoted(message) + "}";
  std::uint64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const std::size_t each : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(each);
    const std::uint64_t begin = at;
    at += tensor.bytes.size();
    header += "," + quoted(name) + ":{\"dtype\":" + quoted(tensor.dtype) + ",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(at) + "]}";
  }
  header += "}";
  const std::uint64_t size = header.size(), length = 8 + size + at;
  std::fwrite(&length, 8, 1, stdout);
  std::fwrite(&size, 8, 1, stdout);
  std::fwrite(header.data(), 1, size, stdout);
  for (const auto& each : tensors) std::fwrite(each.second.bytes.data(), 1, each.second.bytes.size(), stdout);
  std::fflush(stdout);
}

/** Gives the results of an operation, by name, for the fields of its input and its tensors. */
using Kernel = std::function<Tensors(const Json& input, const Tensors& tensors)>;

/**
 * Answers cases of one operation until the input ends, and returns the exit status. `supported` says, as JSON, which values of which
 * fields the kernel takes. What the kernel throws is its answer.
 */
inline int answer_cases(const std::string& name, const std::string& operation, const std::string& supported,
                        const Kernel& kernel) {
  Json message;
  Tensors tensors;
  while (read_frame(message, tensors)) {
    if (message["type"].text == "hello") {
      write_frame(
          "{\"protocol\":1,\"name\":" + quoted(name) + ",\"operations\":{" + quoted(operation) + ":" + supported + "}}",
          {});
      continue;
    }
    const std::string id = "{\"id\":" + message["id"].text;
    try {
      write_frame(id + "}", kernel(message["input"], tensors));
    } catch (const std::exception& error) {
      write_frame(id + ",\"error\":" + quoted(error.what()) + "}", {});
    }
  }
  return 0;
}

}  // namespace frames
