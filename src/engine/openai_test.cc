// Request bodies and answers of the OpenAI API, without a model. What the engine does with them is
// tested through the command line (tests/cli_batch.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/openai_request.h"
#include "engine/openai_response.h"

namespace lucid {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// No tokenizer and no template: prompts are ids.
ApiContext Ids() {
  return {.tokenizer = Err(ErrorCode::kNotFound, "no tokenizer here"),
          .chat_template = Err(ErrorCode::kNotFound, "no template here")};
}

Json Parse(std::string_view text) {
  return ParseJson(text, "body").value();
}

ApiResult<ApiRequest> Read(std::string_view body, ApiContext context = Ids()) {
  return ParseApiRequest(ApiEndpoint::kCompletion, Parse(body), context);
}

TEST(ApiRequest, ReadsEveryMember) {
  const auto got = Read(R"({"model": "m", "prompt": [1, 2, 3], "max_tokens": 7, "temperature": 0.5,
    "top_p": 0.9, "top_k": 5, "min_p": 0.1, "typical_p": 0.8, "repetition_penalty": 1.2,
    "frequency_penalty": 0.3, "presence_penalty": 0.4, "logit_bias": {"4": -100}, "seed": -1,
    "stop": ["a", "b"], "n": 2, "logprobs": 3, "ignore_eos": true, "priority": -4, "user": "u",
    "kv_policy": "h2o", "kv_budget": 64, "kv_audit": true, "stream": false})");
  ASSERT_TRUE(got) << got.error().error.message;
  const Request& r = got->request;
  EXPECT_EQ(got->model, "m");
  EXPECT_THAT(r.prompt, ElementsAre(1, 2, 3));
  EXPECT_EQ(r.max_tokens, 7);
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.top_p, 0.9f);
  EXPECT_EQ(r.sampling.top_k, 5);
  EXPECT_EQ(r.sampling.min_p, 0.1f);
  EXPECT_EQ(r.sampling.typical_p, 0.8f);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.2f);
  EXPECT_EQ(r.sampling.frequency_penalty, 0.3f);
  EXPECT_EQ(r.sampling.presence_penalty, 0.4f);
  EXPECT_EQ(r.sampling.logit_bias.at(4), -100);
  EXPECT_EQ(r.sampling.seed, ~uint64_t{0});
  EXPECT_TRUE(got->seed_given);
  EXPECT_THAT(r.stop, ElementsAre("a", "b"));
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.n_logprobs, 3);
  EXPECT_TRUE(r.ignore_eos);
  EXPECT_EQ(r.priority, -4);
  EXPECT_EQ(r.client, "u");
  EXPECT_EQ(r.eviction.policy, KvPolicy::kH2o);
  EXPECT_EQ(r.eviction.budget, 64);
  EXPECT_TRUE(r.kv_audit);
}

TEST(ApiRequest, KeepsTheDefaultsOfWhatIsAbsentOrNull) {
  ApiContext context = Ids();
  context.defaults.max_tokens = 9;
  context.defaults.sampling.temperature = 0.25f;
  const auto got = Read(R"({"prompt": [1], "max_tokens": null, "stop": null, "seed": null})",
                        std::move(context));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->request.max_tokens, 9);
  EXPECT_EQ(got->request.sampling.temperature, 0.25f);
  EXPECT_FALSE(got->seed_given);
  EXPECT_EQ(got->request.n_logprobs, -1);
  EXPECT_EQ(got->request.beam.width, 0);
}

TEST(ApiRequest, BeamsAreAsManyAsReplies) {
  const auto got = Read(R"({"prompt": [1], "use_beam_search": true, "n": 4, "length_penalty": 0.5,
               "temperature": 0})");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->request.beam.width, 4);
  EXPECT_EQ(got->request.beam.length_penalty, 0.5);
}

