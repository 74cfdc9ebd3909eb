#pragma once
// A grammar that remembers: the language in which the built-in stories are written.
//
// A grammar is a list of rules, each with a name and alternatives:
//
//   name {attribute=text; ...} ~: alternative {attribute=text; ...} | alternative | ...
//
// A rule begins at the start of a line and goes on over indented lines; # begins a comment line.
// The braces and the ~ may be left out. The alternatives of a rule are equally probable; with ~ the
// earlier are more familiar: alternative i = 0, 1, ... has a probability proportional to 1 / (i +
// 8). Attributes of a rule are those of all its alternatives. In an alternative,
//
//   [rule]        draws an alternative of the rule and tells it
//   [x:rule]      does so and remembers it as x
//   [x:y.attr]    the same; the rule is the one that the attribute of y names
//   <x>           tells again what was remembered as x
//   <x.attr>      tells its attribute
//   a/an          is "a" or "an", as the next letter asks
//   \n            is a line break
//   @rule         (alone) stands for all alternatives of an earlier rule, with their attributes
//
// and [Rule], [x:Rule], <X>, <x.Attr> begin with a capital letter.
//
// What a story informs of. Choices are drawn where their text begins, and in a sound grammar the
// alternatives that are open at such a place differ in the text that they go on with up to the next
// choice, none being the beginning of another. So a reader who knows the grammar recovers every
// choice from left to right, two different sequences of choices never give the same text, and the
// probability of a text is exactly the product of the probabilities of its choices. The tests check
// this property for the built-in grammar. It is what makes the entropy of the stories known.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xtrain {

class StoryGrammar {
 public:
  struct Attribute {
    int name;
    std::string text;
  };

  // A piece of an alternative: something to tell.
  struct Piece {
    enum class Kind { literal, article, recall, draw };
    Kind kind;
    std::string text;    // literal
    int rule = -1;       // draw: this rule, or if -1 the one named by the variable's attribute
    int variable = -1;   // recall, draw
    int attribute = -1;  // recall, draw; -1: the remembered text
    int remember = -1;   // draw: variable to remember it as, or -1
    bool capital = false;
  };

  struct Alternative {
    std::vector<Piece> pieces;
    std::vector<Attribute> attributes;
    double nats = 0;  // -log(probability)
  };

  struct Rule {
    std::string name;
    std::vector<Alternative> alternatives;
    std::vector<double> cumulative;  // probability of alternatives 0..i
  };

  // Throws Error, quoting the place, for text that is not a grammar. Rule `story` is the start.
  explicit StoryGrammar(std::string_view text);

  const Rule& rule(int index) const { return rules_[static_cast<size_t>(index)]; }
  int rules() const { return static_cast<int>(rules_.size()); }
  int rule_index(std::string_view name) const;  // throws Error if there is none
  const std::vector<std::string>& variables() const { return variable_names_; }
  const std::vector<std::string>& attributes() const { return attribute_names_; }

 private:
  void parse_rule(std::string_view block);
  Alternative parse_alternative(std::string_view text);
  Piece parse_draw(std::string_view inside);
  Piece parse_recall(std::string_view inside);

  std::vector<Rule> rules_;
  std::vector<std::string> variable_names_, attribute_names_;
};

// The grammar of the built-in stories.
const StoryGrammar& built_in_stories();

// One telling in progress. advance() and take() alternate until advance() returns null:
//
//   while (const auto* open = telling.advance(text)) telling.take(some alternative of *open);
class Telling {
 public:
  explicit Telling(const StoryGrammar& grammar);

  // Appends what needs no choice, up to the next choice, and returns the rule that is open there.
  const StoryGrammar::Rule* advance(std::string& text);

  // Chooses an alternative of the open rule.
  void take(int alternative);

 private:
  // An alternative being told.
  struct Frame {
    const std::vector<StoryGrammar::Piece>* pieces;
    size_t next;
    int remember;
  };
  struct Memory {
    const StoryGrammar::Alternative* alternative = nullptr;
    std::string text;
  };

  void tell(std::string_view words, std::string& text);
  const std::string& recalled(const StoryGrammar::Piece& piece) const;

  const StoryGrammar* grammar_;
  std::vector<Frame> frames_;
  std::vector<Memory> memories_;  // by variable
  const StoryGrammar::Rule* open_ = nullptr;
  int remember_ = -1;  // what the open choice will be remembered as
  bool article_ = false, capital_article_ = false, capital_ = false;
};

}  // namespace xtrain
