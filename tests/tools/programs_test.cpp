// The programs as their users see them: arguments, exit codes, messages, files.

#include <pty.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "support/catch.h"
#include "tools/program_runs.h"

using namespace xtrain;
namespace fs = std::filesystem;

namespace {

void wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000 && !holds(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  REQUIRE(holds());
}

// Whether any checkpoint is there: a run keeps only its last ones, so a given one may come and go
// between two looks.
bool has_checkpoint(const Workplace& place) {
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(place.path / "run/checkpoints", gone)) {
    if (entry.path().extension() != ".partial") return true;
  }
  return false;
}

// What the program writes to a terminal of so many columns.
std::string on_terminal(const Workplace& place, const std::string& arguments,
                        unsigned short width) {
  const std::string config = place.file("small.json"), out_dir = place.file("run");
  winsize size{24, width, 0, 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    const std::string line = "exec '" XT_PROGRAM_DIR "/train' --config '" + config +
                             "' --out-dir '" + out_dir + "' " + arguments;
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  std::string text;
  char chunk[4096];
  for (ssize_t n = 0; (n = read(terminal, chunk, sizeof(chunk))) > 0;) text.append(chunk, n);
  CHECK(wait_for(child) == 0);
  close(terminal);
  return text;
}

bool one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

}  // namespace

TEST_CASE("train runs to the end, writes its files and prints samples", "[tools]") {
  const Workplace place;
  const Finished run = place.run("train", "--config small.json --flash --out-dir run");
  CHECK(run.err == "");
  REQUIRE(run.code == 0);
  CHECK(run.out.find("step 30/30  loss ") != std::string::npos);
  CHECK(run.out.find("floor ") != std::string::npos);
  CHECK(run.out.find("--- sample 1\n") != std::string::npos);
  CHECK(run.out.find("\nbest validation loss ") != std::string::npos);
  CHECK(run.out.find('\r') == std::string::npos);  // not a terminal: plain lines
  CHECK(place.read("run/config.json").find("\"attention\": \"flash\"") != std::string::npos);
  std::ifstream metrics(place.file("run/metrics.jsonl"));
  std::string line;
  int lines = 0;
  while (std::getline(metrics, line)) {
    ++lines;
    for (const char* key :
         {"step", "tokens", "loss", "val_loss", "lr", "grad_norm", "step_ms", "tokens_per_s"}) {
      CHECK(line.find("\"" + std::string(key) + "\":") != std::string::npos);
    }
    CHECK((line.find("\"val_loss\":null") == std::string::npos) == (lines % 10 == 0));
  }
  CHECK(lines == 30);
  CHECK(fs::exists(place.path / "run/checkpoints/step_00000030/manifest.json"));
  // The saved config says the same run again.
  const Finished again = place.run("train", "--config run/config.json --out-dir run2");
  CHECK(again.code == 0);
  CHECK(weights_line(again.out) == weights_line(run.out));
  CHECK(weights_line(run.out).size() == 16);
}

TEST_CASE("bad arguments and configs are one line and exit code 2", "[tools]") {
  const Workplace place;
  place.write("broken.json", R"({"model": {"hidden_sise": 8}})");
  place.write("short.txt", "too short");
  std::string zero_byte = kSmallConfig;
  zero_byte.insert(zero_byte.find("\"batch_size\""), "\"out_dir\": \"out\\u0000x\", ");
  place.write("zero_byte.json", zero_byte);
  const struct {
    const char* arguments;
    const char* message;
  } cases[] = {
      {"", "--config must name a config"},
      {"--config nowhere.json", "nowhere.json"},
      {"--config broken.json", "hidden_size"},
      {"--config small.json --dtype f16", "train.dtype"},
      {"--config small.json --seq-len 17", "max_position_embeddings 16"},
      {"--config small.json --learning-rate 1e400", "learning_rate"},
      {"--config small.json --learning-rate ''", "learning_rate"},
      {"--config small.json --max-steps -1", "max_steps"},
      {"--config small.json --set model.num_key_value_heads=3", "num_key_value_heads"},
      {"--config small.json --set train.nothing=1", "nothing"},
      {"--config small.json --set nonsense", "nonsense"},
      {"--config small.json --data missing.txt", "missing.txt"},
      {"--config small.json --data short.txt", "short.txt"},
      {"--config small.json --resume nowhere", "nowhere"},
      {"--config .", "."},
      {"--config small.json --threads -3", "threads"},
      {"--config small.json --no-such-flag", "--no-such-flag"},
      {"--config small.json --no-flash --flash", "--flash excludes --no-flash"},
      {"--config small.json --set 'train.two\nlines=1'", "train.two\\nlines"},
      {"--config zero_byte.json", "zero byte"},
      {"--config small.json --set train.adam_eps=1e-300", "train.adam_eps"},
      {"--config small.json --set model.positions=learned --set model.head_dim=7", "head_dim 7"},
  };
  for (const auto& c : cases) {
    INFO(c.arguments);
    const Finished run = place.run("train", c.arguments);
    INFO(run.err);
    CHECK(run.code == 2);
    CHECK(run.err.find(c.message) != std::string::npos);
    CHECK(one_line(run.err));
    CHECK(run.out == "");
    CHECK_FALSE(fs::exists(place.path / "out"));
  }
}

