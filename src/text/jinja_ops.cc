// See jinja_ops.h.
#include "text/jinja_ops.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_args.h"
#include "text/jinja_eval.h"
#include "text/jinja_methods.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace lucid::jinja {
namespace {

constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void BadOperands(BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::kAdd && left.IsString()) {
    Fail(ErrorKind::kType, "can only concatenate str (not \"{}\") to str", TypeName(right));
  }
  Fail(ErrorKind::kType, "unsupported operand type(s) for {}: '{}' and '{}'",
       kSymbols[static_cast<size_t>(op)], TypeName(left), TypeName(right));
}

[[noreturn]] void TooLarge() {
  Fail(ErrorKind::kLimit, "an integer is larger than the 126 bits that templates can use here");
}

[[noreturn]] void DivisionByZero() {
  Fail(ErrorKind::kValue, "division by zero");
}

Int Multiply(Int a, Int b) {
  if (std::fabs(static_cast<double>(a)) * std::fabs(static_cast<double>(b)) > 8e37) TooLarge();
  return a * b;
}

// Rounded to minus infinity, with the remainder in [0, b) or (b, 0].
void DivMod(Int a, Int b, Int* quotient, Int* remainder) {
  if (b == 0) DivisionByZero();
  *quotient = a / b;
  *remainder = a % b;
  if (*remainder != 0 && (*remainder < 0) != (b < 0)) {
    --*quotient;
    *remainder += b;
  }
}

double FloatMod(double a, double b) {
  double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

double FloatFloorDiv(double a, double b) {
  double r = std::fmod(a, b);
  double q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1.0;
  if (q == 0) return std::copysign(0.0, a / b);
  double floor = std::floor(q);
  return q - floor > 0.5 ? floor + 1.0 : floor;
}

Value FloatPower(double base, double exponent) {
  if (base == 0 && exponent < 0) {
    Fail(ErrorKind::kValue, "0.0 cannot be raised to a negative power");
  }
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) &&
      exponent != std::floor(exponent)) {
    Fail(ErrorKind::kType, "complex numbers are not supported");
  }
  double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    Fail(ErrorKind::kValue, "(34, 'Numerical result out of range')");
  }
  return Value::Float(result);
}

Value IntPower(Int base, Int exponent) {
  if (exponent < 0) return FloatPower(static_cast<double>(base), static_cast<double>(exponent));
  if (base == 0 || base == 1) return Value::OfInt(exponent == 0 ? 1 : base);
  if (base == -1) return Value::OfInt(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 127) TooLarge();
  Int result = 1;
  for (; exponent > 0; --exponent) result = Multiply(result, base);
  return Value::OfInt(result);
}

Value IntArithmetic(BinaryOp op, Int a, Int b) {
  Int quotient = 0;
  Int remainder = 0;
  switch (op) {
    case BinaryOp::kAdd:
      return Value::OfInt(a + b);  // both below 2^126: no overflow
    case BinaryOp::kSub:
      return Value::OfInt(a - b);
    case BinaryOp::kMul:
      return Value::OfInt(Multiply(a, b));
    case BinaryOp::kDiv:
      if (b == 0) DivisionByZero();
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDiv:
      DivMod(a, b, &quotient, &remainder);
      return Value::OfInt(quotient);
    case BinaryOp::kMod:
      DivMod(a, b, &quotient, &remainder);
      return Value::OfInt(remainder);
    case BinaryOp::kPow:
      return IntPower(a, b);
  }
  return Value::None();
}

Value FloatArithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSub:
      return Value::Float(a - b);
    case BinaryOp::kMul:
      return Value::Float(a * b);
    case BinaryOp::kDiv:
      if (b == 0) DivisionByZero();
      return Value::Float(a / b);
    case BinaryOp::kFloorDiv:
      if (b == 0) DivisionByZero();
      return Value::Float(FloatFloorDiv(a, b));
    case BinaryOp::kMod:
      if (b == 0) DivisionByZero();
      return Value::Float(FloatMod(a, b));
    case BinaryOp::kPow:
      return FloatPower(a, b);
  }
  return Value::None();
}

