// POST /tokenize, /detokenize and /apply-template, with the members that llama-server and vLLM have
// for them.
#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "engine/chat_prompt.h"
#include "server/api.h"
#include "text/jinja_text.h"

namespace lucid::server {
namespace {

using Json = nlohmann::ordered_json;

tl::unexpected<ApiError> Wrong(std::string message, std::string param) {
  return tl::unexpected<ApiError>(
      {Error{ErrorCode::kInvalidArgument, std::move(message)}, std::move(param)});
}

// The first of the members `names` that the body has; it must then be true or false.
ApiResult<bool> Flag(const Json& body, std::initializer_list<const char*> names, bool otherwise) {
  for (const char* name : names) {
    if (!body.contains(name) || body[name].is_null()) continue;
    if (!body[name].is_boolean()) return Wrong(fmt::format("{} must be true or false", name), name);
    return body[name].get<bool>();
  }
  return otherwise;
}

ApiResult<void> OnlyKnown(const Json& body, std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : body.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return tl::unexpected<ApiError>(
          {Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is not a parameter that is supported", name)},
           name, "unknown_parameter"});
    }
  }
  return {};
}

ApiResult<const Tokenizer*> TokenizerOf(const Api& api) {
  if (!api.context.tokenizer) return tl::unexpected<ApiError>({api.context.tokenizer.error()});
  return *api.context.tokenizer;
}

// The prompt that messages make, as a chat completion would have it.
ApiResult<ChatPrompt> PromptOf(const Api& api, const Json& body) {
  const ApiResult<const Tokenizer*> tokenizer = TokenizerOf(api);
  if (!tokenizer) return tl::unexpected<ApiError>(tokenizer.error());
  if (!api.context.chat_template) {
    return tl::unexpected<ApiError>({api.context.chat_template.error(), "messages"});
  }
  if (!body["messages"].is_array() || body["messages"].empty()) {
    return Wrong("messages must be an array of messages", "messages");
  }
  ChatTemplateOptions options;
  const ApiResult<bool> generation = Flag(body, {"add_generation_prompt"}, true);
  if (!generation) return tl::unexpected<ApiError>(generation.error());
  const ApiResult<bool> final = Flag(body, {"continue_final_message"}, false);
  if (!final) return tl::unexpected<ApiError>(final.error());
  options.add_generation_prompt = *generation;
  options.continue_final_message = *final;
  if (body.contains("tools") && !body["tools"].is_null()) {
    if (!body["tools"].is_array()) return Wrong("tools must be an array", "tools");
    options.variables["tools"] = body["tools"];
  }
  if (body.contains("chat_template_kwargs") && !body["chat_template_kwargs"].is_null()) {
    if (!body["chat_template_kwargs"].is_object()) {
      return Wrong("chat_template_kwargs must be an object", "chat_template_kwargs");
    }
    options.variables.update(body["chat_template_kwargs"]);
  }
  Result<ChatPrompt> prompt =
      RenderChatPrompt(**api.context.chat_template, **tokenizer, body["messages"], options);
  if (!prompt) return tl::unexpected<ApiError>({prompt.error(), "messages"});
  return *std::move(prompt);
}

ApiResult<std::vector<TokenId>> IdsOf(const Api& api, const Json& body) {
  if (body.contains("messages")) {
    ApiResult<ChatPrompt> prompt = PromptOf(api, body);
    if (!prompt) return tl::unexpected<ApiError>(prompt.error());
    return std::move(prompt->ids);
  }
  const bool vllm = body.contains("prompt");
  const char* name = vllm ? "prompt" : "content";
  if (!body.contains(name) || !body[name].is_string()) {
    return Wrong(fmt::format("{} must be a string", name), name);
  }
  const ApiResult<bool> special = Flag(body, {"add_special", "add_special_tokens"}, vllm);
  if (!special) return tl::unexpected<ApiError>(special.error());
  const ApiResult<bool> parse = Flag(body, {"parse_special"}, true);
  if (!parse) return tl::unexpected<ApiError>(parse.error());
  const ApiResult<const Tokenizer*> tokenizer = TokenizerOf(api);
  if (!tokenizer) return tl::unexpected<ApiError>(tokenizer.error());
  EncodeOptions options;
  options.add_special = *special;
  options.added_tokens = *parse ? AddedTokenMode::kParseSpecial : AddedTokenMode::kSpecialAsText;
  return (*tokenizer)->Encode(body[name].get_ref<const std::string&>(), options);
}

