#include "engine/receipt.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/fingerprint.h"
#include "engine/version.h"
#include "plan/print.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

std::string Hex(const XXH128_hash_t& hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string HashOfWeights(const Checkpoint& checkpoint) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  const auto number = [state](int64_t n) { XXH3_128bits_update(state, &n, sizeof(n)); };
  for (const TensorEntry& entry : checkpoint.tensors()) {
    const Tensor& tensor = entry.tensor;
    number(std::ssize(entry.name));
    XXH3_128bits_update(state, entry.name.data(), entry.name.size());
    number(static_cast<int64_t>(tensor.dtype));
    number(tensor.rank);
    for (int i = 0; i < tensor.rank; ++i) number(tensor.shape[static_cast<size_t>(i)]);
    XXH3_128bits_update(state, tensor.data, static_cast<size_t>(tensor.bytes()));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return Hex(hash);
}

Json SamplerJson(const SamplerParams& s) {
  Json bias = Json::object();
  // JSON has no infinity; a string stands for the bias that forbids a token.
  for (const auto& [id, value] : s.logit_bias) {
    bias[std::to_string(id)] = std::isfinite(value) ? Json(value) : Json("-inf");
  }
  return {{"seed", s.seed},
          {"temperature", s.temperature},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"typical_p", s.typical_p},
          {"repetition_penalty", s.repetition_penalty},
          {"frequency_penalty", s.frequency_penalty},
          {"presence_penalty", s.presence_penalty},
          {"repeat_last_n", s.repeat_last_n},
          {"min_keep", s.min_keep},
          {"logit_bias", std::move(bias)},
          {"samplers", s.samplers}};
}

// Reads members; the first that is missing or of another type stays as the error.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  template <typename T>
  void Get(const char* name, T& into) {
    if (!status_) return;
    try {
      into = json_.at(name).get<T>();
    } catch (const Json::exception&) {
      Fail(name);
    }
  }
  Json Object(const char* name) {
    if (json_.is_object() && json_.contains(name) && json_[name].is_object()) return json_[name];
    Fail(name);
    return Json::object();
  }
  void Fail(const char* name) {
    if (!status_) return;
    status_ = Err(ErrorCode::kInvalidArgument, "the receipt's {}{} is missing or makes no sense",
                  where_, name);
  }
  const Status& status() const { return status_; }

 private:
  const Json& json_;
  std::string where_;
  Status status_;
};

Result<SamplerParams> ReadSampler(const Json& json) {
  SamplerParams s;
  Reader reader(json, "sampler.");
  reader.Get("seed", s.seed);
  reader.Get("temperature", s.temperature);
  reader.Get("top_k", s.top_k);
  reader.Get("top_p", s.top_p);
  reader.Get("min_p", s.min_p);
  reader.Get("typical_p", s.typical_p);
  reader.Get("repetition_penalty", s.repetition_penalty);
  reader.Get("frequency_penalty", s.frequency_penalty);
  reader.Get("presence_penalty", s.presence_penalty);
  reader.Get("repeat_last_n", s.repeat_last_n);
  reader.Get("min_keep", s.min_keep);
  reader.Get("samplers", s.samplers);
  const Json bias = reader.Object("logit_bias");
  for (const auto& [id, value] : bias.items()) {
    const bool number = value.is_number();
    if (!number && value != "-inf") reader.Fail("logit_bias");
    s.logit_bias[static_cast<int32_t>(std::atoi(id.c_str()))] =
        number ? value.get<float>() : -std::numeric_limits<float>::infinity();
  }
  LUCID_RETURN_IF_ERROR(reader.status());
  return s;
}

Result<Request> ReadRequest(const Json& receipt) {
  Request request;
  Reader reader(receipt, "");
  reader.Get("prompt", request.prompt);
  reader.Get("rng_stream", request.rng_stream);
  reader.Get("n", request.n);
  reader.Get("max_tokens", request.max_tokens);
  reader.Get("stop", request.stop);
  reader.Get("ignore_eos", request.ignore_eos);
  const Json beam = reader.Object("beam");
  const Json eviction = reader.Object("eviction");
  const Json sampler = reader.Object("sampler");
  LUCID_RETURN_IF_ERROR(reader.status());
  Reader of_beam(beam, "beam.");
  of_beam.Get("width", request.beam.width);
  of_beam.Get("length_penalty", request.beam.length_penalty);
  LUCID_RETURN_IF_ERROR(of_beam.status());
  Reader of_eviction(eviction, "eviction.");
  std::string policy;
  of_eviction.Get("policy", policy);
  of_eviction.Get("budget", request.eviction.budget);
  if (const auto found = KvPolicyFromName(policy)) {
    request.eviction.policy = *found;
  } else {
    of_eviction.Fail("policy");
  }
  LUCID_RETURN_IF_ERROR(of_eviction.status());
  LUCID_ASSIGN_OR_RETURN(request.sampling, ReadSampler(sampler));
  return request;
}

