#pragma once
// The config.json that is written for Hugging Face's readers.

#include <string>

#include "model/config.h"
#include "model/hf/element_types.h"
#include "model/hf/special_ids.h"

namespace xtrain {

// InputError naming the key when models of this model_type cannot have what the config says.
void check_hugging_face_config(const ModelConfig& config);

// The config.json that transformers loads, with both spellings where they differ. Ids that are not
// there are written as null, since readers have defaults of their own. The same config gives the
// same bytes.
std::string hugging_face_config_json(const ModelConfig& config, const SpecialIds& ids,
                                     ElementType dtype);

}  // namespace xtrain