TEST_CASE("a device or a matrix product that is not there is refused", "[tools]") {
  const Workplace place;
  const std::string train = "CUDA_VISIBLE_DEVICES= \"$train\" --config small.json --max-steps 1 ";
  const Finished no_gpu = place.shell(train + "--device cuda");
  CHECK(no_gpu.code == 2);
  CHECK(no_gpu.err.find("train.device cuda: ") != std::string::npos);
  CHECK(one_line(no_gpu.err));
  for (const char* gemm : {"mma", "library_tf32"}) {
    const Finished refused = place.shell(train + "--set train.gemm=" + gemm);
    CHECK(refused.code == 2);
    CHECK(refused.err == std::string("train: train.gemm ") + gemm +
                             ": runs on a GPU only; use auto, naive, tiled or library\n");
  }
  CHECK(place.shell(train + "--device auto >log.txt").code == 0);
  CHECK(place.read("log.txt").find(" on cpu with 1 threads") != std::string::npos);
}

TEST_CASE("help lists every key with its default, and print-config resolves", "[tools]") {
  const Workplace place;
  const Finished help = place.run("train", "--help");
  CHECK(help.code == 0);
  for (const char* key : {"--flash", "--resume", "learning_rate", "0.0006", "num_hidden_layers",
                          "stories_seed", "min_lr_ratio"}) {
    INFO(key);
    CHECK(help.out.find(key) != std::string::npos);
  }
  const Finished printed =
      place.run("train", "--config small.json --print-config --batch-size 7 --flash");
  CHECK(printed.code == 0);
  CHECK(printed.out.find("\"batch_size\": 7") != std::string::npos);
  CHECK(printed.out.find("\"attention\": \"flash\"") != std::string::npos);
  place.write("printed.json", printed.out);
  CHECK(place.run("train", "--config printed.json --print-config").out == printed.out);
}

