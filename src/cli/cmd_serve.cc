// lucid serve: an OpenAI-compatible server.
//
//   lucid serve -m MODEL --port 8080
//
// This file declares the flags; server/service.h does the work.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "server/service.h"

namespace lucid::cli {
namespace {

struct ServeFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  RequestCacheFlags cache;
  server::HttpOptions http;
  server::RouterOptions router;
  std::vector<std::string> aliases;
  std::string config;  // read before the flags are (config_file.h)
  std::string chat_template_file, api_key_file;
  int64_t n_predict = -1;
  bool log_requests = false;
  double idle_seconds = 75, request_seconds = 30, write_seconds = 30, grace_seconds = 10;
};

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// One key a line; blank lines and those that begin with # are none.
Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  LUCID_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::vector<std::string> keys;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string key = text.substr(at, end - at);
    while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
    if (!key.empty() && key[0] != '#') keys.push_back(std::move(key));
    at = end + 1;
  }
  if (keys.empty()) return Err(ErrorCode::kInvalidArgument, "{} holds no API key", path);
  return keys;
}

// What clients may call the model: --alias, or what it was called here.
std::vector<std::string> NamesOf(const ServeFlags& flags, const std::string& path) {
  if (!flags.aliases.empty()) return flags.aliases;
  std::vector<std::string> names = {flags.model.model};
  const std::string stem = std::filesystem::path(path).stem().string();
  if (stem != flags.model.model) names.push_back(stem);
  return names;
}

Status Run(const ServeFlags& flags) {
  server::ServiceOptions options;
  LUCID_ASSIGN_OR_RETURN(options.engine, ToEngineConfig(flags.model, flags.engine));
  LUCID_ASSIGN_OR_RETURN(options.defaults.sampling, ToSamplerParams(flags.sampling));
  LUCID_RETURN_IF_ERROR(SamplerChain::Create(options.defaults.sampling));
  LUCID_RETURN_IF_ERROR(CheckCacheFlags(flags.cache, flags.engine));
  options.defaults.max_tokens = flags.n_predict;
  ApplyCacheFlags(flags.cache, options.defaults);
  options.http = flags.http;
  options.http.idle_timeout = Milliseconds(flags.idle_seconds);
  options.http.request_timeout = Milliseconds(flags.request_seconds);
  options.http.write_timeout = Milliseconds(flags.write_seconds);
  options.http.grace = Milliseconds(flags.grace_seconds);
  options.router = flags.router;
  options.log_requests = flags.log_requests;
  if (!flags.api_key_file.empty()) {
    LUCID_ASSIGN_OR_RETURN(const std::vector<std::string> keys, ReadKeys(flags.api_key_file));
    options.router.api_keys.insert(options.router.api_keys.end(), keys.begin(), keys.end());
  }
  if (!flags.chat_template_file.empty()) {
    LUCID_ASSIGN_OR_RETURN(options.chat_template, ReadTextFile(flags.chat_template_file));
  }
  options.names = NamesOf(flags, options.engine.model);
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<server::Service> service,
                         server::Service::Listen(std::move(options)));
  return service->Run(
      [&] { fmt::print(stderr, "{} is served at {}\n", flags.model.model, service->url()); });
}

void AddHttpFlags(CLI::App& command, ServeFlags& flags) {
  command.add_option("--host", flags.http.host, "the address to listen on")->capture_default_str();
  command.add_option("--port", flags.http.port, "the port; 0: one that is free")
      ->capture_default_str();
  command.add_option("--unix-socket,--uds", flags.http.unix_socket,
                     "listen on this Unix socket instead");
  command.add_option("--api-prefix", flags.router.prefix,
                     "what comes before every path, such as /llm");
  command.add_option("--api-key", flags.router.api_keys,
                     "a key that clients must send as Authorization: Bearer KEY; several may be "
                     "given");
  command.add_option("--api-key-file", flags.api_key_file, "a file with a key on every line");
  command.add_option("--cors-origin", flags.router.cors_origins,
                     "an origin (https://example.org) whose pages may ask; *: all; several may be "
                     "given");
  command.add_option("--ssl-cert-file", flags.http.tls_certificate,
                     "serve HTTPS with this certificate (PEM, with its chain)");
  command.add_option("--ssl-key-file", flags.http.tls_key, "the key of that certificate (PEM)");
  command.add_option("--max-body", flags.http.max_body_bytes, "most bytes of a request's body")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->capture_default_str();
  command.add_option("--max-header", flags.http.max_header_bytes, "most bytes of its headers")
      ->capture_default_str();
  command
      .add_option("--max-connections", flags.http.max_connections,
                  "most connections at once; 0: as the limit of open files allows")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  const auto seconds = [&](const char* name, double& value, const char* help) {
    command.add_option(name, value, help)->check(CLI::Range(0.001, 1e6))->capture_default_str();
  };
  seconds("--idle-timeout", flags.idle_seconds, "seconds between requests of a connection");
  seconds("--request-timeout", flags.request_seconds, "seconds until a request has come whole");
  seconds("--write-timeout", flags.write_seconds,
          "seconds until a client takes what is sent; then its request ends");
  seconds("--grace", flags.grace_seconds,
          "seconds that running requests have after SIGTERM or Ctrl-C; a second one ends them");
}

}  // namespace

void AddServeCommand(CLI::App& root, CommandContext& context) {
  CLI::App* command = root.add_subcommand("serve", "Serve a model over HTTP, as the OpenAI API");
  auto flags = std::make_shared<ServeFlags>();
  flags->engine.parallel = 16;
  command->add_option("--config", flags->config,
                      "a TOML or YAML file with settings: flags without their dashes as keys; "
                      "variables such as LUCID_SERVE_PORT win over it, flags over both");
  AddModelFlags(*command, flags->model);
  command->add_option("-a,--alias", flags->aliases,
                      "the name of the model for clients; several may be given");
  command->add_option("--chat-template", flags->chat_template_file,
                      "a file with the template to use");
  AddHttpFlags(*command, *flags);
  command->add_flag("--log-requests", flags->log_requests,
                    "a line of JSON on standard error for each request: path, status, seconds, "
                    "tokens, trace headers");
  command
      ->add_option("-n,--n-predict", flags->n_predict,
                   "most tokens of a reply where a request says no max_tokens; -1: until the model "
                   "ends")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30))
      ->capture_default_str();
  AddSamplingFlags(*command, flags->sampling);
  AddParallelFlags(*command, flags->engine)->capture_default_str();
  AddChunkFlag(*command, flags->engine);
  AddQueueFlags(*command, flags->engine);
  AddCacheFlags(*command, flags->engine);
  AddReuseFlags(*command, flags->engine);
  AddRequestCacheFlags(*command, flags->cache);
  command->callback([flags, &context] {
    if (const Status status = Run(*flags); !status) ReportError(status.error(), context);
  });
}

}  // namespace lucid::cli
