#include "train/data/plain_pickle.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "train/data/utf8.h"

namespace xtrain {
namespace {

using Json = nlohmann::json;

// A text may be referred to often; a small file must not become a large one.
constexpr size_t kMostText = size_t{1} << 26;
constexpr int kDeepest = 8;

// On the machine's stack.
struct Item {
  Json value;
  bool mark = false;
  int depth = 0;  // of lists and dictionaries
};

class PickleMachine {
 public:
  PickleMachine(std::string_view pickle, const std::string& where)
      : pickle_(pickle), where_(where) {}

  Json run() {
    for (;;) {
      const int instruction = static_cast<unsigned char>(take(1)[0]);
      if (instruction == '.') break;
      execute(instruction);
    }
    require(stack_.size() == 1 && !stack_[0].mark && at_ == pickle_.size(),
            "must end with one value");
    return std::move(stack_[0].value);
  }

 private:
  void require(bool holds, const char* what) const {
    check_input(holds, where_, ": is a damaged pickle: it ", what, "; at byte ", at_);
  }

  std::string_view take(uint64_t count) {
    check_input(count <= pickle_.size() - at_, where_, ": is a pickle that is cut short: byte ",
                at_, " should be followed by ", count, " more; there are ", pickle_.size() - at_);
    const std::string_view bytes = pickle_.substr(at_, count);
    at_ += count;
    return bytes;
  }

  uint64_t number(int bytes) {
    uint64_t value = 0;
    int shift = 0;
    for (const char c : take(static_cast<uint64_t>(bytes))) {
      value |= uint64_t{static_cast<unsigned char>(c)} << shift;
      shift += 8;
    }
    return value;
  }

  // Up to eight bytes, of which the last has the sign.
  int64_t signed_number(int bytes) {
    require(bytes <= 8, "has a number beyond 64 bits");
    const uint64_t value = number(bytes);
    const bool negative = bytes > 0 && (value >> (8 * bytes - 1)) != 0;
    return static_cast<int64_t>(negative && bytes < 8 ? value | (~uint64_t{0} << (8 * bytes))
                                                      : value);
  }

  void execute(int instruction) {
    switch (instruction) {
      case 0x80:  // PROTO
        return check_protocol(number(1));
      case 0x95:  // FRAME
        return (void)take(8);
      case '(':  // MARK
        stack_.push_back({nullptr, true});
        return;
      case '}':  // EMPTY_DICT
        return push(Json::object(), 1);
      case ']':  // EMPTY_LIST
        return push(Json::array(), 1);
      case 'N':  // NONE
        return push(nullptr);
      case 0x88:  // NEWTRUE
        return push(true);
      case 0x89:  // NEWFALSE
        return push(false);
      case 'K':  // BININT1
        return push(number(1));
      case 'M':  // BININT2
        return push(number(2));
      case 'J':  // BININT
        return push(signed_number(4));
      case 0x8A:  // LONG1
        return push(signed_number(static_cast<int>(number(1))));
      case 0x8C:  // SHORT_BINUNICODE
        return push_text(number(1));
      case 'X':  // BINUNICODE
        return push_text(number(4));
      case 0x8D:  // BINUNICODE8
        return push_text(number(8));
      case 0x94:  // MEMOIZE
        return remember(memo_.size());
      case 'q':  // BINPUT
        return remember(number(1));
      case 'r':  // LONG_BINPUT
        return remember(number(4));
      case 'h':  // BINGET
        return recall(number(1));
      case 'j':  // LONG_BINGET
        return recall(number(4));
      case 's':  // SETITEM
        return fill_dictionary(stack_.size() < 2 ? 0 : stack_.size() - 2);
      case 'u':  // SETITEMS
        return fill_dictionary(behind_mark());
      case 'a':  // APPEND
        return fill_list(stack_.empty() ? 0 : stack_.size() - 1);
      case 'e':  // APPENDS
        return fill_list(behind_mark());
      default:
        reject_input(where_, ": byte ", at_ - 1, " has the instruction ", instruction,
                     "; only pickles of protocol 2 to 5 that hold numbers, text, lists and "
                     "dictionaries are read");
    }
  }

  void check_protocol(uint64_t protocol) const {
    check_input(protocol >= 2 && protocol <= 5, where_, ": is a pickle of protocol ", protocol,
                "; it must be one of 2 to 5");
  }

  void push(Json value, int depth = 0) { stack_.push_back({std::move(value), false, depth}); }

  void push_text(uint64_t bytes) {
    const std::string_view text = take(bytes);
    require(valid_utf8_length(text) == text.size(), "holds text that is not UTF-8");
    count_text(text.size());
    push(std::string(text));
  }

  void count_text(size_t bytes) {
    text_ += bytes;
    require(text_ <= kMostText, "has more text than a vocabulary can");
  }

  void remember(uint64_t place) {
    require(!stack_.empty() && !stack_.back().mark, "remembers a value that is not there");
    const Item& top = stack_.back();
    memo_[place] = top.depth == 0 ? top.value : Json::array();
    if (top.value.is_string()) count_text(top.value.get_ref<const std::string&>().size());
  }

  void recall(uint64_t place) {
    const auto found = memo_.find(place);
    require(found != memo_.end(), "refers to a value that is not there");
    require(!found->second.is_structured(), "has one list or dictionary in two places");
    if (found->second.is_string()) {
      count_text(found->second.get_ref<const std::string&>().size());
    }
    push(found->second);
  }

  // The place behind the last mark, which is taken away.
  size_t behind_mark() {
    size_t place = stack_.size();
    while (place > 0 && !stack_[place - 1].mark) --place;
    require(place > 0, "has no mark where it needs one");
    stack_.erase(stack_.begin() + static_cast<std::ptrdiff_t>(place) - 1);
    return place - 1;
  }

  // What the items from `first` on go into: the one before them.
  Item& container(size_t first, bool is_dictionary) {
    require(first >= 1 && first <= stack_.size(), "fills what is not there");
    Item& item = stack_[first - 1];
    require(is_dictionary ? item.value.is_object() : item.value.is_array() && item.depth > 0,
            "fills what is no list or dictionary");
    for (size_t i = first; i < stack_.size(); ++i) {
      require(!stack_[i].mark, "has a mark among values");
      item.depth = std::max(item.depth, stack_[i].depth + 1);
    }
    require(item.depth <= kDeepest, "is nested too deeply");
    return item;
  }

  void fill_list(size_t first) {
    Item& list = container(first, false);
    for (size_t i = first; i < stack_.size(); ++i) list.value.push_back(std::move(stack_[i].value));
    stack_.resize(first);
  }

  void fill_dictionary(size_t first) {
    Item& dictionary = container(first, true);
    require((stack_.size() - first) % 2 == 0, "has a key without a value");
    for (size_t i = first; i < stack_.size(); i += 2) {
      const Json& key = stack_[i].value;
      require(key.is_string() || key.is_number_integer(), "has a key that is no text or number");
      const std::string name = key.is_string() ? key.get<std::string>() : key.dump();
      require(dictionary.value.emplace(name, std::move(stack_[i + 1].value)).second,
              "has a key twice");
    }
    stack_.resize(first);
  }

  std::string_view pickle_;
  const std::string& where_;
  size_t at_ = 0;
  size_t text_ = 0;  // bytes held so far
  std::vector<Item> stack_;
  std::map<uint64_t, Json> memo_;
};

}  // namespace

std::string json_of_pickle(std::string_view pickle, const std::string& where) {
  return PickleMachine(pickle, where).run().dump();
}

}  // namespace xtrain
