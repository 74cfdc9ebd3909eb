// `generate` as its users see it.

#include <signal.h>

#include <cctype>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "support/catch.h"
#include "tools/program_runs.h"

using namespace xtrain;
using Json = nlohmann::json;

namespace {

// A folder with a model that was trained for a moment: a byte vocabulary, 16 positions.
struct Trained : Workplace {
  Trained() {
    const Finished run = this->run(
        "train", "--config small.json --out-dir run --max-steps 2 --set train.num_samples=0");
    REQUIRE(run.code == 0);
  }
  Finished generate(const std::string& arguments) const {
    return run("generate", "--model run --device cpu --threads 1 " + arguments);
  }
  std::vector<Json> json_of(const std::string& arguments) const {
    const Finished done = generate("--json " + arguments);
    INFO(done.err);
    REQUIRE(done.code == 0);
    std::vector<Json> all;
    std::istringstream lines(done.out);
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }
};

bool one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

// The bytes of ids, which are what they stand for in a byte vocabulary.
std::string bytes_of(const Json& ids) {
  std::string text;
  for (const Json& id : ids) text.push_back(static_cast<char>(id.get<int>()));
  return text;
}

}  // namespace

TEST_CASE("generate continues texts and says how fast", "[tools]") {
  const Trained place;
  const Finished one = place.generate("--prompt Once --max-new-tokens 6");
  CHECK(one.code == 0);
  CHECK(one.err.find("prefill 4 tokens in ") == 0);
  CHECK(one.err.find("; decode 5 tokens in ") != std::string::npos);
  CHECK(one.out.size() == 7);  // six bytes and a line break
  // Streamed or at the end, with or without cache, a layer at a time: the same.
  for (const char* way : {"--no-stream", "--no-cache", "--stream-layers", "--threads 2", "--flash",
                          "--stream-layers --no-cache --no-stream"}) {
    INFO(way);
    CHECK(place.generate(std::string("--prompt Once --max-new-tokens 6 ") + way).out == one.out);
  }
  CHECK(place.generate("--prompt Once --max-new-tokens 6 --echo").out == "Once" + one.out);
  CHECK(place.generate("--prompt Once --max-new-tokens 6 --seed 5").out != one.out);
  place.write("once.txt", "Once");
  CHECK(place.generate("--prompt-file once.txt --max-new-tokens 6").out == one.out);
  CHECK(place.generate("--prompt-file - --max-new-tokens 6 <once.txt").out == one.out);
  CHECK(place.generate("--prompt-ids '79 110 99 101' --max-new-tokens 6").out == one.out);
  CHECK(place
            .run("generate",
                 "--model run/checkpoints/step_00000002 --prompt Once "
                 "--max-new-tokens 6 --threads 1 --device cpu")
            .out == one.out);
  CHECK(place.generate("--prompt Once --max-new-tokens 0").out == "\n");
}

TEST_CASE("generate writes texts of several prompts in their order", "[tools]") {
  const Trained place;
  const std::string arguments = "--prompt Once --prompt A --num-samples 2 --max-new-tokens 5";
  const std::vector<Json> texts = place.json_of(arguments);
  REQUIRE(texts.size() == 4);
  std::string expected;
  for (size_t i = 0; i < 4; ++i) {
    CHECK(texts[i]["prompt"] == (i < 2 ? "Once" : "A"));
    CHECK(texts[i]["sample"] == i % 2);
    CHECK(texts[i]["ids"].size() == 5);
    CHECK(texts[i]["ending"] == "max_new_tokens");
    expected += "--- prompt " + std::to_string(i / 2 + 1) + ", sample " +
                std::to_string(i % 2 + 1) + "\n" + bytes_of(texts[i]["ids"]) + "\n";
  }
  CHECK(place.generate(arguments).out == expected);
  CHECK(place.generate(arguments + " --no-stream").out == expected);
  // A prompt has the texts that it has alone.
  const std::vector<Json> alone = place.json_of("--prompt A --num-samples 2 --max-new-tokens 5");
  CHECK(alone[0] == texts[2]);
  CHECK(alone[1] == texts[3]);
}

