// The example of README.md: continues a prompt with a model.
#include <iostream>

#include "lucid/engine/engine.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto engine = lucid::Engine::Load({.model = argv[1]});
  if (!engine) {
    std::cerr << engine.error().message << "\n";
    return 1;
  }
  lucid::Request request;
  request.prompt = (*engine)->tokenizer().value()->Encode(argv[2]);
  request.sampling.temperature = 0;
  request.max_tokens = 16;
  lucid::Stream stream = (*engine)->Submit(std::move(request)).value();
  while (const std::optional<lucid::TokenOutput> out = stream.Next()) {
    std::cout << out->text << std::flush;
  }
  std::cout << "\n";
}
