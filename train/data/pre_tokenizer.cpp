#define PCRE2_CODE_UNIT_WIDTH 8
#include "train/data/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/error.h"
#include "train/data/utf8.h"

namespace xtrain {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

// PCRE2's own \s also holds U+180E, which Unicode has not counted as a space since version 6.3.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// The pattern with \s and, outside of brackets, \S spelt out.
std::string spell_out_spaces(std::string_view pattern) {
  std::string out;
  bool in_brackets = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view two = pattern.substr(i, 2);
    if (two == R"(\s)") {
      out += in_brackets ? text(kWhiteSpace) : text('[', kWhiteSpace, ']');
      ++i;
    } else if (two == R"(\S)" && !in_brackets) {
      out += text("[^", kWhiteSpace, ']');
      ++i;
    } else if (two[0] == '\\') {
      out += two;
      ++i;
    } else {
      in_brackets = two[0] == '[' || (in_brackets && two[0] != ']');
      out += two[0];
    }
  }
  return out;
}

constexpr std::array<bool, 256> kAsciiLetter = [] {
  std::array<bool, 256> letters{};
  for (size_t c = 'a'; c <= 'z'; ++c) letters[c] = letters[c - 'a' + 'A'] = true;
  return letters;
}();

// End of the plain word, " ?[A-Za-z]+" before another ASCII character or the end, at `begin`;
// `begin` where none stands there. In all three known patterns such a word is a piece.
size_t plain_word_end(std::string_view text, size_t begin) {
  const size_t letters = begin + (text[begin] == ' ' ? 1 : 0);
  size_t end = letters;
  while (end < text.size() && kAsciiLetter[static_cast<unsigned char>(text[end])]) ++end;
  const bool plain = end > letters && (end == text.size() || (text[end] & 0x80) == 0);
  return plain ? end : begin;
}

std::string pcre_message(int error) {
  std::array<PCRE2_UCHAR, 256> message{};
  pcre2_get_error_message(error, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeContext>;

// Steps that a match may take. PCRE2's own limit is too low for a run of ten million spaces; one in
// proportion to the text still ends a pattern that would take for ever.
MatchContext step_limit(size_t text_bytes) {
  constexpr size_t kUsual = 10'000'000, kStepsPerByte = 100;
  if (text_bytes < kUsual / kStepsPerByte) return nullptr;
  MatchContext context(pcre2_match_context_create(nullptr));
  check(context != nullptr, "pre-tokenizer: out of memory");
  pcre2_set_match_limit(context.get(), static_cast<uint32_t>(std::min<size_t>(
                                           kStepsPerByte * text_bytes, UINT32_MAX)));
  return context;
}

}  // namespace

struct PreTokenizer::Compiled {
  std::unique_ptr<pcre2_code, FreeCode> code;
  bool jit = false;          // compiled to machine code, where PCRE2 can for this machine
  bool plain_words = false;  // plain_word_end holds for the pattern

  void split_valid(std::string_view text, size_t offset, pcre2_match_data* match,
                   pcre2_match_context* context, std::vector<size_t>& ends) const;
};

PreTokenizer::PreTokenizer(std::string_view pattern, std::string_view where) : pattern_(pattern) {
  const std::string spelt = spell_out_spaces(pattern);
  auto compiled = std::make_shared<Compiled>();
  int error = 0;
  size_t place = 0;
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelt.data()), spelt.size(),
                                     PCRE2_UTF | PCRE2_UCP, &error, &place, nullptr));
  check_input(compiled->code != nullptr, where,
              ": the pattern cannot be compiled: ", pcre_message(error));
  compiled->jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  compiled->plain_words =
      pattern == kGpt2Pattern || pattern == kQwen2Pattern || pattern == kLlama3Pattern;
  compiled_ = std::move(compiled);
}

// `text` is valid UTF-8; ends count from `offset` bytes before it.
void PreTokenizer::Compiled::split_valid(std::string_view text, size_t offset,
                                         pcre2_match_data* match, pcre2_match_context* context,
                                         std::vector<size_t>& ends) const {
  const auto run = jit ? pcre2_jit_match : pcre2_match;
  const uint32_t options = PCRE2_NOTEMPTY | (jit ? 0u : PCRE2_NO_UTF_CHECK);
  const size_t* found = pcre2_get_ovector_pointer(match);
  for (size_t at = 0; at < text.size();) {
    const size_t word_end = plain_words ? plain_word_end(text, at) : at;
    if (word_end > at) {
      ends.push_back(offset + (at = word_end));
      continue;
    }
    const int result = run(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                           options, match, context);
    check(result >= 0 || result == PCRE2_ERROR_NOMATCH,
          "pre-tokenizer: the pattern fails on a text of ", text.size(),
          " bytes: ", pcre_message(result));
    const size_t begin = result >= 0 ? found[0] : text.size();
    if (begin > at) ends.push_back(offset + begin);
    if (result >= 0) ends.push_back(offset + found[1]);
    at = result >= 0 ? found[1] : text.size();
  }
}

void PreTokenizer::split(std::string_view text, std::vector<size_t>& ends) const {
  const Match match(pcre2_match_data_create(1, nullptr));
  const MatchContext context = step_limit(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t valid = valid_utf8_length(text.substr(at));
    compiled_->split_valid(text.substr(at, valid), at, match.get(), context.get(), ends);
    at += valid;
    const size_t invalid = at;
    while (at < text.size() && utf8_character_length(text.substr(at)) == 0) ++at;
    if (at > invalid) ends.push_back(at);
  }
}

}  // namespace xtrain