TEST(ApiRequest, NamesTheMemberAtFault) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"prompt": [1], "colour": 1})", "colour"},
      {R"({"prompt": [1], "max_tokens": "many"})", "max_tokens"},
      {R"({"prompt": [1], "seed": 18446744073709551615})", "seed"},
      {R"({"prompt": [1], "n": 1e9})", "n"},
      {R"({"prompt": [-1]})", "prompt"},
      {R"({"prompt": [2147483648]})", "prompt"},
      {R"({"prompt": {}})", "prompt"},
      {R"({})", "prompt"},
      {R"({"prompt": "text"})", "prompt"},  // nobody can read it
      {R"({"prompt": [1], "top_p": 0.5, "use_beam_search": true})", "top_p"},
      {R"({"prompt": [1], "length_penalty": 1})", "length_penalty"},
      {R"({"prompt": [1], "logit_bias": {"-1": 1}})", "logit_bias"},
      {R"({"prompt": [1], "max_tokens": 1, "max_completion_tokens": 1})", "max_completion_tokens"},
  };
  for (const auto& [body, param] : cases) {
    const auto got = Read(body);
    ASSERT_FALSE(got) << body;
    EXPECT_EQ(got.error().param, param) << body;
    EXPECT_THAT(got.error().error.message, testing::Not(HasSubstr("\n")));
  }
  const ApiContext context = Ids();
  const auto chat = ParseApiRequest(ApiEndpoint::kChat, Parse(R"({"messages": [{}]})"), context);
  EXPECT_EQ(chat.error().error.message, "no tokenizer here");
  EXPECT_EQ(
      ParseApiRequest(ApiEndpoint::kChat, Parse(R"({"messages": []})"), context).error().param,
      "messages");
}

TEST(ApiErrors, HaveStatusTypeAndCode) {
  EXPECT_EQ(HttpStatus(ErrorCode::kInvalidArgument), 400);
  EXPECT_EQ(HttpStatus(ErrorCode::kContextLength), 400);
  EXPECT_EQ(HttpStatus(ErrorCode::kCapacity), 503);
  EXPECT_EQ(HttpStatus(ErrorCode::kIo), 500);
  ApiError error;
  error.error = {ErrorCode::kContextLength, "too long"};
  error.param = "prompt";
  EXPECT_EQ(ErrorBody(error),
            Parse(R"({"error": {"message": "too long", "type": "invalid_request_error",
                      "param": "prompt", "code": "context_length_exceeded"}})"));
  error = {};
  error.error = {ErrorCode::kIo, "broken"};
  EXPECT_EQ(ErrorBody(error),
            Parse(R"({"error": {"message": "broken", "type": "server_error", "param": null,
                      "code": null}})"));
  EXPECT_NE(NewApiId("a-"), NewApiId("a-"));
}

TEST(CompletionBuilder, GathersTheRepliesOfOneRequest) {
  ApiRequest request;
  request.endpoint = ApiEndpoint::kCompletion;
  request.request.n = 2;
  request.request.sampling.seed = 3;
  CompletionBuilder builder(request, nullptr, "model");
  builder.Add({.index = 1, .id = 5, .text = "b"});
  builder.Add({.index = 0, .id = 4, .text = "a"});
  TokenOutput last{.index = 0, .id = 6, .text = "c", .cause = StopCause::kEndOfGeneration};
  last.stats = {.prompt_tokens = 10, .cached_tokens = 8, .generated_tokens = 2};
  builder.Add(last);
  last.index = 1;
  last.cause = StopCause::kLength;
  builder.Add(last);
  EXPECT_FALSE(builder.error());
  const Json body = builder.Body();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "ac");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][1]["text"], "bc");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(body["usage"], Parse(R"({"prompt_tokens": 10, "completion_tokens": 4,
    "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 8}})"));
  EXPECT_EQ(body["seed"], 3);

  builder.Add(
      {.index = 0, .cause = StopCause::kError, .error = Error{ErrorCode::kCapacity, "no room"}});
  EXPECT_EQ(builder.error()->message, "no room");
}

}  // namespace
}  // namespace lucid
