// OutlineModel: a model of which there is no more than a config.json, for counting: its plan, and
// weights that have types and no numbers. Neighbours: load.h (models that run), account/ledger.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/load.h"

namespace lucid {

// The types that the weights of a plan would have in a file of the kind that `mix` names, by value
// id; vectors and routers are float32. `mix` is a type ("q8_0", "bf16"), or a mixture as GGUF files
// have it ("q4_k_m", "q5_k_m": one type, and a larger one for the output matrix and, in half of the
// layers, for attn_v and ffn_down). Rows that a type's blocks do not divide get the nearest plain
// enough type, as there. kInvalidArgument names the choices.
// Source: llama.cpp's llama_tensor_get_type.
Result<std::vector<DType>> TypesOfMix(const Plan& plan, const ModelConfig& config,
                                      std::string_view mix);

// `path`: a config.json as Hugging Face models have it. `mix`: as above; "" takes what the config
// says (dtype or torch_dtype, and quantization_config where that is mxfp4 or fp8). The model has no
// checkpoint. Errors as LoadModel, kUnsupported for other quantization_configs.
Result<Model> OutlineModel(const std::string& path, std::string_view mix,
                           const RopeOverrides& rope = {});

// The model at `path` for looking at: a config.json, or a folder with one and no weights beside it,
// as OutlineModel; all else as LoadModel, whose weights have types and no numbers. With a `mix` the
// weights have its types, whatever the file has.
Result<Model> LoadHeaders(const std::string& path, std::string_view mix,
                          const RopeOverrides& rope = {});

}  // namespace lucid
