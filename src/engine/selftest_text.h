// The checks of selftest.h that need no weights: tokenizer and chat template.
#pragma once

#include <string_view>

#include "engine/selftest.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lucid {

// A text of some hundred tokens in several scripts, with figures and code.
std::string_view SelftestText();

// Random texts become ids and text again: the same one where the vocabulary has every byte and
// changes none; in any case one that stays as it is when that is done again. As a stream of tokens
// the text is the same.
SelfCheck CheckTokenizer(const Tokenizer& tokenizer, int64_t texts, uint64_t seed);

// Random texts have the same ids in both. `name` is the file that `other` comes from.
SelfCheck CheckSameIds(const Tokenizer& tokenizer, const Tokenizer& other, std::string_view name,
                       int64_t texts, uint64_t seed);

// Conversations of several shapes: rendered, each message's text is there, in order; the prompt for
// a reply goes on from the conversation; its ids are its text; a control token that a user spells
// stays text.
SelfCheck CheckChatTemplate(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace lucid
