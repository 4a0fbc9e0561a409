// Filters on sequences and mappings (jinja_filters.h). Filters that Jinja writes as generators
// return iterators here too, so that they are lazy and can be read once only.
#include <algorithm>

#include "text/jinja_args.h"
#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_ops.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

using KeyFn = std::function<Value(const Value&)>;

Value IgnoreCase(Interp& interp, const Value& value) {
  if (!value.IsString()) return value;
  interp.budget().Bytes(value.text().size() * 5);
  return Value::String(Lower(value.text()));
}

// "a.b.0" as the items to look up one after the other.
std::vector<Value> AttributeParts(const Value& attribute) {
  if (attribute.is(Kind::kNone)) return {};
  if (!attribute.IsString()) return {attribute};
  std::vector<Value> parts;
  std::string_view text = attribute.text();
  while (true) {
    size_t dot = std::min(text.find('.'), text.size());
    std::string_view part = text.substr(0, dot);
    bool digits = !part.empty() && part.size() < 18 &&
                  part.find_first_not_of("0123456789") == std::string_view::npos;
    parts.push_back(digits ? Value::OfInt(std::stoll(std::string(part)))
                           : Value::String(std::string(part)));
    if (dot == text.size()) return parts;
    text.remove_prefix(dot + 1);
  }
}

Value Follow(Interp& interp, Value item, const std::vector<Value>& parts, const Value* fallback) {
  interp.budget().Step();
  for (const Value& part : parts) {
    item = interp.GetItem(item, part);
    if (fallback != nullptr && !fallback->is(Kind::kNone) && item.IsUndefined()) item = *fallback;
  }
  return item;
}

// The function that maps an item to what filters compare: an attribute of it, without case if
// asked.
KeyFn MakeKey(Interp& interp, const Value& attribute, bool ignore_case,
              const Value* fallback = nullptr) {
  auto parts = AttributeParts(attribute);
  Value other = fallback != nullptr ? *fallback : Value::None();
  return [&interp, parts = std::move(parts), ignore_case, other](const Value& item) {
    Value key = Follow(interp, item, parts, &other);
    return ignore_case ? IgnoreCase(interp, key) : key;
  };
}

// sort's key: a list, one entry for each of the comma-separated attributes.
KeyFn MakeMultiKey(Interp& interp, const Value& attribute, bool ignore_case) {
  std::vector<KeyFn> keys;
  if (attribute.IsString()) {
    std::string_view text = attribute.text();
    while (true) {
      size_t comma = std::min(text.find(','), text.size());
      keys.push_back(
          MakeKey(interp, Value::String(std::string(text.substr(0, comma))), ignore_case));
      if (comma == text.size()) break;
      text.remove_prefix(comma + 1);
    }
  } else {
    keys.push_back(MakeKey(interp, attribute, ignore_case));
  }
  return [keys = std::move(keys)](const Value& item) {
    std::vector<Value> values;
    for (const KeyFn& key : keys) values.push_back(key(item));
    return Value::List(std::move(values));
  };
}

// Stable merge sort; std::stable_sort must not be left by an exception half way through moving
// values.
void Sort(Interp& interp, std::vector<Value>* items, const KeyFn& key, bool reverse) {
  size_t n = items->size();
  std::vector<Value> keys;
  keys.reserve(n);
  for (const Value& item : *items) keys.push_back(key(item));
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  std::vector<size_t> other(n);
  auto before = [&](size_t a, size_t b) {
    return reverse ? Less(keys[b], keys[a], interp.budget())
                   : Less(keys[a], keys[b], interp.budget());
  };
  for (size_t width = 1; width < n; width *= 2) {
    for (size_t low = 0; low < n; low += 2 * width) {
      size_t middle = std::min(low + width, n);
      size_t high = std::min(low + 2 * width, n);
      size_t i = low;
      size_t j = middle;
      for (size_t k = low; k < high; ++k) {
        bool take_right = i == middle || (j < high && before(order[j], order[i]));
        other[k] = order[take_right ? j++ : i++];
      }
    }
    std::swap(order, other);
  }
  std::vector<Value> sorted;
  sorted.reserve(n);
  for (size_t i : order) sorted.push_back((*items)[i]);
  *items = std::move(sorted);
}

Value SortFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = interp.ToVector(input);
  Sort(interp, &items,
       MakeMultiKey(interp, params.Get(2, Value::None()), !params.TruthOr(1, false)),
       params.TruthOr(0, false));
  return interp.MakeList(std::move(items));
}

