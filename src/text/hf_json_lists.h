// TakeModelLists: the vocabulary and the merges of a tokenizer.json, which are nearly all of it, by
// a scan that knows their two shapes.
//
// What it takes is what hf_json_reader.h would read, three times as fast; whatever looks unusual,
// or wrong, it leaves to that reader, which also finds the words for it.
#pragma once

#include <string>
#include <string_view>

#include "text/hf_json_reader.h"

namespace lucid {

// Fills out.vocab and out.merges from model.vocab (an object) and model.merges (an array) and sets
// `rest` to the text with null in their places; `rest` may still not be JSON. False if the lists
// are not there or not plain; `out` is then of no use.
bool TakeModelLists(std::string_view json, HfTokenizerJson& out, std::string& rest);

}  // namespace lucid
