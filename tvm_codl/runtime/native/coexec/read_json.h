// Checked access to the JSON of a library.  Everything throws std::runtime_error that names what is wrong.
#ifndef TVM_CODL_COEXEC_READ_JSON_H_
#define TVM_CODL_COEXEC_READ_JSON_H_

#include <picojson.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>

namespace tvm_codl {

[[noreturn]] inline void Fail(std::string what) {
  // A quote from damaged text may start inside a character, and readers of the message expect valid UTF-8.
  for (char& c : what) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  throw std::runtime_error("the library's co-execution program is damaged: " + what);
}

inline const picojson::value& Field(const picojson::object& object, const char* name) {
  auto it = object.find(name);
  if (it == object.end()) Fail(std::string("no field ") + name);
  return it->second;
}

template <typename T>
const T& Get(const picojson::value& value, const char* what, const char* type) {
  if (!value.is<T>()) Fail(std::string(what) + " is no " + type);
  return value.get<T>();
}
inline const picojson::array& Array(const picojson::value& value, const char* what) {
  return Get<picojson::array>(value, what, "list");
}
inline const picojson::object& Object(const picojson::value& value, const char* what) {
  return Get<picojson::object>(value, what, "object");
}
inline const std::string& String(const picojson::value& value, const char* what) {
  return Get<std::string>(value, what, "string");
}

// What `name` stands for.
template <typename T>
const T& OneOf(const std::map<std::string, T>& values, const std::string& name, const char* what) {
  const auto it = values.find(name);
  if (it == values.end()) Fail(std::string("unknown ") + what + " " + name);
  return it->second;
}

inline int64_t Integer(const picojson::value& value, const char* what, int64_t low, int64_t high) {
  const double number = Get<double>(value, what, "number");
  if (!(number >= static_cast<double>(low) && number <= static_cast<double>(high)) ||
      number != static_cast<double>(static_cast<int64_t>(number))) {
    Fail(std::string(what) + " is out of range");
  }
  return static_cast<int64_t>(number);
}

}  // namespace tvm_codl

#endif  // TVM_CODL_COEXEC_READ_JSON_H_