Value DictSortFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "dictsort", {"case_sensitive", "by", "reverse"});
  std::string by = params[1] != nullptr ? params.Text(1) : "key";
  if (by != "key" && by != "value") {
    Fail(ErrorKind::kValue, "You can only sort by either \"key\" or \"value\"");
  }
  if (input.IsUndefined()) FailUndefined(input);
  if (!input.is(Kind::kDict)) Fail(ErrorKind::kType, "dictsort needs a mapping");
  std::vector<Value> items;
  for (const auto& [key, value] : input.dict().items) items.push_back(Value::Tuple({key, value}));
  bool ignore_case = !params.TruthOr(0, false);
  size_t at = by == "key" ? 0 : 1;
  Sort(
      interp, &items,
      [&interp, at, ignore_case](const Value& pair) {
        return ignore_case ? IgnoreCase(interp, pair.items()[at]) : pair.items()[at];
      },
      params.TruthOr(2, false));
  return interp.MakeList(std::move(items));
}

Value UniqueFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "unique", {"case_sensitive", "attribute"});
  KeyFn key = MakeKey(interp, params.Get(1, Value::None()), !params.TruthOr(0, false));
  auto source = std::make_shared<std::shared_ptr<IteratorObj>>();
  auto seen = std::make_shared<DictObj>();
  return interp.MakeIterator(
      [&interp, input, key, source, seen](Value* out) {
        if (!*source) *source = interp.Iterate(input);
        while ((*source)->next(out)) {
          Value item_key = key(*out);
          if (seen->Find(item_key, interp.budget()) != nullptr) continue;
          seen->Set(item_key, Value::None(), interp.budget());
          return true;
        }
        return false;
      },
      "generator", input.depth());
}

template <bool kMax>
Value ExtremeFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, kMax ? "max" : "min", {"case_sensitive", "attribute"});
  KeyFn key = MakeKey(interp, params.Get(1, Value::None()), !params.TruthOr(0, false));
  auto iterator = interp.Iterate(input);
  Value best;
  if (!iterator->next(&best)) {
    return Value::UndefinedHint("No aggregated item, sequence was empty.");
  }
  Value best_key = key(best);
  Value item;
  while (iterator->next(&item)) {
    Value item_key = key(item);
    bool better = kMax ? Less(best_key, item_key, interp.budget(), ">")
                       : Less(item_key, best_key, interp.budget(), "<");
    if (!better) continue;
    best = item;
    best_key = item_key;
  }
  return best;
}

Value DefaultFilter(Interp&, const Value& input, CallArgs& args) {
  Params params(args, "default", {"default_value", "boolean"});
  bool take = input.IsUndefined() || (params.TruthOr(1, false) && !Truth(input));
  return take ? params.Get(0, Value::String({})) : input;
}

Value JoinFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "join", {"d", "attribute"});
  std::string separator = params[0] != nullptr ? Str(*params[0], interp.budget()) : "";
  auto parts = AttributeParts(params.Get(1, Value::None()));
  std::string out;
  bool first = true;
  auto iterator = interp.Iterate(input);
  Value item;
  while (iterator->next(&item)) {
    std::string text = Str(Follow(interp, item, parts, nullptr), interp.budget());
    interp.budget().Bytes(separator.size() + text.size());
    if (!first) out += separator;
    first = false;
    out += text;
  }
  return interp.MakeString(std::move(out));
}

Value FirstFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "first", {});
  Value item;
  if (interp.Iterate(input)->next(&item)) return item;
  return Value::UndefinedHint("No first item, sequence was empty.");
}

bool Reversible(const Value& value) {
  return value.IsString() || value.IsSequence() || value.is(Kind::kDict) || value.is(Kind::kView) ||
         value.is(Kind::kRange);
}

Value LastFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "last", {});
  if (input.IsUndefined()) return Value::UndefinedHint("No last item, sequence was empty.");
  if (!Reversible(input)) Fail(ErrorKind::kType, "'{}' object is not reversible", TypeName(input));
  std::vector<Value> items = interp.ToVector(input);
  if (items.empty()) return Value::UndefinedHint("No last item, sequence was empty.");
  return items.back();
}

Value LengthFilter(Interp&, const Value& input, CallArgs& args) {
  Params params(args, "length", {});
  auto length = LengthOf(input);
  if (!length) Fail(ErrorKind::kType, "object of type '{}' has no len()", TypeName(input));
  return Value::OfInt(static_cast<Int>(*length));
}

Value ListFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "list", {});
  return interp.MakeList(interp.ToVector(input));
}

Value ItemsFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "items", {});
  auto at = std::make_shared<size_t>(0);
  return interp.MakeIterator(
      [input, at](Value* out) {
        if (input.IsUndefined()) return false;
        if (!input.is(Kind::kDict)) {
          Fail(ErrorKind::kType, "Can only get item pairs from a mapping.");
        }
        const auto& items = input.dict().items;
        if (*at >= items.size()) return false;
        *out = Value::Tuple({items[*at].first, items[*at].second});
        ++*at;
        return true;
      },
      "generator", input.depth());
}

