#include "json.h"

#include <cstdio>

namespace codl_server {

namespace {

// Whether the text is UTF-8, as JSON must be: what drivers say of themselves may not.
bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i++]);
    if (first < 0x80) continue;
    const int more = first >= 0xC2 && first < 0xE0   ? 1
                     : first >= 0xE0 && first < 0xF0 ? 2
                     : first >= 0xF0 && first < 0xF5 ? 3
                                                     : 0;
    if (more == 0) return false;
    for (int k = 0; k < more; ++k, ++i) {
      if (i >= text.size() || (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return false;
    }
  }
  return true;
}

}  // namespace

std::string Quoted(std::string_view text) {
  const bool utf8 = IsUtf8(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || (static_cast<unsigned char>(c) > 0x7E && !utf8)) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string ListOf(const std::vector<int>& numbers) {
  std::string list;
  for (const int number : numbers) list += (list.empty() ? "" : ",") + std::to_string(number);
  return "[" + list + "]";
}

JsonObject& JsonObject::AddRaw(std::string_view name, std::string_view json) {
  if (!fields_.empty()) fields_ += ',';
  fields_ += Quoted(name);
  fields_ += ':';
  fields_ += json;
  return *this;
}

}  // namespace codl_server