TEST_CASE("docs/config.md is the table that train prints", "[tools]") {
  const Workplace place;
  std::ifstream file(XT_SOURCE_DIR "/docs/config.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  CHECK(place.run("train", "--print-keys").out == page);
}

TEST_CASE("a config that the working folder lacks is found by name", "[tools]") {
  const Workplace place;
  for (const char* name : {"tiny", "tiny.json", "configs/tiny.json"}) {
    INFO(name);
    const Finished run = place.run("train", std::string("--print-config --config ") + name);
    CHECK(run.code == 0);
    CHECK(run.out.find("\"hidden_size\": 128") != std::string::npos);
  }
}

TEST_CASE("text, characters and tokens are found from a file's content", "[tools]") {
  const Workplace place;
  std::string text;
  while (text.size() < 4000) text += "the quick brown fox jumps over the lazy dog.\n";
  place.write("fox.txt", text);
  std::string tokens;  // uint16 ids
  for (int i = 0; i < 2000; ++i) tokens += {static_cast<char>(i % 50), '\0'};
  place.write("ids.bin", tokens);
  const auto steps = " --config small.json --max-steps 3 --set train.eval_interval=0 --out-dir ";
  CHECK(place.run("train", std::string("--data fox.txt") + steps + "a").code == 0);
  CHECK(place.run("train", std::string("--data fox.txt --set data.source=chars") + steps + "b")
            .code == 0);
  CHECK(place.read("b/config.json").find("\"vocab_size\": 29") != std::string::npos);
  CHECK(place.run("train", std::string("--data ids.bin --set model.vocab_size=50") + steps + "c")
            .code == 0);
  const Finished refused =
      place.run("train", std::string("--data ids.bin --set model.vocab_size=49") + steps + "d");
  CHECK(refused.code == 2);
  CHECK(refused.err.find("ids.bin") != std::string::npos);
  CHECK(refused.err.find("49") != std::string::npos);
}

TEST_CASE("SIGTERM finishes the step, saves, and the run can go on", "[tools]") {
  const Workplace place;
  const std::string arguments =
      "--config small.json --max-steps 100000 --set train.eval_interval=0 "
      "--set train.checkpoint_interval=0 --set train.lr_schedule=constant --out-dir run";
  const pid_t child = place.start("train", arguments);
  wait_until(
      [&] { return place.read("run/metrics.jsonl").find("\"step\":5,") != std::string::npos; });
  kill(child, SIGTERM);
  CHECK(wait_for(child) == 0);
  CHECK(place.read("out.txt").find("saved ") != std::string::npos);
  int folders = 0;
  std::string name;
  for (const auto& entry : fs::directory_iterator(place.path / "run/checkpoints")) {
    ++folders;
    name = entry.path().filename().string();
  }
  REQUIRE(folders == 1);
  const int step = std::stoi(name.substr(5));
  CHECK(step >= 5);
  const Finished resumed =
      place.run("train", arguments + " --resume auto --max-steps " + std::to_string(step + 2));
  CHECK(resumed.code == 0);
  CHECK(resumed.out.find("continuing from run/checkpoints/" + name) != std::string::npos);
}

TEST_CASE("a run killed while it saves goes on to the same weights", "[tools][slow]") {
  const Workplace place;
  const std::string arguments = "--config small.json --set train.checkpoint_interval=1 ";
  const std::string expected = weights_line(place.run("train", arguments + "--out-dir whole").out);
  REQUIRE(expected.size() == 16);
  for (int round = 0; round < 30; ++round) {
    const pid_t child = place.start("train", arguments + "--resume auto --out-dir run");
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 37 * round % 211));
    kill(child, SIGKILL);
    wait_for(child);
    fs::create_directories(place.path / "run/checkpoints");
    place.write("run/checkpoints/stray.partial", "left behind");
  }
  const Finished last = place.run("train", arguments + "--resume auto --out-dir run");
  CHECK(last.err == "");
  CHECK(last.code == 0);
  CHECK(weights_line(last.out) == expected);
}

TEST_CASE("a terminal's live line fits its width and lasting lines stand whole", "[tools]") {
  const Workplace place;
  const std::string text = on_terminal(place, "", 50);
  const std::string erase = "\r\033[K";
  int live = 0, lasting = 0;
  for (size_t at = text.find(erase); at != std::string::npos; at = text.find(erase, at)) {
    at += erase.size();
    const std::string line = text.substr(at, text.find('\r', at) - at);
    const bool stays = text.substr(at + line.size(), 2) == "\r\n";
    INFO(line);
    ++(stays ? lasting : live);
    CHECK((stays || line.size() == 49));
  }
  CHECK(live >= 3);     // at least one before each validation
  CHECK(lasting == 6);  // 3 validations, 3 checkpoints
}

TEST_CASE("only one run at a time has an out-dir", "[tools]") {
  const Workplace place;
  const pid_t first = place.start("train", "--config small.json --max-steps 1000000 --out-dir run");
  wait_until([&] { return has_checkpoint(place); });
  const Finished second = place.shell(
      "\"$train\" --config small.json --max-steps 1000000 "
      "--out-dir run --resume auto >out2.txt");
  CHECK(second.code == 2);
  CHECK(second.err.find("run is in use by another run") != std::string::npos);
  kill(first, SIGHUP);  // as when the terminal is closed
  CHECK(wait_for(first) == 0);
  const std::string out = place.read("out.txt");
  const std::string saved = "saved run/checkpoints/step_";
  REQUIRE(out.rfind(saved) != std::string::npos);
  const int64_t step = std::stoll(out.substr(out.rfind(saved) + saved.size()));
  const std::string on = "--config small.json --out-dir run --resume auto --max-steps ";
  const Finished shorter = place.run("train", on + std::to_string(step - 1));
  CHECK(shorter.code == 2);
  CHECK(shorter.err.find("train.max_steps must be at least the " + std::to_string(step)) !=
        std::string::npos);
  CHECK(place.run("train", on + std::to_string(step + 1)).code == 0);
}