// A token's bytes as text where they are that, else as numbers, as llama-server has it.
Json Piece(const Tokenizer& tokenizer, TokenId id) {
  const std::string bytes(tokenizer.PieceBytes(id));
  if (jinja::IsValidUtf8(bytes)) return bytes;
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
  return numbers;
}

}  // namespace

ApiResult<Json> Tokenize(const Api& api, const Json& body) {
  const ApiResult<void> known = OnlyKnown(
      body, {"model", "content", "prompt", "messages", "add_special", "add_special_tokens",
             "parse_special", "with_pieces", "return_token_strs", "add_generation_prompt",
             "continue_final_message", "chat_template_kwargs", "tools"});
  if (!known) return tl::unexpected<ApiError>(known.error());
  const ApiResult<std::vector<TokenId>> ids = IdsOf(api, body);
  if (!ids) return tl::unexpected<ApiError>(ids.error());
  const ApiResult<bool> pieces = Flag(body, {"with_pieces"}, false);
  if (!pieces) return tl::unexpected<ApiError>(pieces.error());
  const ApiResult<bool> strings = Flag(body, {"return_token_strs"}, false);
  if (!strings) return tl::unexpected<ApiError>(strings.error());
  const Tokenizer& tokenizer = **api.context.tokenizer;
  Json answer = {
      {"tokens", Json::array()}, {"count", ids->size()}, {"max_model_len", api.engine.context()}};
  for (const TokenId id : *ids) {
    if (*pieces) {
      answer["tokens"].push_back({{"id", id}, {"piece", Piece(tokenizer, id)}});
    } else {
      answer["tokens"].push_back(id);
    }
    if (*strings) answer["token_strs"].push_back(tokenizer.PieceText(id));
  }
  return answer;
}

ApiResult<Json> Detokenize(const Api& api, const Json& body) {
  const ApiResult<void> known = OnlyKnown(body, {"model", "tokens"});
  if (!known) return tl::unexpected<ApiError>(known.error());
  const ApiResult<const Tokenizer*> tokenizer = TokenizerOf(api);
  if (!tokenizer) return tl::unexpected<ApiError>(tokenizer.error());
  if (!body.contains("tokens") || !body["tokens"].is_array()) {
    return Wrong("tokens must be an array of token ids", "tokens");
  }
  std::vector<TokenId> ids;
  for (const Json& id : body["tokens"]) {
    if (!id.is_number_integer() || id < 0 || id >= (*tokenizer)->n_tokens()) {
      return Wrong(fmt::format("tokens holds {}, and ids are from 0 to {}", Dump(id).substr(0, 40),
                               (*tokenizer)->n_tokens() - 1),
                   "tokens");
    }
    ids.push_back(id.get<TokenId>());
  }
  const std::string text = (*tokenizer)->Decode(ids);
  return Json{{"content", text}, {"prompt", text}};
}

ApiResult<Json> ApplyTemplate(const Api& api, const Json& body) {
  const ApiResult<void> known =
      OnlyKnown(body, {"model", "messages", "add_generation_prompt", "continue_final_message",
                       "chat_template_kwargs", "tools"});
  if (!known) return tl::unexpected<ApiError>(known.error());
  if (!body.contains("messages")) return Wrong("there are no messages", "messages");
  const ApiResult<ChatPrompt> prompt = PromptOf(api, body);
  if (!prompt) return tl::unexpected<ApiError>(prompt.error());
  return Json{{"prompt", prompt->text}};
}

}  // namespace lucid::server
