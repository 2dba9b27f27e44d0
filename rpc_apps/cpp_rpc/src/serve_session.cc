#include "serve_session.h"

#include <picojson.h>
#include <poll.h>
#include <sys/socket.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "facts.h"
#include "handshake.h"
#include "packets.h"

namespace codl_server {

namespace {

namespace fs = std::filesystem;
using tvm::runtime::Module;
using tvm::runtime::NDArray;
using tvm::runtime::PackedFunc;
using tvm::runtime::Registry;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

constexpr int kFirstPacketMs = 10000;   // a client sends its first packet right after the handshake
constexpr size_t kReadBytes = 1 << 20;  // at once

// The path of an uploaded file; throws for a name outside the session's folder.  Of an absolute path only the file's
// name counts: AutoTVM's runner removes a library by its path on the client.
std::string PathOf(const fs::path& folder, const std::string& name) {
  const fs::path given(name);
  const fs::path home = fs::weakly_canonical(folder);
  const fs::path path = fs::weakly_canonical(home / (given.is_absolute() ? given.filename() : given));
  const auto [end, _] = std::mismatch(home.begin(), home.end(), path.begin(), path.end());
  if (end != home.end() || path == home) throw std::runtime_error("'" + name + "' is outside the session's folder");
  fs::create_directories(path.parent_path());
  return path;
}

Module Load(const fs::path& folder, const std::string& name) {
  const std::string path = PathOf(folder, name);
  if (!fs::exists(path)) throw std::runtime_error("no file '" + name + "' was uploaded");
  const std::string kind = fs::path(path).extension();
  if (kind == ".tar" || kind == ".o") {
    throw std::runtime_error("this phone has no linker for '" + name +
                             "': export a .so with fcompile=ndk.create_shared (AutoTVM: build_func='ndk')");
  }
  return Module::LoadFromFile(path, "");
}

// Runs each function of a library once on empty arguments: drivers compile a kernel at its first run.
// `functions` and `arguments` are JSON: names, and the shape and type of each argument.
void WarmUp(const Module& module, const std::string& functions, const std::string& arguments) {
  picojson::value names, given;
  if (!picojson::parse(names, functions).empty() || !picojson::parse(given, arguments).empty()) {
    throw std::runtime_error("codl.warm_up: not JSON");
  }
  const tvm::Device device{kDLOpenCL, 0};
  std::vector<NDArray> arrays;
  for (const picojson::value& argument : given.get<picojson::array>()) {
    const auto& about = argument.get<picojson::array>();
    std::vector<int64_t> shape;
    for (const picojson::value& extent : about.at(0).get<picojson::array>()) {
      shape.push_back(static_cast<int64_t>(extent.get<double>()));
    }
    const DLDataType type = tvm::runtime::String2DLDataType(about.at(1).get<std::string>());
    arrays.push_back(NDArray::Empty(tvm::runtime::ShapeTuple(shape), type, device));
  }
  std::vector<TVMValue> values(arrays.size());
  std::vector<int> codes(arrays.size());
  tvm::runtime::TVMArgsSetter set(values.data(), codes.data());
  for (size_t i = 0; i < arrays.size(); ++i) set(i, arrays[i]);
  for (const picojson::value& name : names.get<picojson::array>()) {
    PackedFunc function = Module(module).GetFunction(name.get<std::string>(), false);
    if (function == nullptr) throw std::runtime_error("the library has no " + name.get<std::string>());
    TVMRetValue ignored;
    function.CallPacked(TVMArgs(values.data(), codes.data(), static_cast<int>(arrays.size())), &ignored);
  }
  tvm::runtime::DeviceAPI::Get(device)->StreamSync(device, nullptr);
}

// The connection for TVM's endpoint; checks packets as they pass (packets.h).
class Channel {
 public:
  Channel(int conn, uint64_t longest) : conn_(conn), packets_(longest), part_(kReadBytes) {}

  // At most `size` bytes; none at the connection's end.
  TVMByteArray Receive(size_t size) {
    const size_t most = std::min(packets_.Allowed(size), part_.size());
    ssize_t got = 0;
    do {
      got = recv(conn_, part_.data(), most, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0) throw std::runtime_error(SystemError("the connection"));
    packets_.Take({part_.data(), static_cast<size_t>(got)});
    return {part_.data(), static_cast<size_t>(got)};
  }

  // The number of bytes sent, or -1, which TVM reports itself.  Must not throw: a destructor calls it too.
  int64_t Send(const TVMByteArray& bytes) {
    ssize_t sent = 0;
    do {
      sent = send(conn_, bytes.data, bytes.size, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
  }

 private:
  int conn_;
  Packets packets_;
  std::vector<char> part_;
};

}  // namespace

void ServeSession(int conn, const fs::path& folder, const Limits& limits) {
  Registry::Register("tvm.rpc.server.workpath", true).set_body_typed([folder](std::string name) {
    return PathOf(folder, name);
  });
  Registry::Register("tvm.rpc.server.load_module", true).set_body_typed([folder](std::string name) {
    return Load(folder, name);
  });
  Registry::Register("codl.warm_up", true)
      .set_body_typed([](Module module, std::string, std::string functions, std::string arguments) {
        WarmUp(module, functions, arguments);
      });
  // As std::string: of a TVM object a client would get only a handle.
  Registry::Register("codl.profile", true).set_body_typed([] { return ProfileJson(); });
  Registry::Register("codl.build", true).set_body_typed([limits] { return BuildJson(limits); });

  pollfd first{conn, POLLIN, 0};
  if (poll(&first, 1, kFirstPacketMs) == 0) throw Refused("the client shook hands and says nothing");
  Channel channel(conn, limits.packet_bytes);
  const PackedFunc send([&channel](TVMArgs args, TVMRetValue* rv) {
    *rv = channel.Send(*static_cast<TVMByteArray*>(args[0].value().v_handle));
  });
  const PackedFunc receive(
      [&channel](TVMArgs args, TVMRetValue* rv) { *rv = channel.Receive(args[0].operator uint64_t()); });
  (*Registry::Get("rpc.ServerLoop"))(send, receive);
}

}  // namespace codl_server
