#pragma once
// A folder in which programs run as their users run them.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "support/temporary_folder.h"

namespace xtrain {

// A model so small that a run takes a fraction of a second.
inline const char* const kSmallConfig = R"({
  "model": {"model_type": "qwen3", "hidden_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24,
            "max_position_embeddings": 16, "dropout": 0.1},
  "train": {"batch_size": 2, "max_steps": 30, "warmup_steps": 2, "eval_interval": 10,
            "eval_steps": 1, "checkpoint_interval": 10, "device": "cpu", "threads": 1,
            "num_samples": 1, "max_new_tokens": 5},
  "data": {"stories_count": 20}})";

struct Finished {
  int code;
  std::string out, err;
};

// One test's folder with the config in it, and programs that run there.
struct Workplace : TemporaryFolder {
  Workplace() { write("small.json", kSmallConfig); }

  std::string command(const std::string& program, const std::string& arguments) const {
    return "cd '" + path.string() + "' && exec '" + XT_PROGRAM_DIR "/" + program + "' " +
           arguments + " >out.txt 2>err.txt";
  }
  Finished run(const std::string& program, const std::string& arguments) const {
    const int status = std::system(command(program, arguments).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }
  // A line of sh that calls "$train".
  Finished shell(const std::string& line) const {
    const std::string all = "cd '" + path.string() + "' && train='" XT_PROGRAM_DIR "/train' && { " +
                            line + "; } 2>err.txt";
    const int status = std::system(all.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, "", read("err.txt")};
  }
  pid_t start(const std::string& program, const std::string& arguments) const {
    const std::string line = command(program, arguments);
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }
};

inline int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// The line "weights 0123456789abcdef, ..." that a run ends with.
inline std::string weights_line(const std::string& out) {
  const size_t at = out.find("\nweights ");
  return at == std::string::npos ? "" : out.substr(at + 9, 16);
}

}  // namespace xtrain