TEST_CASE("output that cannot be written is a failure, and ends a run with a checkpoint",
          "[tools]") {
  const Workplace place;
  const std::string lost = "train: standard output cannot be written; some of it is lost\n";
  CHECK(place.shell("\"$train\" --help >/dev/full").err == lost);
  const Finished piped = place.shell(
      "\"$train\" --config small.json --max-steps 1000000 --set train.checkpoint_interval=0 "
      "--out-dir run | sed -n '/^step 20/q'");
  CHECK(piped.err == lost);
  CHECK_FALSE(fs::is_empty(place.path / "run/checkpoints"));
}

TEST_CASE("a closed standard error does not become one of the run's files", "[tools]") {
  const Workplace place;
  const Finished run = place.shell(
      "(ulimit -f 20; \"$train\" --config small.json --out-dir run --set train.learning_rate=1e-3 "
      "--set model.hidden_size=64 >&- 2>&- <&-)");
  CHECK(run.code == 1);
  CHECK(place.read("run/metrics.jsonl").find("train:") == std::string::npos);
  CHECK(place.read("run/config.json").find("train:") == std::string::npos);
}

TEST_CASE("a checkpoint that cannot be written is an error and leaves nothing of it", "[tools]") {
  const Workplace place;
  const Finished run = place.shell(
      "(ulimit -f 20; \"$train\" --config small.json --set model.hidden_size=64 "
      "--out-dir run >out.txt)");
  CHECK(run.code == 1);
  CHECK(run.err.find("File too large") != std::string::npos);
  CHECK(one_line(run.err));
  CHECK(fs::is_empty(place.path / "run/checkpoints"));
}

TEST_CASE("a data file that is cut short while training reads it ends the run", "[tools]") {
  const Workplace place;
  place.write("data.txt", std::string(1000000, 'x'));
  const pid_t child =
      place.start("train", "--config small.json --max-steps 1000000 --data data.txt --out-dir run");
  wait_until([&] { return has_checkpoint(place); });
  fs::resize_file(place.path / "data.txt", 0);
  CHECK(wait_for(child) == 1);
  CHECK(place.read("err.txt") == "train: a data file was cut short while it was in use\n");
}

TEST_CASE("a file is found by its name though the name is also a pattern", "[tools]") {
  const Workplace place;
  place.write("[ab].txt", std::string(2000, 'x'));
  place.write("a.txt", std::string(4000, 'x'));
  const Finished run =
      place.run("train", "--config small.json --max-steps 1 --data '[ab].txt' --out-dir run");
  CHECK(run.out.find("1800 tokens") != std::string::npos);
}

TEST_CASE("a model that has diverged is not sampled", "[tools]") {
  const Workplace place;
  const Finished run =
      place.run("train",
                "--config small.json --max-steps 60 --out-dir run --set train.lr_schedule=constant "
                "--set train.learning_rate=100 --set train.weight_decay=100 "
                "--set train.grad_clip=0");
  CHECK(run.code == 1);
  CHECK(run.err.find("training has diverged") != std::string::npos);
  CHECK(one_line(run.err));
}

TEST_CASE("gradcheck prints a table, and its verdict is its exit code", "[tools]") {
  const Workplace place;
  const Finished run = place.run("gradcheck", "activation norm");
  CHECK(run.code == 0);
  CHECK(run.out.find("FAIL") == std::string::npos);
  CHECK(run.out.find("gelu_tanh") != std::string::npos);
  CHECK(run.out.find("all gradients agree within 1e-06") != std::string::npos);
  const Finished strict = place.run("gradcheck", "activation --tolerance 0");
  CHECK(strict.code == 1);
  CHECK(strict.out.find("FAIL") != std::string::npos);
  CHECK(strict.out.find("gradients beyond 0e+00") != std::string::npos);
  const Finished unknown = place.run("gradcheck", "nothing");
  CHECK(unknown.code == 2);
  CHECK(unknown.err.find("nothing") != std::string::npos);
}
