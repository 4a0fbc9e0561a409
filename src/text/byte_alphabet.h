// The GPT-2 byte alphabet: each byte is spelled as one printable character, so that byte-level
// vocabularies are readable text. Printable Latin-1 stands for itself, the other 68 bytes follow
// from U+0100.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lucid {

// The character of each byte, as UTF-8.
const std::array<std::string, 256>& ByteAlphabet();

// The byte that `code` spells, or -1.
int ByteOfCharacter(int32_t code);

// Appends the bytes that `piece` spells. A piece with a character outside the alphabet
// stands for its own UTF-8, as in the `tokenizers` library.
void AppendBytesOfPiece(std::string_view piece, std::string& out);

}  // namespace lucid