Result<std::vector<ReceiptReply>> ReadReplies(const Json& receipt) {
  std::vector<ReceiptReply> replies;
  const auto wrong =
      Err(ErrorCode::kInvalidArgument, "the receipt's replies are missing or make no sense");
  if (!receipt.contains("replies") || !receipt["replies"].is_array()) return wrong;
  for (const Json& json : receipt["replies"]) {
    ReceiptReply reply;
    Reader reader(json, "replies.");
    reader.Get("index", reply.index);
    reader.Get("tokens", reply.tokens);
    LUCID_RETURN_IF_ERROR(reader.status());
    replies.push_back(std::move(reply));
  }
  return replies;
}

// Kinds of difference that no reply could survive.
Status CheckIdentity(const Engine& engine, const ModelIdentity& identity, const Json& receipt,
                     std::vector<std::string>& notes) {
  Reader reader(receipt, "");
  int format = 0;
  reader.Get("lucid_receipt", format);
  const Json model = reader.Object("model");
  const Json numerics = reader.Object("numerics");
  LUCID_RETURN_IF_ERROR(reader.status());
  if (format != kFormat) {
    return Err(ErrorCode::kUnsupported, "this is a receipt of format {}, and this build knows {}",
               format, kFormat);
  }
  Reader of_model(model, "model.");
  std::string weights;
  std::string plan;
  std::string isa;
  uint32_t version = 0;
  of_model.Get("hash", weights);
  of_model.Get("plan_hash", plan);
  LUCID_RETURN_IF_ERROR(of_model.status());
  Reader of_numerics(numerics, "numerics.");
  of_numerics.Get("isa", isa);
  of_numerics.Get("version", version);
  LUCID_RETURN_IF_ERROR(of_numerics.status());
  if (weights != identity.model) {
    return Err(ErrorCode::kInvalidArgument,
               "the receipt is of a model with the hash {}, and {} has {}", weights,
               engine.config().model, identity.model);
  }
  if (plan != identity.plan) {
    return Err(ErrorCode::kInvalidArgument,
               "the receipt's model was read with other settings (rope flags, or another version "
               "of lucid): its plan has the hash {}, this one {}",
               plan, identity.plan);
  }
  if (version != kNumericsVersion) {
    notes.push_back(
        fmt::format("the kernels round otherwise since: version {} of the numerics, {}"
                    " then",
                    kNumericsVersion, version));
  }
  if (isa != engine.runner().isa()) {
    notes.push_back(
        fmt::format("the instruction set is {}, and was {}: last bits of logits may "
                    "differ",
                    engine.runner().isa(), isa));
  }
  return {};
}

