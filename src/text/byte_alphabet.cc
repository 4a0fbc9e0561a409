#include "text/byte_alphabet.h"

#include "text/unicode.h"

namespace lucid {
namespace {

bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

struct Tables {
  std::array<std::string, 256> spelling;
  std::array<int16_t, 0x144> byte;

  Tables() {
    byte.fill(-1);
    int32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const int32_t code = StandsForItself(b) ? b : next++;
      AppendUtf8(code, spelling[static_cast<size_t>(b)]);
      byte[static_cast<size_t>(code)] = static_cast<int16_t>(b);
    }
  }
};

const Tables& GetTables() {
  static const Tables tables;
  return tables;
}

}  // namespace

const std::array<std::string, 256>& ByteAlphabet() {
  return GetTables().spelling;
}

int ByteOfCharacter(int32_t code) {
  const auto& table = GetTables().byte;
  return code >= 0 && static_cast<size_t>(code) < table.size() ? table[static_cast<size_t>(code)]
                                                               : -1;
}

std::string BytesOfPiece(std::string_view piece) {
  std::string out;
  out.reserve(piece.size());
  for (size_t at = 0; at < piece.size();) {
    const Utf8Char c = DecodeUtf8(piece, at);
    const int byte = ByteOfCharacter(c.code);
    if (byte < 0) return std::string(piece);
    out.push_back(static_cast<char>(byte));
    at += c.length;
  }
  return out;
}

}  // namespace lucid
