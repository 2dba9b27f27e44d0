// JSON text of an object, one field after the other.
#ifndef TVM_CODL_SERVER_JSON_H_
#define TVM_CODL_SERVER_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace codl_server {

std::string Quoted(std::string_view text);
std::string ListOf(const std::vector<int>& numbers);

class JsonObject {
 public:
  JsonObject& Add(std::string_view name, std::string_view text) { return AddRaw(name, Quoted(text)); }
  JsonObject& Add(std::string_view name, const char* text) { return AddRaw(name, Quoted(text)); }
  JsonObject& Add(std::string_view name, bool value) { return AddRaw(name, value ? "true" : "false"); }
  JsonObject& Add(std::string_view name, int value) { return AddRaw(name, std::to_string(value)); }
  JsonObject& Add(std::string_view name, uint64_t value) { return AddRaw(name, std::to_string(value)); }
  // JSON already.
  JsonObject& AddRaw(std::string_view name, std::string_view json);
  std::string text() const { return "{" + fields_ + "}"; }

 private:
  std::string fields_;
};

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_JSON_H_
