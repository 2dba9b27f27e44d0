#include "json.h"

namespace tvm_codl {

namespace {

bool IsUtf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i++]);
    if (first < 0x80) continue;
    int following = 0;
    if (first >= 0xC2 && first < 0xE0) following = 1;
    if (first >= 0xE0 && first < 0xF0) following = 2;
    if (first >= 0xF0 && first < 0xF5) following = 3;
    if (following == 0) return false;
    for (; following > 0; --following, ++i) {
      if (i >= text.size() || (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return false;
    }
  }
  return true;
}

}  // namespace

picojson::value Json(const std::string& text) {
  if (IsUtf8(text)) return picojson::value(text);
  std::string utf8;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 0x80) utf8 += static_cast<char>(0xC0 | code >> 6);
    utf8 += code < 0x80 ? c : static_cast<char>(0x80 | (code & 0x3F));
  }
  return picojson::value(utf8);
}

}  // namespace tvm_codl
