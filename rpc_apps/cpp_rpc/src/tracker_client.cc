#include "tracker_client.h"

#include <algorithm>
#include <string_view>

#include "handshake.h"
#include "log.h"

namespace codl_server {

using tvm_codl::Json;
using tvm_codl::JsonArray;
using tvm_codl::JsonObject;

namespace {

constexpr double kTimeout = 5.0;  // s
// The keys that this phone has offered and no client has taken: below 2 KiB each.
constexpr int32_t kLongestAnswer = 1 << 16;
// TVM's rpc/base.py, TrackerCode.
constexpr int kSuccess = 0, kPut = 3, kUpdateInfo = 5, kPendingKeys = 7;

// Whether there is a list or an object in another: picojson would recurse to the end of the stack.
bool Nested(std::string_view json) {
  bool quoted = false;
  int opened = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') quoted = !quoted;
    if (quoted && json[i] == '\\') ++i;
    if (!quoted && (json[i] == '[' || json[i] == '{')) ++opened;
  }
  return opened > 1;
}

// Throws Refused for anything but a JSON list.
JsonArray ParseKeys(const std::string& answer) {
  picojson::value keys;
  try {
    if (!Nested(answer) && picojson::parse(keys, answer).empty() && keys.is<JsonArray>()) return keys.get<JsonArray>();
  } catch (const std::overflow_error&) {  // picojson's, for a number that no double holds
  }
  throw Refused("its answer is no list of keys");
}

}  // namespace

TrackerClient::TrackerClient(Address tracker, std::string key, uint16_t port, const std::string& advertised)
    : tracker_(std::move(tracker)), key_(std::move(key)), port_(port) {
  if (!advertised.empty()) advertised_ = Json(advertised);
}

bool TrackerClient::Offer(Events* events, const std::string& match_key) {
  try {
    if (!conn_) Connect(events);
    const JsonArray place = {Json(port_), Json(match_key)};
    Tell(events, {Json(kPut), Json(key_), Json(place), advertised_}, "it does not take the key " + key_);
    return true;
  } catch (const PeerError& error) {
    Lost(error.what());
  }
  return false;
}

TrackerClient::Key TrackerClient::Query(Events* events, const std::string& match_key) {
  try {
    const JsonArray keys = ParseKeys(Ask(events, {Json(kPendingKeys)}));
    return std::find(keys.begin(), keys.end(), Json(match_key)) != keys.end() ? Key::kWaiting : Key::kTaken;
  } catch (const PeerError& error) {
    Lost(error.what());
  }
  return Key::kLost;
}

void TrackerClient::Connect(Events* events) {
  conn_ = Dial(events, tracker_, kTimeout);
  SendAll(events, conn_.get(), Number(kTrackerMagic), kTimeout);
  if (NumberIn(ReadExactly(events, conn_.get(), 4, kTimeout)) != kTrackerMagic) {
    throw Refused("not a TVM RPC tracker");
  }
  const JsonArray address = {advertised_, Json(port_)};
  const JsonObject about = {{"key", Json("server:" + key_)}, {"addr", Json(address)}};
  Tell(events, {Json(kUpdateInfo), Json(about)}, "it does not take this phone");
  last_error_.clear();
  Log("registered at tracker " + tracker_.text() + " as " + key_);
}

std::string TrackerClient::Ask(Events* events, const JsonArray& question) {
  SendAll(events, conn_.get(), Text(Json(question).serialize()), kTimeout);
  const int32_t size = NumberIn(ReadExactly(events, conn_.get(), 4, kTimeout));
  if (size <= 0 || size > kLongestAnswer) throw Refused("an answer of " + std::to_string(size) + " bytes");
  return ReadExactly(events, conn_.get(), static_cast<size_t>(size), kTimeout);
}

void TrackerClient::Tell(Events* events, const JsonArray& message, const std::string& failure) {
  if (Ask(events, message) != std::to_string(kSuccess)) throw Refused(failure);
}

void TrackerClient::Lost(const std::string& why) {
  if (why != last_error_) Log("tracker " + tracker_.text() + ": " + why + "; trying again");
  last_error_ = why;
  conn_.Close();
}

}  // namespace codl_server