std::optional<ReplayDifference> Compare(const ReceiptReply& want, const std::vector<TokenId>& got) {
  const size_t n = std::max(want.tokens.size(), got.size());
  for (size_t i = 0; i < n; ++i) {
    const auto at = [i](const std::vector<TokenId>& ids) {
      return i < ids.size() ? std::optional<TokenId>(ids[i]) : std::nullopt;
    };
    if (at(want.tokens) != at(got)) {
      return ReplayDifference{want.index, static_cast<int64_t>(i), at(want.tokens), at(got)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string TextHash(std::string_view text) {
  return Hex(XXH3_128bits(text.data(), text.size()));
}

ModelIdentity IdentityOf(const Engine& engine, const ChatTemplate* chat_template) {
  return {HashOfWeights(*engine.model().checkpoint), TextHash(PrintPlan(engine.model().plan)),
          chat_template != nullptr ? TextHash(chat_template->source()) : std::string()};
}

Json MakeReceipt(const Engine& engine, const ModelIdentity& identity, const Request& request,
                 const std::vector<ReceiptReply>& replies) {
  const EngineConfig& config = engine.config();
  Json list = Json::array();
  for (const ReceiptReply& reply : replies) {
    list.push_back({{"index", reply.index},
                    {"tokens", reply.tokens},
                    {"stop_cause", StopCauseName(reply.cause)}});
  }
  return {
      {"lucid_receipt", kFormat},
      {"lucid_version", Version()},
      {"model", {{"path", config.model}, {"hash", identity.model}, {"plan_hash", identity.plan}}},
      {"template_hash",
       identity.chat_template.empty() ? Json(nullptr) : Json(identity.chat_template)},
      {"numerics",
       {{"name", Name(config.numerics)},
        {"version", kNumericsVersion},
        {"backend", config.backend == BackendKind::kReference ? "reference" : "cpu"},
        {"isa", engine.runner().isa()},
        {"cache_type_k", Name(config.cache_type_k)},
        {"cache_type_v", Name(config.cache_type_v)}}},
      {"context", engine.context()},
      {"prompt", request.prompt},
      {"sampler", SamplerJson(request.sampling)},
      {"rng_stream", request.rng_stream},
      {"n", request.n},
      {"max_tokens", request.max_tokens},
      {"stop", request.stop},
      {"ignore_eos", request.ignore_eos},
      {"beam", {{"width", request.beam.width}, {"length_penalty", request.beam.length_penalty}}},
      {"eviction",
       {{"policy", Name(request.eviction.policy)}, {"budget", request.eviction.budget}}},
      {"replies", std::move(list)}};
}

Status ApplyReceipt(const Json& receipt, EngineConfig& config) {
  Reader reader(receipt, "");
  reader.Get("context", config.context);
  const Json numerics = reader.Object("numerics");
  LUCID_RETURN_IF_ERROR(reader.status());
  Reader of_numerics(numerics, "numerics.");
  std::string name;
  std::string backend;
  std::string k_type;
  std::string v_type;
  of_numerics.Get("name", name);
  of_numerics.Get("backend", backend);
  of_numerics.Get("cache_type_k", k_type);
  of_numerics.Get("cache_type_v", v_type);
  LUCID_RETURN_IF_ERROR(of_numerics.status());
  const auto k = KvTypeFromName(k_type);
  const auto v = KvTypeFromName(v_type);
  if (!k) of_numerics.Fail("cache_type_k");
  if (!v) of_numerics.Fail("cache_type_v");
  bool known = false;
  for (const Numerics numerics_kind : {Numerics::kDefault, Numerics::kFast, Numerics::kFloat}) {
    if (Name(numerics_kind) != name) continue;
    config.numerics = numerics_kind;
    known = true;
  }
  if (!known) of_numerics.Fail("name");
  LUCID_RETURN_IF_ERROR(of_numerics.status());
  config.cache_type_k = *k;
  config.cache_type_v = *v;
  config.backend = backend == "reference" ? BackendKind::kReference : BackendKind::kCpu;
  return {};
}

Result<ReplayReport> ReplayReceipt(Engine& engine, const ModelIdentity& identity,
                                   const Json& receipt) {
  ReplayReport report;
  LUCID_RETURN_IF_ERROR(CheckIdentity(engine, identity, receipt, report.notes));
  LUCID_ASSIGN_OR_RETURN(Request request, ReadRequest(receipt));
  LUCID_ASSIGN_OR_RETURN(const std::vector<ReceiptReply> want, ReadReplies(receipt));
  std::vector<std::vector<TokenId>> got(static_cast<size_t>(std::max(request.n, 1)));
  LUCID_ASSIGN_OR_RETURN(Stream stream, engine.Submit(std::move(request)));
  while (const std::optional<TokenOutput> output = stream.Next()) {
    if (output->error) return tl::unexpected<Error>(*output->error);
    if (output->id >= 0) got[static_cast<size_t>(output->index)].push_back(output->id);
  }
  for (const ReceiptReply& reply : want) {
    if (reply.index < 0 || reply.index >= std::ssize(got)) {
      return Err(ErrorCode::kInvalidArgument, "the receipt has a reply {}, but {} were asked for",
                 reply.index, got.size());
    }
    ++report.replies;
    report.tokens += std::ssize(reply.tokens);
    if (!report.difference) {
      report.difference = Compare(reply, got[static_cast<size_t>(reply.index)]);
    }
  }
  return report;
}

}  // namespace lucid
