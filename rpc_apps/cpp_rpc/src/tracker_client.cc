#include "tracker_link.h"

#include <picojson.h>

#include <string_view>

#include "json.h"
#include "log.h"
#include "opening.h"

namespace codl_server {

namespace {

constexpr double kPatience = 5.0;  // s
// The keys that this phone has offered and nobody has taken: below 2 KiB each.
constexpr int32_t kLongestAnswer = 1 << 16;
// TVM's rpc/base.py, TrackerCode.
constexpr int kSuccess = 0, kPut = 3, kUpdateInfo = 5, kPendingKeys = 7;

bool Succeeded(const std::string& answer) { return answer == std::to_string(kSuccess); }

// Whether there is a list or an object in another: picojson would follow them to the end of the stack.
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

}  // namespace

TrackerLink::TrackerLink(Address tracker, std::string key, uint16_t port, std::string advertised)
    : tracker_(std::move(tracker)),
      key_(std::move(key)),
      port_(port),
      advertised_(advertised.empty() ? "null" : Quoted(advertised)) {}

bool TrackerLink::Offer(Events* events, const std::string& match_key) {
  try {
    if (!conn_) Connect(events);
    const std::string where = "[" + std::to_string(port_) + "," + Quoted(match_key) + "]";
    const std::string put = "[" + std::to_string(kPut) + "," + Quoted(key_) + "," + where + "," + advertised_ + "]";
    if (!Succeeded(Answer(events, put))) throw Refused("it does not take the key " + key_);
    return true;
  } catch (const SocketError& error) {
    Lost(error.what());
  } catch (const Refused& error) {
    Lost(error.what());
  }
  return false;
}

TrackerLink::Key TrackerLink::Ask(Events* events, const std::string& match_key) {
  try {
    const std::string answer = Answer(events, "[" + std::to_string(kPendingKeys) + "]");
    picojson::value keys;
    if (Nested(answer) || !picojson::parse(keys, answer).empty() || !keys.is<picojson::array>()) {
      throw Refused("its answer is no list of keys");
    }
    for (const picojson::value& key : keys.get<picojson::array>()) {
      if (key.is<std::string>() && key.get<std::string>() == match_key) return Key::kWaiting;
    }
    return Key::kTaken;
  } catch (const SocketError& error) {
    Lost(error.what());
  } catch (const Refused& error) {
    Lost(error.what());
  } catch (const std::overflow_error&) {  // what picojson says of a number that no double holds
    Lost("its answer is no list of keys");
  }
  return Key::kLost;
}

void TrackerLink::Connect(Events* events) {
  conn_ = Dial(events, tracker_, kPatience);
  NoticeSilence(conn_.get());
  SendAll(events, conn_.get(), Number(kTrackerMagic), kPatience);
  if (NumberIn(ReadExactly(events, conn_.get(), 4, kPatience)) != kTrackerMagic) {
    throw Refused("not a TVM RPC tracker");
  }
  JsonObject about;
  about.Add("key", "server:" + key_).AddRaw("addr", "[" + advertised_ + "," + std::to_string(port_) + "]");
  if (!Succeeded(Answer(events, "[" + std::to_string(kUpdateInfo) + "," + about.text() + "]"))) {
    throw Refused("it does not take this phone");
  }
  complaint_.clear();
  Say("registered at tracker " + tracker_.text() + " as " + key_);
}

std::string TrackerLink::Answer(Events* events, const std::string& question) {
  SendAll(events, conn_.get(), Text(question), kPatience);
  const int32_t size = NumberIn(ReadExactly(events, conn_.get(), 4, kPatience));
  if (size <= 0 || size > kLongestAnswer) throw Refused("an answer of " + std::to_string(size) + " bytes");
  return ReadExactly(events, conn_.get(), static_cast<size_t>(size), kPatience);
}

void TrackerLink::Lost(const std::string& why) {
  if (why != complaint_) Say("tracker " + tracker_.text() + ": " + why + "; trying again");
  complaint_ = why;
  conn_.Close();
}

}  // namespace codl_server
