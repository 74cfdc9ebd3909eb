// Looks into models and turns them from one layout, dtype or number of files into another.

#include <CLI/CLI.hpp>
#include <iostream>

#include "core/error.h"
#include "tools/model_conversion.h"
#include "tools/program.h"
#include "tools/stop_signals.h"

namespace xtrain {
namespace {

const char* const kDtypeHelp = "f64, f32, bf16, f16, or keep: as in the source";

struct Arguments {
  std::string in, out, dtype = "keep";
  uint64_t max_shard_bytes = ConversionOptions{}.max_shard_bytes;
  bool keep_padding = false;

  ConversionOptions options() const {
    ConversionOptions options;
    if (dtype != "keep") {
      std::string upper = dtype;
      for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
      options.dtype = element_type_from_name(upper);
      check_input(options.dtype.has_value(), "--dtype must be f64, f32, bf16, f16 or keep; got ",
                  dtype);
    }
    check_input(max_shard_bytes > 0 && max_shard_bytes <= uint64_t{1} << 62,
                "--max-shard-size must lie in 1 .. 2^62 bytes; got ", max_shard_bytes);
    options.max_shard_bytes = static_cast<int64_t>(max_shard_bytes);
    options.keep_padding = keep_padding;
    options.before_piece = [] { check(!stop_requested(), "stopped by a signal; nothing is left"); };
    return options;
  }
};

// CLI11 takes a unit alone.
std::string begins_with_a_digit(std::string& size) {
  const bool is_number = !size.empty() && size.front() >= '0' && size.front() <= '9';
  return is_number ? "" : "must begin with a number; got \"" + size + '"';
}

class Commands {
 public:
  explicit Commands(CLI::App& app) {
    app.require_subcommand(1);
    inspect_ = app.add_subcommand("inspect", "what a folder or a safetensors file holds");
    inspect_->add_option("PATH", a_.in, "a model's folder, or a file")->required();
    import_ = add(app, "import", "Hugging Face's layout to xtrain's, for train --init and others");
    export_ = add(app, "export", "a checkpoint to a folder that transformers loads");
    export_->add_flag("--keep-padding", a_.keep_padding,
                      "write the rows behind the vocabulary's tokens too");
    merge_ = add(app, "merge", "shards to one file");
    cast_ = add(app, "cast", "the same layout in another dtype");
    for (CLI::App* command : {import_, export_}) add_dtype(command);
    add_dtype(cast_)->required();
    for (CLI::App* command : {import_, export_, cast_}) {
      command
          ->add_option("--max-shard-size", a_.max_shard_bytes,
                       "cut tensors into files of at most so many bytes: 5GB, 500MB, 2GiB ...")
          ->transform(CLI::AsSizeValue(true))
          ->transform(CLI::Validator(begins_with_a_digit, ""))
          ->capture_default_str();
    }
  }

  Notes run() {
    if (inspect_->parsed()) {
      std::cout << describe_model(a_.in);
      return {};
    }
    ConversionOptions options = a_.options();
    if (import_->parsed()) return import_model(a_.in, a_.out, options);
    if (export_->parsed()) return export_model(a_.in, a_.out, options);
    if (merge_->parsed()) options.max_shard_bytes = int64_t{1} << 62;
    return rewrite_model(a_.in, a_.out, options);
  }

 private:
  CLI::App* add(CLI::App& app, const char* name, const char* help) {
    CLI::App* command = app.add_subcommand(name, help);
    command->add_option("IN", a_.in, "folder that holds a model; a run's: its newest checkpoint")
        ->required();
    command->add_option("OUT", a_.out, "folder to write; must not be there")->required();
    return command;
  }
  CLI::Option* add_dtype(CLI::App* command) {
    return command->add_option("--dtype", a_.dtype, kDtypeHelp)->capture_default_str();
  }

  Arguments a_;
  CLI::App *inspect_, *import_, *export_, *merge_, *cast_;
};

int convert(int argc, char** argv) {
  CLI::App app("Inspects, imports, exports, merges and casts models.", "convert");
  Commands commands(app);
  if (!parse_arguments(app, argc, argv)) return 0;
  make_file_faults_errors("convert");
  stop_on_signals();
  for (const std::string& note : commands.run()) print_error("convert", "note: " + note);
  return 0;
}

}  // namespace
}  // namespace xtrain

int main(int argc, char** argv) {
  return xtrain::run_program("convert", [&] { return xtrain::convert(argc, argv); });
}
