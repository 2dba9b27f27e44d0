// Lines for a person, on stderr.
#ifndef TVM_CODL_SERVER_LOG_H_
#define TVM_CODL_SERVER_LOG_H_

#include <string>

namespace codl_server {

void Say(const std::string& text);

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_LOG_H_
