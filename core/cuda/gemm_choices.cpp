#include "core/cuda/gemm_choices.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/mapped_file.h"

namespace xtrain {
namespace {

using Json = nlohmann::ordered_json;

GemmChoice choice_from(const Json& json) {
  GemmChoice choice;
  json.at("algorithm").get_to(choice.algorithm);
  json.at("us").get_to(choice.microseconds);
  json.at("first_choice_us").get_to(choice.first_choice_microseconds);
  return choice;
}

}  // namespace

GemmChoices::GemmChoices(std::string path, std::string machine, bool measures)
    : path_(std::move(path)), machine_(std::move(machine)), measures_(measures) {
  if (std::filesystem::exists(path_)) {
    read();
  } else {
    check_input(measures_, path_, ": there is no such file of gemm choices; let `train` make it");
  }
}

void GemmChoices::read() {
  const MappedFile file(path_);
  std::string machine;
  try {
    const Json json = Json::parse(file.text());
    json.at("machine").get_to(machine);
    for (const auto& [product, choice] : json.at("products").items()) {
      choices_[product] = choice_from(choice);
    }
  } catch (const Json::exception&) {
    reject_input(path_, ": must be a file of gemm choices, as `train` writes it; remove it");
  }
  check_input(machine == machine_, path_,
              ": gemm choices must be made on the machine that they are for, ", machine_,
              "; these are for ", machine, ": name another file");
}

void GemmChoices::write() const {
  Json products = Json::object();
  for (const auto& [product, choice] : choices_) {
    products[product] = {{"algorithm", choice.algorithm},
                         {"us", choice.microseconds},
                         {"first_choice_us", choice.first_choice_microseconds}};
  }
  write_file(path_, Json{{"machine", machine_}, {"products", products}}.dump(1) + "\n");
}

const GemmChoice* GemmChoices::find(const std::string& product) const {
  const auto found = choices_.find(product);
  return found == choices_.end() ? nullptr : &found->second;
}

void GemmChoices::add(const std::string& product, const GemmChoice& choice) {
  choices_[product] = choice;
  write();
}

}  // namespace xtrain
