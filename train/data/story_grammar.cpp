#include "train/data/story_grammar.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/error.h"

namespace xtrain {
namespace {

using Rule = StoryGrammar::Rule;
using Piece = StoryGrammar::Piece;

constexpr double kFamiliarity = 8;

std::string_view trim(std::string_view s) {
  const size_t first = s.find_first_not_of(" \n");
  return first == std::string_view::npos ? ""
                                         : s.substr(first, s.find_last_not_of(" \n") + 1 - first);
}

std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = s.find(separator)) != std::string_view::npos; s.remove_prefix(end + 1)) {
    parts.push_back(trim(s.substr(0, end)));
  }
  parts.push_back(trim(s));
  return parts;
}

bool is_upper(char c) {
  return std::isupper(static_cast<unsigned char>(c)) != 0;
}

std::string uncapitalized(std::string_view s) {
  std::string word(s);
  if (!word.empty()) word[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(word[0])));
  return word;
}

// The position of a name in a list that grows to hold it.
int intern(std::vector<std::string>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  const int index = static_cast<int>(found - names.begin());
  if (found == names.end()) names.emplace_back(name);
  return index;
}

// Joins the indented lines of a rule; a line break is written \n and takes no spaces around it.
std::string joined_lines(std::string_view block) {
  std::string line;
  for (const char c : block) {
    if (c != '\n' && !(c == ' ' && (line.empty() || line.back() == ' ' || line.back() == '\n'))) {
      line.push_back(c);
    } else if (!line.empty() && line.back() != ' ' && line.back() != '\n') {
      line.push_back(' ');
    }
    if (line.ends_with("\\n")) {
      line.resize(line.size() - 2);
      if (line.ends_with(' ')) line.pop_back();
      line.push_back('\n');
    }
  }
  return line;
}

void set_probabilities(Rule& rule, bool familiar_first) {
  std::vector<double>& cumulative = rule.cumulative;
  double total = 0;
  for (size_t i = 0; i < rule.alternatives.size(); ++i) {
    total += familiar_first ? 1 / (static_cast<double>(i) + kFamiliarity) : 1;
    cumulative.push_back(total);
  }
  for (double& value : cumulative) value /= total;
  for (size_t i = 0; i < cumulative.size(); ++i) {
    rule.alternatives[i].nats = -std::log(cumulative[i] - (i > 0 ? cumulative[i - 1] : 0));
  }
}

// Takes "{a=b; c=d}" off the end of `s`.
std::string_view take_attributes(std::string_view& s) {
  if (!s.ends_with('}')) return "";
  const size_t open = s.find('{');
  check(open != std::string_view::npos, "story grammar: { is missing in: ", s);
  const std::string_view inside = s.substr(open + 1, s.size() - open - 2);
  s = trim(s.substr(0, open));
  return inside;
}

void add_attributes(std::string_view list, std::vector<std::string>& names,
                    std::vector<StoryGrammar::Attribute>& attributes) {
  if (list.empty()) return;
  for (const std::string_view entry : split(list, ';')) {
    const size_t equals = entry.find('=');
    check(equals != std::string_view::npos, "story grammar: = is missing in {", list, "}");
    attributes.push_back({intern(names, trim(entry.substr(0, equals))),
                          std::string(trim(entry.substr(equals + 1)))});
  }
}

}  // namespace

StoryGrammar::StoryGrammar(std::string_view text) {
  // Draws may name later rules, so the names come first.
  std::vector<std::string> blocks;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == ' ') {
      check(!blocks.empty(),
            "story grammar: a rule must begin at the start of a line; got: ", line);
      blocks.back() += "\n" + std::string(line);
    } else {
      blocks.emplace_back(line);
      rules_.push_back({std::string(line.substr(0, line.find_first_of(" :{~"))), {}, {}});
    }
  }
  for (const std::string& block : blocks) parse_rule(block);
}

int StoryGrammar::rule_index(std::string_view name) const {
  const auto found =
      std::find_if(rules_.begin(), rules_.end(), [&](const Rule& r) { return r.name == name; });
  check(found != rules_.end(), "story grammar: there is no rule \"", name, "\"");
  return static_cast<int>(found - rules_.begin());
}

void StoryGrammar::parse_rule(std::string_view block) {
  const size_t colon = block.find(':');
  check(colon != std::string_view::npos, "story grammar: : is missing in: ", block);
  std::string_view head = trim(block.substr(0, colon));
  const bool familiar_first = head.ends_with('~');
  if (familiar_first) head = trim(head.substr(0, head.size() - 1));
  std::vector<Attribute> shared;
  add_attributes(take_attributes(head), attribute_names_, shared);
  Rule& rule = rules_[static_cast<size_t>(rule_index(head))];
  check(rule.alternatives.empty(), "story grammar: there are two rules \"", head, "\"");
  const std::string line = joined_lines(block.substr(colon + 1));
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = line.find('|', begin);
    std::string_view one = std::string_view(line).substr(begin, end - begin);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one.starts_with('@')) {
      const Rule& other = this->rule(rule_index(one.substr(1)));
      check(!other.alternatives.empty(), "story grammar: ", one, " must come after its rule");
      for (const Alternative& a : other.alternatives) rule.alternatives.push_back(a);
    } else {
      Alternative alternative = parse_alternative(one);
      alternative.attributes.insert(alternative.attributes.end(), shared.begin(), shared.end());
      rule.alternatives.push_back(std::move(alternative));
    }
  }
  set_probabilities(rule, familiar_first);
}