Value Concatenate(Interp& interp, const Value& left, const Value& right) {
  interp.budget().Bytes(left.text().size() + right.text().size());
  if (left.str().markup || right.str().markup) {
    return interp.MakeString(EscapeUnlessMarkup(interp, left) + EscapeUnlessMarkup(interp, right),
                             true);
  }
  return interp.MakeString(left.text() + right.text());
}

Value Repeat(Interp& interp, const Value& sequence, Int times) {
  uint64_t count = ClampSize(times);
  if (sequence.IsString()) {
    const std::string& unit = sequence.text();
    uint64_t total = 0;
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(unit.size()), &total))
      total = UINT64_MAX;
    interp.budget().Bytes(total);
    std::string out;
    out.reserve(total);
    for (uint64_t i = 0; i < count && !unit.empty(); ++i) out += unit;
    return Value::String(std::move(out), sequence.str().markup);
  }
  const std::vector<Value>& unit = sequence.items();
  uint64_t total = 0;
  if (__builtin_mul_overflow(count, sizeof(Value) * unit.size(), &total)) total = UINT64_MAX;
  interp.budget().Bytes(total);
  std::vector<Value> out;
  for (uint64_t i = 0; i < count && !unit.empty(); ++i) {
    out.insert(out.end(), unit.begin(), unit.end());
  }
  return sequence.is(Kind::kList) ? Value::List(std::move(out)) : Value::Tuple(std::move(out));
}

bool Repeatable(const Value& value) {
  return value.IsString() || value.IsSequence();
}

// Start, stop and step of a slice of `length` items, clipped as Python's slice.indices does.
struct SliceBounds {
  Int start, stop, step;
};

Int SliceIndex(const Value& value) {
  if (value.IsUndefined() || !value.IsIntegral()) {
    Fail(ErrorKind::kType, "slice indices must be integers or None");
  }
  return value.int_value();
}

SliceBounds Clip(Int length, const Value& start, const Value& stop, const Value& step) {
  SliceBounds bounds{0, length, 1};
  // A step longer than any sequence here selects the same items, and cannot overflow.
  constexpr Int kLongStep = Int{1} << 40;
  if (!step.is(Kind::kNone)) bounds.step = std::clamp(SliceIndex(step), -kLongStep, kLongStep);
  if (bounds.step == 0) Fail(ErrorKind::kValue, "slice step cannot be zero");
  bool back = bounds.step < 0;
  Int low = back ? -1 : 0;
  Int high = back ? length - 1 : length;
  auto clip = [&](const Value& value, Int fallback) {
    if (value.is(Kind::kNone)) return fallback;
    Int i = SliceIndex(value);
    if (i < 0) i += length;
    return std::clamp(i, low, std::max(low, high));
  };
  bounds.start = clip(start, back ? high : low);
  bounds.stop = clip(stop, back ? low : high);
  return bounds;
}

template <typename Fn>
void ForEachIndex(const SliceBounds& bounds, const Fn& fn) {
  Int i = bounds.start;
  while (bounds.step > 0 ? i < bounds.stop : i > bounds.stop) {
    fn(static_cast<size_t>(i));
    i += bounds.step;
  }
}

Value SliceString(Interp& interp, const Value& object, const SliceBounds& bounds) {
  const StringObj& str = object.str();
  std::string out;
  if (bounds.step == 1) {
    if (bounds.start < bounds.stop) {
      auto first = static_cast<size_t>(bounds.start);
      auto last = static_cast<size_t>(bounds.stop);
      size_t begin = str.ascii() ? first : ByteOffset(str.text, first);
      size_t end = str.ascii()
                       ? last
                       : begin + ByteOffset(std::string_view(str.text).substr(begin), last - first);
      out = str.text.substr(begin, end - begin);
    }
  } else if (str.ascii()) {
    ForEachIndex(bounds, [&](size_t i) { out.push_back(str.text[i]); });
  } else {
    interp.budget().Bytes(str.text.size() * 4);
    auto pieces = SplitCodePoints(str.text);
    ForEachIndex(bounds, [&](size_t i) { out.append(pieces[i]); });
  }
  return interp.MakeString(std::move(out), str.markup);
}