Value ReverseFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "reverse", {});
  if (input.IsString()) {
    return SliceOf(interp, input, Value::None(), Value::None(), Value::OfInt(-1));
  }
  std::vector<Value> items = interp.ToVector(input);
  std::reverse(items.begin(), items.end());
  Value list = interp.MakeList(std::move(items));
  if (!Reversible(input)) return list;
  auto iterator = interp.Iterate(list);
  iterator->type_name = "list_reverseiterator";
  return Value::Of(Kind::kIterator, iterator);
}

Value SumFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "sum", {"attribute", "start"});
  auto parts = AttributeParts(params.Get(0, Value::None()));
  Value total = params.Get(1, Value::OfInt(0));
  if (total.IsString())
    Fail(ErrorKind::kType, "sum() can't sum strings [use ''.join(seq) instead]");
  auto iterator = interp.Iterate(input);
  Value item;
  while (iterator->next(&item)) {
    total = Arithmetic(interp, BinaryOp::kAdd, total, Follow(interp, item, parts, nullptr));
  }
  return total;
}

Value BatchFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "batch", {"linecount", "fill_with"}, 1);
  Value count = *params[0];
  Value fill = params.Get(1, Value::None());
  auto source = std::make_shared<std::shared_ptr<IteratorObj>>();
  auto pending = std::make_shared<std::vector<Value>>();
  return interp.MakeIterator(
      [&interp, input, count, fill, source, pending](Value* out) {
        if (!*source) *source = interp.Iterate(input);
        std::vector<Value> line = std::move(*pending);
        pending->clear();
        Value item;
        while ((*source)->next(&item)) {
          interp.budget().Bytes(sizeof(Value));
          if (Equal(Value::OfInt(static_cast<Int>(line.size())), count, interp.budget())) {
            pending->push_back(item);
            *out = Value::List(std::move(line));
            return true;
          }
          line.push_back(item);
        }
        if (line.empty()) return false;
        if (!fill.is(Kind::kNone)) {
          uint64_t want = ClampSize(AsInt(count, "batch"));
          interp.budget().Bytes(want > line.size() ? (want - line.size()) : 0);
          while (line.size() < want) {
            interp.budget().Bytes(sizeof(Value));
            line.push_back(fill);
          }
        }
        *out = Value::List(std::move(line));
        return true;
      },
      "generator", input.depth());
}

// What the slice filter keeps between its parts.
struct SliceState {
  bool started = false;
  std::vector<Value> items;
  Int at = 0, each = 0, extra = 0;
};

Value SliceFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "slice", {"slices", "fill_with"}, 1);
  Value count = *params[0];
  Value fill = params.Get(1, Value::None());
  auto state = std::make_shared<SliceState>();
  return interp.MakeIterator(
      [&interp, input, count, fill, state](Value* out) {
        if (!state->started) {
          state->started = true;
          state->items = interp.ToVector(input);
          Int slices = AsInt(count, "slice");
          if (slices == 0) Fail(ErrorKind::kValue, "integer division or modulo by zero");
          auto length = static_cast<Int>(state->items.size());
          state->each = slices > 0 ? length / slices : 0;
          state->extra = slices > 0 ? length % slices : 0;
        }
        if (state->at >= count.int_value()) return false;
        Int start = state->at * state->each + std::min(state->at, state->extra);
        Int end = start + state->each + (state->at < state->extra ? 1 : 0);
        auto first = state->items.begin();
        interp.budget().Bytes(static_cast<uint64_t>(end - start + 1) * sizeof(Value));
        std::vector<Value> part(first + static_cast<std::ptrdiff_t>(start),
                                first + static_cast<std::ptrdiff_t>(end));
        if (!fill.is(Kind::kNone) && state->at >= state->extra) part.push_back(fill);
        ++state->at;
        *out = Value::List(std::move(part));
        return true;
      },
      "generator", input.depth());
}

Value GroupByFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  bool ignore_case = !params.TruthOr(2, false);
  KeyFn key = MakeKey(interp, *params[0], ignore_case, params[1]);
  KeyFn exact = MakeKey(interp, *params[0], false, params[1]);
  std::vector<Value> items = interp.ToVector(input);
  Sort(interp, &items, key, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    Value group_key = key(items[i]);
    std::vector<Value> members;
    size_t first = i;
    while (i < items.size() && Equal(key(items[i]), group_key, interp.budget())) {
      members.push_back(items[i++]);
    }
    if (i == first) members.push_back(items[i++]);  // a key that is not equal to itself (nan)
    auto pair = Value::Tuple({exact(members[0]), interp.MakeList(std::move(members))});
    pair.as<ListObj>().is_group = true;
    groups.push_back(std::move(pair));
  }
  return interp.MakeList(std::move(groups));
}

