// libFuzzer target: any bytes as a tokenizer.json (or .xz of one), then a few texts through what it
// describes.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/hf_tokenizer.h"
#include "text/tokenizer.h"
#include "text/xz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto raw = std::as_bytes(std::span(bytes));
  std::string unpacked;
  if (lucid::LooksLikeXz(raw)) {
    auto text = lucid::DecompressXz(raw, size_t{1} << 20);
    if (!text) return 0;
    unpacked = std::move(*text);
  }
  auto spec = lucid::ParseHfTokenizer(unpacked.empty() ? bytes : std::string_view(unpacked));
  if (!spec) return 0;
  const auto tokenizer = lucid::Tokenizer::Create(std::move(*spec));
  if (!tokenizer) return 0;
  for (const std::string_view text :
       {std::string_view("Hello, world's 123 \xF0\x9F\x98\x80 e\xCC\x81"),
        std::string_view(" \n\t<s>ab\xFF\x80"),
        std::string_view("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), std::string_view("")}) {
    for (const auto mode : {lucid::AddedTokenMode::kParseSpecial, lucid::AddedTokenMode::kNone}) {
      lucid::EncodeOptions options;
      options.added_tokens = mode;
      const auto ids = (*tokenizer)->Encode(text, options);
      lucid::Detokenizer stream(**tokenizer, /*skip_special=*/false);
      std::string shown;
      for (const lucid::TokenId id : ids) shown += stream.Add(id);
      shown += stream.Finish();
      LUCID_CHECK(shown == (*tokenizer)->Decode(ids), "stream and whole text differ");
    }
  }
  return 0;
}