Value SliceRange(const RangeObj& range, const SliceBounds& bounds) {
  auto result = std::make_shared<RangeObj>();
  result->start = range.start + bounds.start * range.step;
  result->stop = range.start + bounds.stop * range.step;
  result->step = range.step * bounds.step;
  if (result->step > kRangeLimit || result->step < -kRangeLimit) {
    Fail(ErrorKind::kLimit, "a range has too large a step");
  }
  return Value::Of(Kind::kRange, std::move(result));
}

bool IndexOf(const Value& index, size_t length, size_t* at) {
  if (!index.IsIntegral()) return false;
  Int i = index.int_value();
  auto n = static_cast<Int>(length);
  if (i < 0) i += n;
  if (i < 0 || i >= n) return false;
  *at = static_cast<size_t>(i);
  return true;
}

bool InRange(const RangeObj& range, const Value& item) {
  if (!item.IsNumber()) return false;
  if (item.is(Kind::kFloat) && item.AsDouble() != std::floor(item.AsDouble())) return false;
  if (std::fabs(item.AsDouble()) > 1e18) return false;
  Int i = item.is(Kind::kFloat) ? static_cast<Int>(item.AsDouble()) : item.int_value();
  Int offset = i - range.start;
  if (offset % range.step != 0) return false;
  Int at = offset / range.step;
  return at >= 0 && at < static_cast<Int>(range.Length());
}

}  // namespace

std::string EscapeUnlessMarkup(Interp& interp, const Value& value) {
  if (value.IsString() && value.str().markup) return value.text();
  std::string text = Str(value, interp.budget());
  interp.budget().Bytes(text.size() * 5);
  return EscapeHtml(text);
}

Value Arithmetic(Interp& interp, BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::kMod && left.IsString()) return PercentFormat(interp, left, right);
  if (left.IsUndefined()) FailUndefined(left);
  if (right.IsUndefined()) FailUndefined(right);
  if (left.IsIntegral() && right.IsIntegral()) {
    return IntArithmetic(op, left.int_value(), right.int_value());
  }
  if (left.IsNumber() && right.IsNumber()) {
    return FloatArithmetic(op, left.AsDouble(), right.AsDouble());
  }
  if (op == BinaryOp::kAdd && left.IsString() && right.IsString()) {
    return Concatenate(interp, left, right);
  }
  if (op == BinaryOp::kAdd && left.IsSequence() && left.kind() == right.kind()) {
    std::vector<Value> items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    interp.budget().Bytes(items.size() * sizeof(Value));
    return left.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
  }
  if (op == BinaryOp::kMul && Repeatable(left) && right.IsIntegral()) {
    return Repeat(interp, left, right.int_value());
  }
  if (op == BinaryOp::kMul && Repeatable(right) && left.IsIntegral()) {
    return Repeat(interp, right, left.int_value());
  }
  BadOperands(op, left, right);
}

Value Negate(const Value& value) {
  if (value.IsUndefined()) FailUndefined(value);
  if (value.IsIntegral()) return Value::OfInt(-value.int_value());
  if (value.is(Kind::kFloat)) return Value::Float(-value.AsDouble());
  Fail(ErrorKind::kType, "bad operand type for unary -: '{}'", TypeName(value));
}

