#include "text/hf_json_reader.h"

#include "base/json.h"
#include "text/hf_json_lists.h"

namespace lucid {
namespace {

using Json = nlohmann::json;

class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(HfTokenizerJson& out) : out_(out) {}

  const std::string& error() const { return error_; }

  bool null() override { return Scalar(nullptr); }
  bool boolean(bool value) override { return Scalar(value); }
  bool number_integer(number_integer_t value) override {
    return mode_ == Mode::kVocab ? VocabId(value) : Scalar(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (mode_ != Mode::kVocab) return Scalar(value);
    return VocabId(value > INT64_MAX ? -1 : static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Scalar(value); }
  bool binary(binary_t&) override { return Fail("it holds binary data"); }

  bool string(string_t& value) override {
    if (mode_ == Mode::kMerges) return MergeLine(value);
    if (mode_ == Mode::kMergePair) {
      pair_.push_back(std::move(value));
      return pair_.size() <= 2 || BadMerge();
    }
    return Scalar(std::move(value));
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (mode_ == Mode::kVocab) return BadVocab();
    if (mode_ != Mode::kRest) return BadMerge();
    if (AtModelKey("vocab")) {
      mode_ = Mode::kVocab;
      return true;
    }
    return Open(Json::object());
  }
  bool end_object() override {
    if (mode_ == Mode::kVocab) {
      mode_ = Mode::kRest;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (mode_ == Mode::kVocab) return BadVocab();
    if (mode_ == Mode::kMergePair) return BadMerge();
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kMergePair;
      pair_.clear();
      return true;
    }
    if (AtModelKey("merges")) {
      mode_ = Mode::kMerges;
      return true;
    }
    return Open(Json::array());
  }
  bool end_array() override {
    if (mode_ == Mode::kMergePair) {
      if (pair_.size() != 2) return BadMerge();
      out_.merges.emplace_back(pair_[0], pair_[1]);
      mode_ = Mode::kMerges;
    } else if (mode_ == Mode::kMerges) {
      mode_ = Mode::kRest;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(fmt::format("it is not valid JSON at byte {}", position));
  }

 private:
  enum class Mode { kRest, kVocab, kMerges, kMergePair };

  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  bool BadVocab() { return Fail(fmt::format("model.vocab[\"{}\"] is not an id", key_)); }
  bool BadMerge() {
    return Fail(fmt::format("model.merges[{}] is neither \"left right\" nor a pair of strings",
                            out_.merges.size()));
  }

  // True where the value that starts now belongs to `name` of the top-level object `model`.
  bool AtModelKey(std::string_view name) const {
    return stack_.size() == 2 && in_model_ && stack_[1]->is_object() && key_ == name;
  }

  bool VocabId(int64_t id) {
    if (id < 0) return BadVocab();
    out_.vocab.emplace_back(std::move(key_), id);
    return true;
  }

  bool MergeLine(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      return BadMerge();
    out_.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    return true;
  }

  Json* Put(Json value) {
    if (stack_.empty()) {
      out_.rest = std::move(value);
      return &out_.rest;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  template <typename T>
  bool Scalar(T&& value) {
    if (mode_ == Mode::kVocab) return BadVocab();
    if (mode_ != Mode::kRest) return BadMerge();
    Put(Json(std::forward<T>(value)));
    return true;
  }

  bool Open(Json container) {
    if (stack_.size() >= kMaxJsonDepth)
      return Fail(fmt::format("it is nested deeper than {} levels", kMaxJsonDepth));
    if (stack_.size() == 1) in_model_ = key_ == "model";
    stack_.push_back(Put(std::move(container)));
    return true;
  }

  HfTokenizerJson& out_;
  std::string error_;
  Mode mode_ = Mode::kRest;
  std::string key_;
  std::vector<std::string> pair_;
  std::vector<Json*>
      stack_;  // a container's address holds while it is open: only its own members grow
  bool in_model_ = false;
};

}  // namespace

Result<HfTokenizerJson> ReadHfTokenizerJson(std::string_view json) {
  HfTokenizerJson out;
  std::string rest;
  if (TakeModelLists(json, out, rest)) {
    HfTokenizerJson others;
    Reader reader(others);
    if (Json::sax_parse(rest.begin(), rest.end(), &reader) && others.rest.is_object()) {
      out.rest = std::move(others.rest);
      return out;
    }
  }
  out = {};
  Reader reader(out);
  const bool ok = Json::sax_parse(json.begin(), json.end(), &reader);
  if (!ok) return Err(ErrorCode::kInvalidFile, "{}", reader.error());
  if (!out.rest.is_object()) return Err(ErrorCode::kInvalidFile, "it is not a JSON object");
  return out;
}

}  // namespace lucid
