#include "server/api.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "engine/openai_response.h"

namespace lucid::server {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

HttpResponse JsonResponse(const Json& json) {
  HttpResponse response;
  response.body = Dump(json);
  return response;
}

HttpResponse JsonError(const ApiError& error) {
  HttpResponse response;
  response.status = HttpStatus(error.error.code);
  response.body = Dump(ErrorBody(error));
  return response;
}

ApiResult<Json> ParseBody(const HttpRequest& request) {
  const auto wrong = [](std::string message) {
    return tl::unexpected<ApiError>(
        {Error{ErrorCode::kInvalidArgument, std::move(message)}, "", "invalid_json"});
  };
  if (request.body.empty()) return wrong("the body is empty, and must be a JSON object");
  Result<Json> body = ParseJson(request.body, "the body");
  if (!body) return wrong(body.error().message);
  if (!body->is_object()) {
    return wrong(fmt::format("the body is {} of JSON, and must be an object",
                             body->is_array() ? "an array" : body->type_name()));
  }
  return *std::move(body);
}

ApiResult<void> CheckModel(const Api& api, const std::string& model) {
  if (model.empty() || std::find(api.names.begin(), api.names.end(), model) != api.names.end()) {
    return {};
  }
  return tl::unexpected<ApiError>(
      {Error{ErrorCode::kNotFound,
             fmt::format("the model {} is not served here, only {}", model, api.name())},
       "model", "model_not_found"});
}

}  // namespace lucid::server
