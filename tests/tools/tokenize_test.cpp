// tokenize and train_tokenizer as their users see them.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "support/catch.h"
#include "tools/program_runs.h"

using namespace xtrain;
namespace fs = std::filesystem;

namespace {

std::string words(size_t bytes) {
  std::string text;
  for (uint32_t state = 5; text.size() < bytes;) {
    state = state * 1664525 + 1013904223;
    text += "the cat sat on a \u00e9\u4eca mat. \n"[(state >> 24) % 28];
  }
  return text;
}

std::map<std::string, std::string> contents(const Workplace& place, const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(place.path / folder)) {
    const std::string name = entry.path().filename().string();
    files[name] = place.read(folder + "/" + name);
  }
  return files;
}

void check_same(const Workplace& place, const std::string& folder,
                const std::map<std::string, std::string>& expected) {
  std::string names, expected_names, differing;
  const auto found = contents(place, folder);
  for (const auto& [name, content] : found) names += name + ' ';
  for (const auto& [name, content] : expected) {
    expected_names += name + ' ';
    if (found.count(name) > 0 && found.at(name) != content) differing += name + ' ';
  }
  CHECK(names == expected_names);
  CHECK(differing.empty());
}

bool one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

}  // namespace

TEST_CASE("train_tokenizer learns, tokenize uses it, and counts are printed", "[tools]") {
  const Workplace place;
  place.write("a.txt", words(20'000));
  const Finished learn = place.run(
      "train_tokenizer", "a.txt --vocab-size 300 --out tok --special '<|endoftext|>' '<|x|>'");
  REQUIRE(learn.code == 0);
  CHECK(learn.err == "");
  CHECK(learn.out.find("tok/tokenizer.json: 300 tokens, 42 merges\n") != std::string::npos);
  const Finished run = place.run("tokenize", "a.txt --tokenizer tok --out-dir data/d --val a.txt");
  REQUIRE(run.code == 0);
  CHECK(run.err == "");
  CHECK(run.out.starts_with("train: 1 documents, "));
  CHECK(run.out.find(" MB/s on ") != std::string::npos);
  CHECK(fs::exists(place.path / "data/d/d_train_000000.bin"));
  CHECK(place.read("data/d/d_val_000000.bin") == place.read("data/d/d_train_000000.bin"));
  CHECK(place.read("data/d/tokenizer.json") == place.read("tok/tokenizer.json"));
  const Finished again =
      place.run("tokenize", "a.txt --tokenizer tok --out-dir data/d --val a.txt");
  CHECK(again.code == 0);
  CHECK(again.out.find("data/d was complete already\n") != std::string::npos);
  // What was learned on another number of threads is the same.
  CHECK(place
            .run("train_tokenizer",
                 "a.txt --vocab-size 300 --out b.json --threads 3 "
                 "--special '<|endoftext|>' '<|x|>'")
            .code == 0);
  CHECK(place.read("b.json") == place.read("tok/tokenizer.json"));
}

TEST_CASE("train_tokenizer reports fewer tokens than asked, and refuses texts of nothing",
          "[tools]") {
  const Workplace place;
  place.write("a.txt", "ab ab ab");
  const Finished few = place.run("train_tokenizer", "a.txt --vocab-size 1000 --out t.json");
  CHECK(few.code == 0);
  CHECK(few.err ==
        "train_tokenizer: the text has pairs for 259 tokens only; 1000 were asked for\n");
  place.write("empty.txt", "");
  const Finished none = place.run("train_tokenizer", "empty.txt --vocab-size 300 --out n/t.json");
  CHECK(none.code == 2);
  CHECK(none.err == "train_tokenizer: tokenizer: the text to learn from must not be empty\n");
  CHECK_FALSE(fs::exists(place.path / "n"));
  for (const std::string arguments :
       {"a.txt --vocab-size 200 --out t.json", "a.txt --vocab-size 300 --out x --pattern '(a'",
        "none.txt --vocab-size 300 --out x", "a.txt --vocab-size 300"}) {
    const Finished bad = place.run("train_tokenizer", arguments);
    CHECK(bad.code == 2);
    CHECK(one_line(bad.err));
  }
}

TEST_CASE("train_tokenizer does not replace the tokenizer of token files", "[tools]") {
  const Workplace place;
  place.write("a.txt", "some words and some words more\n");
  REQUIRE(place.run("tokenize", "a.txt --tokenizer bytes --out-dir d").code == 0);
  const std::string before = place.read("d/vocabulary.json");
  const Finished run =
      place.run("train_tokenizer", "a.txt --vocab-size 300 --out d/vocabulary.json");
  CHECK(run.code == 2);
  CHECK(run.err ==
        "train_tokenizer: d/vocabulary.json: belongs to the token files beside it; choose another "
        "--out\n");
  CHECK(place.read("d/vocabulary.json") == before);
}

TEST_CASE("tokenize killed at any moment goes on to the bytes of an unbroken run", "[tools]") {
  const Workplace place;
  std::string lines;
  for (int i = 0; i < 2000; ++i) {
    lines += "{\"text\": \"" + std::string(static_cast<size_t>(i % 1500), 'a' + i % 26) + "\"}\n";
  }
  place.write("a.jsonl", lines);
  place.write("b.txt", words(1'500'000));
  for (const std::string format : {"llmc_u16", "raw_u16"}) {
    const std::string options =
        "a.jsonl b.txt --tokenizer bytes --eot 0 --val-fraction 0.2 "
        "--threads 2 --save-seconds 0 --name t --format " +
        format + (format == "raw_u16" ? "" : " --shard-tokens 400000");
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(place.run("tokenize", options + " --out-dir whole_" + format).code == 0);
    const auto took = std::chrono::steady_clock::now() - begin;
    const auto expected = contents(place, "whole_" + format);
    for (int k = 1; k <= 5; ++k) {  // each part of a whole run later
      const pid_t child = place.start("tokenize", options + " --out-dir broken_" + format);
      std::this_thread::sleep_for(took * k / 6);
      kill(child, SIGKILL);
      wait_for(child);
    }
    const Finished last = place.run("tokenize", options + " --out-dir broken_" + format);
    CHECK(last.err == "");
    CHECK(last.code == 0);
    check_same(place, "broken_" + format, expected);
  }
}

TEST_CASE("tokenize stopped by a signal says so and goes on", "[tools]") {
  const Workplace place;
  place.write("b.txt", words(6'000'000));
  const std::string options = "b.txt --tokenizer bytes --threads 1 --name t --val b.txt ";
  REQUIRE(place.run("tokenize", options + "--out-dir whole").code == 0);
  for (int k = 0; k < 3; ++k) {
    const pid_t child = place.start("tokenize", options + "--save-seconds 0 --out-dir broken");
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    kill(child, SIGTERM);
    const int code = wait_for(child);
    if (code == 1) {
      CHECK(place.read("err.txt") == "tokenize: stopped; the same command goes on from here\n");
    }
    CHECK((code == 0 || code == 1 || code == -SIGTERM));
  }
  CHECK(place.run("tokenize", options + "--out-dir broken").code == 0);
  check_same(place, "broken", contents(place, "whole"));
}

TEST_CASE("tokenize reads standard input, once", "[tools]") {
  const Workplace place;
  place.write("a.txt", words(800'000));
  const std::string options = "--tokenizer bytes --name t --val a.txt ";
  REQUIRE(place.run("tokenize", "a.txt " + options + "--out-dir file").code == 0);
  REQUIRE(place.run("tokenize", "- " + options + "--out-dir in < a.txt").code == 0);
  CHECK(place.read("in/t_train_000000.bin") == place.read("file/t_train_000000.bin"));
  const Finished lines =
      place.run("tokenize", "- " + options + "--jsonl-field t --out-dir lines < a.txt");
  CHECK(lines.code == 2);
  CHECK(lines.err == "tokenize: standard input:1: is not JSON at byte 1 of the line\n");
  CHECK_FALSE(fs::exists(place.path / "lines"));
}

TEST_CASE("tokenize: bad arguments are one line and exit code 2", "[tools]") {
  const Workplace place;
  place.write("a.txt", "text");
  fs::create_directory(place.path / "empty");
  for (const std::string arguments :
       {"",
        "a.txt",
        "a.txt --tokenizer bytes",
        "none.txt --tokenizer bytes --out-dir o",
        "empty --tokenizer bytes --out-dir o",
        "a.txt --tokenizer none --out-dir o",
        "a.txt --tokenizer empty --out-dir o",
        "a.txt --tokenizer a.txt --out-dir o",
        "a.txt --tokenizer bytes --out-dir o --format u16",
        "a.txt --tokenizer bytes --out-dir o --shard-tokens 0",
        "a.txt --tokenizer bytes --out-dir o --shard-tokens 2147483648",
        "a.txt --tokenizer bytes --out-dir o --shard-tokens 99999999999999999999",
        "a.txt --tokenizer bytes --out-dir o --eot '<|endoftext|>'",
        "a.txt --tokenizer bytes --out-dir o --val-fraction nan",
        "a.txt --tokenizer bytes --out-dir o --val-fraction 1",
        "a.txt --tokenizer bytes --out-dir o --threads -1",
        "a.txt --tokenizer bytes --out-dir o --name a/b",
        "a.txt --tokenizer bytes --out-dir o --name ..",
        "a.txt --tokenizer bytes --out-dir o --threads 100000",
        "a.txt --tokenizer bytes --out-dir o --seed -1",
        "a.txt --tokenizer bytes --out-dir a.txt"}) {
    const Finished run = place.run("tokenize", arguments);
    INFO(arguments << "\n" << run.err);
    CHECK((run.code == 2 || (run.code == 1 && arguments.ends_with("--out-dir a.txt"))));
    CHECK(run.err.find("tokenize: ") != std::string::npos);
    CHECK(run.out.empty());
    CHECK_FALSE(fs::exists(place.path / "o"));
  }
}

TEST_CASE("tokenize: a disk that is full ends the program with one line, and it can go on",
          "[tools]") {
  const Workplace place;
  place.write("b.txt", words(3'000'000));
  const std::string line = "tokenize='" XT_PROGRAM_DIR
                           "/tokenize'; ( ulimit -f 1000; \"$tokenize\" "
                           "b.txt --tokenizer bytes --out-dir o --val b.txt >out.txt )";
  const Finished full = place.shell(line);
  CHECK(full.code == 1);
  CHECK(full.err.find("o_train_000000.bin.partial: cannot write the file: File too large") !=
        std::string::npos);
  CHECK(one_line(full.err));
  CHECK_FALSE(fs::exists(place.path / "o/o_train_000000.bin"));
  CHECK(place.run("tokenize", "b.txt --tokenizer bytes --out-dir o --val b.txt").code == 0);
  CHECK(place.read("o/o_train_000000.bin").size() == 1024 + 2 * words(3'000'000).size());
}