TEST_CASE("generate ends texts at stop strings, end tokens and the model's positions", "[tools]") {
  const Trained place;
  const Json whole = place.json_of("--prompt Once --temperature 2")[0];
  CHECK(whole["ending"] == "context_full");
  CHECK(whole["ids"].size() == 12);
  const Finished full = place.generate("--prompt Once");
  CHECK(full.err.find("16 positions (max_position_embeddings)") != std::string::npos);
  CHECK(place.json_of("--prompt Once --no-cache --max-new-tokens 30")[0]["ids"].size() == 30);
  // Two letters of a text, which are two tokens.
  bool found = false;
  for (int seed = 0; seed < 100 && !found; ++seed) {
    const std::string arguments = "--prompt Once --temperature 2 --seed " + std::to_string(seed);
    const std::string text = bytes_of(place.json_of(arguments)[0]["ids"]);
    for (size_t i = 2; i + 1 < text.size() && !found; ++i) {
      found = isalpha(static_cast<unsigned char>(text[i])) &&
              isalpha(static_cast<unsigned char>(text[i + 1]));
      if (!found) continue;
      const std::string stop = text.substr(i, 2);
      const std::string before = text.substr(0, text.find(stop));
      CHECK(place.generate(arguments + " --stop @@@ --stop " + stop).out == before + "\n");
      const Json stopped = place.json_of(arguments + " --stop " + stop)[0];
      CHECK(stopped["ending"] == "stopped");
      CHECK(bytes_of(stopped["ids"]) == before + stop);
    }
  }
  CHECK(found);
  // The model's end token, by a generation_config.json beside the weights.
  const std::string folder = "run/checkpoints/step_00000002/";
  place.write(folder + "generation_config.json",
              "{\"do_sample\": true, \"temperature\": 2, \"top_k\": 0, \"eos_token_id\": [" +
                  whole["ids"][4].dump() + ", 3]}");
  const std::string text = bytes_of(whole["ids"]);
  const Json ended = place.json_of("--prompt Once")[0];
  const size_t end = text.find(text[4]);
  CHECK(ended["ending"] == "end_token");
  CHECK(bytes_of(ended["ids"]) == text.substr(0, end));
  CHECK(place.json_of("--prompt Once --ignore-eos")[0]["ids"] == whole["ids"]);
}

TEST_CASE("generate takes defaults from generation_config.json, and flags win", "[tools]") {
  const Trained place;
  const std::string file = "run/checkpoints/step_00000002/generation_config.json";
  const auto ids = [&](const std::string& arguments) {
    return place.json_of("--prompt Once --max-new-tokens 8 " + arguments)[0]["ids"];
  };
  const Json greedy = ids("--temperature 0"), warm = ids("--temperature 1.5"),
             few = ids("--temperature 1.5 --top-k 3");
  CHECK(greedy != warm);
  place.write(file, R"({"do_sample": false})");
  CHECK(ids("") == greedy);
  CHECK(ids("--temperature 1.5") == warm);
  place.write(file, R"({"do_sample": true, "temperature": 1.5, "top_k": 0, "max_new_tokens": 3})");
  CHECK(ids("") == warm);
  CHECK(ids("--temperature 0") == greedy);
  CHECK(ids("--top-k 3") == few);
  CHECK(place.json_of("--prompt Once")[0]["ids"].size() == 3);
  place.write(file, R"({"do_sample": true, "temperature": 1.5, "top_k": 3})");
  CHECK(ids("") == few);
  CHECK(ids("--top-k 0") == warm);
  place.write(file, R"({"bos_token_id": 79})");
  const Json from_nothing = place.json_of("--max-new-tokens 4")[0];
  CHECK(from_nothing["prompt_ids"] == Json{79});
  CHECK(place.json_of("--prompt nce --add-bos")[0]["prompt_ids"] == Json{79, 110, 99, 101});
}