StoryGrammar::Alternative StoryGrammar::parse_alternative(std::string_view text) {
  check(!text.empty(), "story grammar: an alternative must not be empty");
  Alternative alternative;
  add_attributes(take_attributes(text), attribute_names_, alternative.attributes);
  while (!text.empty()) {
    size_t length;
    if (text[0] == '[' || text[0] == '<') {
      length = text.find(text[0] == '[' ? ']' : '>') + 1;
      check(length > 0, "story grammar: a bracket is not closed in: ", text);
      const std::string_view inside = text.substr(1, length - 2);
      alternative.pieces.push_back(text[0] == '[' ? parse_draw(inside) : parse_recall(inside));
    } else if (text.starts_with("a/an ") || text.starts_with("A/an ")) {
      length = 5;
      alternative.pieces.push_back({Piece::Kind::article, ""});
      alternative.pieces.back().capital = text[0] == 'A';
    } else {
      length =
          std::min({text.find_first_of("[<"), text.find("a/an "), text.find("A/an "), text.size()});
      alternative.pieces.push_back({Piece::Kind::literal, std::string(text.substr(0, length))});
    }
    text.remove_prefix(length);
  }
  return alternative;
}

StoryGrammar::Piece StoryGrammar::parse_draw(std::string_view inside) {
  Piece piece{Piece::Kind::draw, ""};
  if (const size_t colon = inside.find(':'); colon != std::string_view::npos) {
    piece.remember = intern(variable_names_, inside.substr(0, colon));
    inside.remove_prefix(colon + 1);
  }
  piece.capital = !inside.empty() && is_upper(inside[0]);
  if (const size_t dot = inside.find('.'); dot != std::string_view::npos) {
    piece.variable = intern(variable_names_, uncapitalized(inside.substr(0, dot)));
    piece.attribute = intern(attribute_names_, inside.substr(dot + 1));
  } else {
    piece.rule = rule_index(uncapitalized(inside));
  }
  return piece;
}

StoryGrammar::Piece StoryGrammar::parse_recall(std::string_view inside) {
  Piece piece{Piece::Kind::recall, ""};
  const size_t dot = inside.find('.');
  const std::string_view last = dot == std::string_view::npos ? inside : inside.substr(dot + 1);
  piece.capital = !last.empty() && is_upper(last[0]);
  piece.variable = intern(variable_names_, uncapitalized(inside.substr(0, dot)));
  if (dot != std::string_view::npos)
    piece.attribute = intern(attribute_names_, uncapitalized(last));
  return piece;
}

Telling::Telling(const StoryGrammar& grammar)
    : grammar_(&grammar), memories_(grammar.variables().size()) {
  open_ = &grammar.rule(grammar.rule_index("story"));
  if (open_->alternatives.size() == 1) take(0);
}

const Rule* Telling::advance(std::string& text) {
  while (!open_ && !frames_.empty()) {
    Frame& frame = frames_.back();
    if (frame.next == frame.pieces->size()) {
      frames_.pop_back();
      continue;
    }
    const Piece& piece = (*frame.pieces)[frame.next++];
    if (piece.kind == Piece::Kind::article) {
      article_ = true;
      capital_article_ = piece.capital;
      continue;
    }
    capital_ = capital_ || piece.capital;
    if (piece.kind == Piece::Kind::literal) {
      tell(piece.text, text);
    } else if (piece.kind == Piece::Kind::recall) {
      tell(recalled(piece), text);
    } else {
      open_ = &grammar_->rule(piece.rule >= 0 ? piece.rule : grammar_->rule_index(recalled(piece)));
      remember_ = piece.remember;
      if (open_->alternatives.size() == 1) take(0);  // no choice
    }
  }
  return open_;
}

void Telling::take(int alternative) {
  check(open_ && alternative >= 0 && alternative < static_cast<int>(open_->alternatives.size()),
        "telling: alternative ", alternative, " is not open");
  const auto& chosen = open_->alternatives[static_cast<size_t>(alternative)];
  if (remember_ >= 0) memories_[static_cast<size_t>(remember_)] = {&chosen, ""};
  frames_.push_back({&chosen.pieces, 0, remember_});
  open_ = nullptr;
  remember_ = -1;
}

void Telling::tell(std::string_view words, std::string& text) {
  if (words.empty()) return;
  for (const Frame& frame : frames_) {
    if (frame.remember >= 0) memories_[static_cast<size_t>(frame.remember)].text += words;
  }
  if (article_) {
    const bool vowel = std::string_view("aeiouAEIOU").find(words[0]) != std::string_view::npos;
    text += capital_article_ ? "A" : "a";
    text += vowel ? "n " : " ";
  }
  const size_t first = text.size();
  text += words;
  if (capital_) {
    text[first] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[first])));
  }
  article_ = capital_ = false;
}

const std::string& Telling::recalled(const Piece& piece) const {
  const Memory& memory = memories_[static_cast<size_t>(piece.variable)];
  const std::string& name = grammar_->variables()[static_cast<size_t>(piece.variable)];
  check(memory.alternative, "story grammar: <", name, "> is told before it is drawn");
  if (piece.attribute < 0) return memory.text;
  for (const auto& attribute : memory.alternative->attributes) {
    if (attribute.name == piece.attribute) return attribute.text;
  }
  fail("story grammar: <", name, "> is \"", memory.text, "\", which has no attribute \"",
       grammar_->attributes()[static_cast<size_t>(piece.attribute)], "\"");
}

}  // namespace xtrain
