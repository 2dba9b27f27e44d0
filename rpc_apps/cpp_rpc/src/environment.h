// What TVM's runtime reads from the environment when it starts its threads.
#ifndef TVM_CODL_SERVER_ENVIRONMENT_H_
#define TVM_CODL_SERVER_ENVIRONMENT_H_

namespace codl_server {

// Sets what is not set yet.  To be called before TVM starts threads.
void SetEnvironment();

}  // namespace codl_server

#endif  // TVM_CODL_SERVER_ENVIRONMENT_H_