TEST_CASE("bad arguments of generate are one line and exit code 2", "[tools]") {
  const Trained place;
  place.write("empty.txt", "");
  const struct {
    const char* arguments;
    const char* message;
  } cases[] = {
      {"", "--prompt must be given"},
      {"--prompt ''", "prompt 1 must hold at least one token"},
      {"--prompt-file empty.txt", "prompt 1 must hold at least one token"},
      {"--prompt-file missing.txt", "missing.txt"},
      {"--prompt-file run", "is a directory"},
      {"--prompt-ids '1 256'", "--prompt-ids: must be token ids in 0..255; got \"256\""},
      {"--prompt-ids 'one'", "got \"one\""},
      {"--prompt x --add-bos", "names no bos_token_id"},
      {"--prompt 12345678901234567", "a prompt of 17 tokens is longer than the 16"},
      {"--prompt x --max-new-tokens -1", "max_new_tokens"},
      {"--prompt x --max-new-tokens 1e99", "--max-new-tokens"},
      {"--prompt x --temperature -1", "temperature must be 0 or more; got -1"},
      {"--prompt x --temperature nan", "temperature"},
      {"--prompt x --top-k -3", "--top-k must be 0, for all tokens, or more; got -3"},
      {"--prompt x --top-p 0", "top_p must lie in (0, 1]; got 0"},
      {"--prompt x --min-p 2", "min_p must lie in [0, 1]; got 2"},
      {"--prompt x --repetition-penalty 0", "repetition_penalty must be more than 0"},
      {"--prompt x --stop ''", "a stop string must hold at least one character"},
      {"--prompt x --num-samples 0", "--num-samples"},
      {"--prompt x --seed -1", "--seed must be a number from 0 to 2^64 - 1; got \"-1\""},
      {"--prompt x --seed 99999999999999999999", "--seed must be a number"},
      {"--prompt x --top-k 99999999999999999999", "--top-k must be a number"},
      {"--prompt x --temperature ''", "--temperature must be a number; got \"\""},
      {"--prompt x --max-new-tokens ''", "--max-new-tokens"},
      {"--prompt x --dtype i32", "--dtype must be f64, f32 or bf16; got i32"},
      {"--prompt x --dtype f16", "f16"},
      {"--prompt x --device tpu", "--device must be cpu, cuda or auto; got tpu"},
      {"--prompt x --flash --no-flash", "flash"},
      {"--prompt x --threads -1", "--threads"},
      {"--prompt x --nonsense", "--nonsense"},
      {"--prompt x stray", "stray"},
  };
  for (const auto& c : cases) {
    INFO(c.arguments);
    const Finished run = place.run("generate", std::string("--model run ") + c.arguments);
    INFO(run.err);
    CHECK(run.code == 2);
    CHECK(run.out == "");
    CHECK(one_line(run.err));
    CHECK(run.err.find(c.message) != std::string::npos);
  }
  CHECK(place.run("generate", "--prompt x").err.find("--model is required") != std::string::npos);
  CHECK(place.run("generate", "--model nowhere --prompt x").code == 2);
  CHECK(place.run("generate", "--model small.json --prompt x").code == 2);
  REQUIRE(place.shell("ln -s loop loop").code == 0);
  CHECK(place.run("generate", "--model loop --prompt x").code == 2);
  CHECK(place.run("generate", "--model loop --prompt x").err ==
        "generate: loop/checkpoints: cannot be looked into: Too many levels of symbolic links\n");
  CHECK(place.run("generate", "--prompt x --model " + std::string(5000, 'x')).code == 2);
  CHECK(place.run("generate", "--help").code == 0);
}

TEST_CASE("a model without a tokenizer takes ids and says so", "[tools]") {
  const Trained place;
  const std::string checkpoint = "run/checkpoints/step_00000002";
  REQUIRE(place
              .shell("mkdir bare && cp " + checkpoint + "/model.safetensors " + checkpoint +
                     "/config.json bare")
              .code == 0);
  const auto generate = [&](const std::string& arguments) {
    return place.run("generate", "--model bare --device cpu --threads 1 " + arguments);
  };
  place.write("text.txt", "Once upon");
  for (const char* arguments : {"--prompt Once", "--prompt-file text.txt", "--prompt '1 2 x'"}) {
    const Finished run = generate(arguments);
    CHECK(run.code == 2);
    CHECK(one_line(run.err));
    CHECK(
        run.err.ends_with(": bare has no tokenizer to encode text with; give token ids, as "
                          "--prompt-ids \"17 4 2\"\n"));
  }
  const Finished by_ids = generate("--prompt-ids '17 4 2' --max-new-tokens 3");
  CHECK(by_ids.code == 0);
  CHECK(generate("--prompt '17 4 2' --max-new-tokens 3").out == by_ids.out);
  CHECK(generate("--prompt '17 -4'").err.find("must be token ids in 0..255; got \"-4\"") !=
        std::string::npos);
}

TEST_CASE("generate ends when nobody reads, and at a signal with what there is", "[tools]") {
  const Trained place;
  const std::string endless = "--no-cache --max-new-tokens 1000000000";
  place.write("pipe.sh", "'" XT_PROGRAM_DIR
                         "/generate' --model run --device cpu --threads 1 "
                         "--prompt Once " +
                             endless + " 2>err.txt | head -c 5 >out.txt");
  CHECK(std::system(("cd '" + place.path.string() + "' && sh pipe.sh").c_str()) == 0);
  CHECK(place.read("out.txt").size() == 5);
  CHECK(place.read("err.txt").find("standard output cannot be written") != std::string::npos);
  for (const int signal : {SIGINT, SIGTERM}) {
    place.write("out.txt", "");  // of the run before
    const pid_t child =
        place.start("generate", "--model run --device cpu --threads 1 --prompt Once " + endless);
    for (int i = 0; i < 3000 && place.read("out.txt").size() < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const size_t begun = place.read("out.txt").size();
    kill(child, begun >= 20 ? signal : SIGKILL);
    CHECK(begun >= 20);
    CHECK(wait_for(child) == 0);
    CHECK(place.read("out.txt").back() == '\n');
    CHECK(place.read("err.txt").find("decode ") != std::string::npos);
  }
  CHECK(place.run("generate", "--model run --prompt Once <&-").code == 0);
  CHECK(place.run("generate", "--model run --prompt-file - <&-").code == 2);  // an empty prompt
}
