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

void AppendBytesOfPiece(std::string_view piece, std::string& out) {
  const auto& table = GetTables().byte;
  const size_t before = out.size();
  for (size_t at = 0; at < piece.size();) {
    const auto lead = static_cast<unsigned char>(piece[at]);
    if (lead >= '!' && lead <= '~') {
      out.push_back(piece[at++]);
      continue;
    }
    // The rest of the alphabet is characters of two bytes.
    const Utf8Char c = DecodeUtf8(piece, at);
    const int byte = c.length == 2 && static_cast<size_t>(c.code) < table.size()
                         ? table[static_cast<size_t>(c.code)]
                         : -1;
    if (byte < 0) {
      out.resize(before);
      out += piece;
      return;
    }
    out.push_back(static_cast<char>(byte));
    at += 2;
  }
}

}  // namespace lucid
