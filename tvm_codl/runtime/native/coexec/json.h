// JSON values (picojson's) of what the runtime and the phone's server tell their clients.
#ifndef TVM_CODL_COEXEC_JSON_H_
#define TVM_CODL_COEXEC_JSON_H_

#include <picojson.h>

#include <string>
#include <type_traits>
#include <vector>

namespace tvm_codl {

using JsonArray = picojson::array;
using JsonObject = picojson::object;

// JSON is UTF-8, and what a driver says of itself may not be: such text is read as Latin-1.
picojson::value Json(const std::string& text);

inline picojson::value Json(const JsonArray& array) { return picojson::value(array); }

// Numbers (exact up to 2^53), bool, string literals and JsonObject.
template <typename T>
picojson::value Json(const T& value) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    return picojson::value(static_cast<double>(value));
  } else {
    return picojson::value(value);
  }
}

template <typename T>
picojson::value Json(const std::vector<T>& values) {
  JsonArray array;
  for (const T& value : values) array.push_back(Json(value));
  return Json(array);
}

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_JSON_H_
