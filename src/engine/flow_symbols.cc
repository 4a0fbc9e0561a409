#include "engine/flow_symbols.h"

#include <fmt/format.h>

#include <algorithm>

namespace lucid {

FlowSymbols::FlowSymbols(const ModelConfig& c, const FlowOptions& o)
    : keys_{o.prompt, (o.cached > 0 ? o.cached : o.prompt) + 1} {
  rows_.push_back({{"B", "sequences", {o.batch, o.batch}}});
  rows_.push_back({{"S", "new tokens of each sequence", {o.prompt, 1}}});
  rows_.push_back({{"C", "keys in its cache after the step", keys_}});
  rows_.push_back(
      {{"C_w", "the same in layers with a window: all of a prompt's, later the window at most",
        keys_}});
  Add("H", c.dim, "width of the residual stream");
  Add("n_q", c.n_heads, "query heads");
  Add("n_kv", c.n_kv_heads, "key and value heads");
  Add("d", c.head_dim, "width of a head");
  Add("r", c.mla.kv_lora, "width of the latent vectors in the cache");
  Add("r_q", c.mla.q_lora, "width of the latent vectors of queries");
  Add("d_r", c.mla.rope, "rotated part of a head");
  Add("d_v", c.mla.v_dim, "width of a head's value");
  Add("I", c.ffn_dim, "inner width of the feed-forward half");
  Add("E", c.moe.n_experts, "experts");
  Add("k", c.moe.n_experts > 0 ? c.moe.rule.n_used : 0, "experts of a token");
  Add("I_e", c.moe.n_experts > 0 ? c.moe.expert_dim : 0, "inner width of an expert");
  Add("I_s", c.moe.shared_dim, "inner width of the experts that all tokens share");
  Add("V", c.vocab_size, "vocabulary");
}

void FlowSymbols::Add(std::string symbol, int64_t value, std::string meaning) {
  if (value > 0) rows_.push_back({{std::move(symbol), std::move(meaning), {value, value}}});
}

FlowSymbols::Row* FlowSymbols::Find(std::string_view symbol) {
  const auto found =
      std::ranges::find(rows_, symbol, [](const Row& row) { return row.symbol.symbol; });
  return found == rows_.end() ? nullptr : &*found;
}

FlowDim FlowSymbols::Use(std::string_view symbol) {
  Row& row = *Find(symbol);
  row.used = true;
  return {row.symbol.symbol, row.symbol.value};
}

FlowDim FlowSymbols::Keys(int64_t window) {
  if (window == 0) return Use("C");
  FlowDim dim = Use("C_w");
  dim.size[1] = std::min(dim.size[1], window);
  Find("C_w")->symbol.value = dim.size;
  return dim;
}

// Of "n_q*d" and "r+d_r" both parts are used.
FlowDim FlowSymbols::Named(int64_t number, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const size_t at = name.find_first_of("*+");
    Row* const first = Find(name.substr(0, at));
    Row* const second = at == name.npos ? first : Find(name.substr(at + 1));
    if (first == nullptr || second == nullptr) continue;
    int64_t value = first->symbol.value[0];
    if (at != name.npos) {
      const int64_t other = second->symbol.value[0];
      value = name[at] == '*' ? value * other : value + other;
    }
    if (value != number) continue;
    first->used = second->used = true;
    return {std::string(name), {number, number}};
  }
  return {fmt::to_string(number), {number, number}};
}

std::vector<FlowSymbol> FlowSymbols::Used() const {
  std::vector<FlowSymbol> used;
  for (const Row& row : rows_) {
    if (row.used) used.push_back(row.symbol);
  }
  return used;
}

}  // namespace lucid