// What `map` applies to each item.
KeyFn MakeMap(Interp& interp, CallArgs args) {
  if (args.pos.empty() && !args.kw.empty()) {
    Params params(args, "map", {"attribute", "default"});
    if (params[0] == nullptr) Fail(ErrorKind::kType, "map requires a filter argument");
    return MakeKey(interp, *params[0], false, params[1]);
  }
  if (args.pos.empty()) Fail(ErrorKind::kType, "map requires a filter argument");
  Value name = args.pos[0];
  args.pos.erase(args.pos.begin());
  return [&interp, name, args = std::move(args)](const Value& item) {
    if (!name.IsString()) Fail(ErrorKind::kRuntime, "no filter named {}", ShortRepr(name));
    return interp.CallFilter(name.text(), item, args);
  };
}

// What `select` and its relatives ask of each item.
std::function<bool(const Value&)> MakeSelect(Interp& interp, CallArgs args, bool attribute) {
  std::vector<Value> parts;
  if (attribute) {
    if (args.pos.empty()) Fail(ErrorKind::kType, "Missing parameter for attribute name");
    parts = AttributeParts(args.pos[0]);
    args.pos.erase(args.pos.begin());
  }
  if (args.pos.empty()) {
    return
        [&interp, parts](const Value& item) { return Truth(Follow(interp, item, parts, nullptr)); };
  }
  Value name = args.pos[0];
  args.pos.erase(args.pos.begin());
  return [&interp, parts, name, args = std::move(args)](const Value& item) {
    if (!name.IsString()) Fail(ErrorKind::kRuntime, "no test named {}", ShortRepr(name));
    return interp.CallTest(name.text(), Follow(interp, item, parts, nullptr), args);
  };
}

Value MapFilter(Interp& interp, const Value& input, CallArgs& args) {
  auto source = std::make_shared<std::shared_ptr<IteratorObj>>();
  auto fn = std::make_shared<KeyFn>();
  return interp.MakeIterator(
      [&interp, input, args, source, fn](Value* out) {
        if (!*source) {
          if (!Truth(input)) return false;
          *fn = MakeMap(interp, args);
          *source = interp.Iterate(input);
        }
        Value item;
        if (!(*source)->next(&item)) return false;
        *out = (*fn)(item);
        return true;
      },
      "generator", input.depth());
}

template <bool kKeep, bool kAttribute>
Value SelectFilter(Interp& interp, const Value& input, CallArgs& args) {
  auto source = std::make_shared<std::shared_ptr<IteratorObj>>();
  auto test = std::make_shared<std::function<bool(const Value&)>>();
  return interp.MakeIterator(
      [&interp, input, args, source, test](Value* out) {
        if (!*source) {
          if (!Truth(input)) return false;
          *test = MakeSelect(interp, args, kAttribute);
          *source = interp.Iterate(input);
        }
        while ((*source)->next(out)) {
          interp.budget().Step();
          if ((*test)(*out) == kKeep) return true;
        }
        return false;
      },
      "generator", input.depth());
}

Value AttrFilter(Interp& interp, const Value& input, CallArgs& args) {
  Params params(args, "attr", {"name"}, 1);
  if (input.is(Kind::kDict)) {  // attributes only, never items
    Value result;
    Value empty = Value::Dict(std::make_shared<DictObj>());
    result = interp.GetAttr(empty, params.Text(0));
    bool method = result.is(Kind::kFunction);
    return method ? interp.GetAttr(input, params.Text(0)) : result;
  }
  return interp.GetAttr(input, params.Text(0));
}

constexpr FilterRow kRows[] = {
    {"attr", AttrFilter},
    {"batch", BatchFilter},
    {"count", LengthFilter},
    {"d", DefaultFilter},
    {"default", DefaultFilter},
    {"dictsort", DictSortFilter},
    {"first", FirstFilter},
    {"groupby", GroupByFilter},
    {"items", ItemsFilter},
    {"join", JoinFilter},
    {"last", LastFilter},
    {"length", LengthFilter},
    {"list", ListFilter},
    {"map", MapFilter},
    {"max", ExtremeFilter<true>},
    {"min", ExtremeFilter<false>},
    {"reject", SelectFilter<false, false>},
    {"rejectattr", SelectFilter<false, true>},
    {"reverse", ReverseFilter},
    {"select", SelectFilter<true, false>},
    {"selectattr", SelectFilter<true, true>},
    {"slice", SliceFilter},
    {"sort", SortFilter},
    {"sum", SumFilter},
    {"unique", UniqueFilter},
};

}  // namespace

FilterFn FindSequenceFilter(std::string_view name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const FilterRow& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : row->fn;
}

FilterFn FindFilter(std::string_view name) {
  FilterFn filter = FindTextFilter(name);
  return filter != nullptr ? filter : FindSequenceFilter(name);
}

}  // namespace lucid::jinja