bool Contains(Interp& interp, const Value& container, const Value& item) {
  Budget& budget = interp.budget();
  switch (container.kind()) {
    case Kind::kString:
      if (!item.IsString()) {
        Fail(ErrorKind::kType, "'in <string>' requires string as left operand, not {}",
             TypeName(item));
      }
      budget.Step(container.text().size() / 64);
      return container.text().find(item.text()) != std::string::npos;
    case Kind::kDict:
      return container.dict().Find(item, budget) != nullptr;
    case Kind::kRange:
      return InRange(container.as<RangeObj>(), item);
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kFunction:
    case Kind::kMacro:
    case Kind::kCycler:
    case Kind::kJoiner:
      Fail(ErrorKind::kType, "argument of type '{}' is not iterable", TypeName(container));
    default: {
      if (container.is(Kind::kView) && container.as<ViewObj>().mode == ViewObj::kKeys) {
        return container.as<ViewObj>().dict->Find(item, budget) != nullptr;
      }
      auto iterator = interp.Iterate(container);
      Value candidate;
      while (iterator->next(&candidate)) {
        if (Equal(candidate, item, budget)) return true;
      }
      return false;
    }
  }
}

bool Compare(Interp& interp, CompareOp op, const Value& left, const Value& right) {
  Budget& budget = interp.budget();
  switch (op) {
    case CompareOp::kEq:
      return Equal(left, right, budget);
    case CompareOp::kNe:
      return !Equal(left, right, budget);
    case CompareOp::kLt:
      return Less(left, right, budget, "<");
    case CompareOp::kGt:
      return Less(right, left, budget, ">");
    case CompareOp::kLe:
    case CompareOp::kGe: {
      bool le = op == CompareOp::kLe;
      const Value& low = le ? left : right;
      const Value& high = le ? right : left;
      return Less(low, high, budget, le ? "<=" : ">=") || Equal(low, high, budget);
    }
    case CompareOp::kIn:
      return Contains(interp, right, left);
    case CompareOp::kNotIn:
      return !Contains(interp, right, left);
  }
  return false;
}

Value SliceOf(Interp& interp, const Value& object, const Value& start, const Value& stop,
              const Value& step) {
  if (object.IsUndefined()) FailUndefined(object);
  bool known = object.IsString() || object.IsSequence() || object.is(Kind::kRange);
  if (!known) {
    Fail(ErrorKind::kType, "'{}' object cannot be sliced", TypeName(object));
  }
  auto bounds = Clip(static_cast<Int>(*LengthOf(object)), start, stop, step);
  if (object.IsString()) return SliceString(interp, object, bounds);
  if (object.is(Kind::kRange)) return SliceRange(object.as<RangeObj>(), bounds);
  std::vector<Value> items;
  ForEachIndex(bounds, [&](size_t i) { items.push_back(object.items()[i]); });
  interp.budget().Bytes(items.size() * sizeof(Value));
  return object.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

bool Subscript(Interp& interp, const Value& object, const Value& index, Value* result) {
  size_t at = 0;
  switch (object.kind()) {
    case Kind::kString: {
      const StringObj& str = object.str();
      if (!IndexOf(index, str.code_points, &at)) return false;
      size_t begin = str.ascii() ? at : ByteOffset(str.text, at);
      if (!str.ascii()) interp.budget().Step(begin / 64);
      size_t n = 0;
      DecodeAt(str.text, begin, &n);
      *result = Value::String(str.text.substr(begin, n), str.markup);
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (!IndexOf(index, object.items().size(), &at)) return false;
      *result = object.items()[at];
      return true;
    case Kind::kRange:
      if (!IndexOf(index, object.as<RangeObj>().Length(), &at)) return false;
      *result = object.as<RangeObj>().At(at);
      return true;
    case Kind::kDict: {
      if (index.is(Kind::kList) || index.is(Kind::kDict)) return false;  // unhashable: TypeError
      const Value* found = object.dict().Find(index, interp.budget());
      if (found == nullptr) return false;
      *result = *found;
      return true;
    }
    default:
      return false;
  }
}

}  // namespace lucid::jinja
