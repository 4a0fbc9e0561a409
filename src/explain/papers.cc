#include "explain/papers.h"

#include <fmt/format.h>

namespace lucid {
namespace {

constexpr Paper kPapers[] = {
    {"bpe", "Sennrich, Haddow, Birch",
     "Neural Machine Translation of Rare Words with Subword Units", 2016, "ACL, arXiv 1508.07909"},
    {"transformer", "Vaswani et al.", "Attention Is All You Need", 2017,
     "NeurIPS, arXiv 1706.03762"},
    {"rms-norm", "Zhang, Sennrich", "Root Mean Square Layer Normalization", 2019,
     "NeurIPS, arXiv 1910.07467"},
    {"gelu", "Hendrycks, Gimpel", "Gaussian Error Linear Units (GELUs)", 2016, "arXiv 1606.08415"},
    {"glu", "Shazeer", "GLU Variants Improve Transformer", 2020, "arXiv 2002.05202"},
    {"rope", "Su et al.", "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021,
     "arXiv 2104.09864"},
    {"alibi", "Press, Smith, Lewis",
     "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
     2022, "ICLR, arXiv 2108.12409"},
    {"ntk", "bloc97, emozilla", "NTK-Aware Scaled RoPE", 2023, "posts on r/LocalLLaMA"},
    {"yarn", "Peng et al.", "YaRN: Efficient Context Window Extension of Large Language Models",
     2023, "arXiv 2309.00071"},
    {"mqa", "Shazeer", "Fast Transformer Decoding: One Write-Head is All You Need", 2019,
     "arXiv 1911.02150"},
    {"gqa", "Ainslie et al.",
     "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints", 2023,
     "EMNLP, arXiv 2305.13245"},
    {"deepseek-v2", "DeepSeek-AI",
     "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", 2024,
     "arXiv 2405.04434"},
    {"deepseek-v3", "DeepSeek-AI", "DeepSeek-V3 Technical Report", 2024, "arXiv 2412.19437"},
    {"switch", "Fedus, Zoph, Shazeer",
     "Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient Sparsity",
     2022, "JMLR, arXiv 2101.03961"},
    {"flash1", "Dao et al.",
     "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", 2022,
     "NeurIPS, arXiv 2205.14135"},
    {"flash2", "Dao",
     "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023,
     "arXiv 2307.08691"},
    {"flash3", "Shah et al.",
     "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-Precision", 2024,
     "NeurIPS, arXiv 2407.08608"},
    {"flash-decoding", "Dao et al.", "Flash-Decoding for long-context inference", 2023,
     "Stanford CRFM blog"},
    {"paged", "Kwon et al.",
     "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023,
     "SOSP, arXiv 2309.06180"},
    {"orca", "Yu et al.",
     "Orca: A Distributed Serving System for Transformer-Based Generative Models", 2022, "OSDI"},
    {"sarathi", "Agrawal et al.",
     "SARATHI: Efficient LLM Inference by Piggybacking Decodes with Chunked Prefills", 2023,
     "arXiv 2308.16369"},
    {"distserve", "Zhong et al.",
     "DistServe: Disaggregating Prefill and Decoding for Goodput-optimized Large Language Model "
     "Serving",
     2024, "OSDI, arXiv 2401.09670"},
    {"leviathan", "Leviathan, Kalman, Matias",
     "Fast Inference from Transformers via Speculative Decoding", 2023, "ICML, arXiv 2211.17192"},
    {"chen", "Chen et al.", "Accelerating Large Language Model Decoding with Speculative Sampling",
     2023, "arXiv 2302.01318"},
    {"medusa", "Cai et al.",
     "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", 2024,
     "arXiv 2401.10774"},
    {"eagle", "Li et al.", "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty",
     2024, "ICML, arXiv 2401.15077"},
    {"lookahead", "Fu et al.",
     "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding", 2024,
     "arXiv 2402.02057"},
    {"streaming", "Xiao et al.", "Efficient Streaming Language Models with Attention Sinks", 2024,
     "ICLR, arXiv 2309.17453"},
    {"h2o", "Zhang et al.",
     "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models", 2023,
     "NeurIPS, arXiv 2306.14048"},
    {"snapkv", "Li et al.", "SnapKV: LLM Knows What You are Looking for Before Generation", 2024,
     "arXiv 2404.14469"},
    {"kivi", "Liu et al.", "KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache", 2024,
     "ICML, arXiv 2402.02750"},
    {"kvquant", "Hooper et al.",
     "KVQuant: Towards 10 Million Context Length LLM Inference with KV Cache Quantization", 2024,
     "NeurIPS, arXiv 2401.18079"},
    {"awq", "Lin et al.",
     "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration", 2023,
     "arXiv 2306.00978"},
    {"min-p", "Nguyen et al.",
     "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", 2024,
     "arXiv 2407.01082"},
    {"nucleus", "Holtzman et al.", "The Curious Case of Neural Text Degeneration", 2020,
     "ICLR, arXiv 1904.09751"},
    {"typical", "Meister et al.", "Locally Typical Sampling", 2023, "TACL, arXiv 2202.00666"},
    {"ctrl", "Keskar et al.",
     "CTRL: A Conditional Transformer Language Model for Controllable Generation", 2019,
     "arXiv 1909.05858"},
    {"distillation", "Hinton, Vinyals, Dean", "Distilling the Knowledge in a Neural Network", 2015,
     "arXiv 1503.02531"},
    {"roofline", "Williams, Waterman, Patterson",
     "Roofline: An Insightful Visual Performance Model for Multicore Architectures", 2009, "CACM"},
    {"h100", "NVIDIA", "H100 Tensor Core GPU Architecture", 2022, "whitepaper"},
    {"chinchilla", "Hoffmann et al.", "Training Compute-Optimal Large Language Models", 2022,
     "arXiv 2203.15556"},
    {"llama3", "Meta AI", "The Llama 3 Herd of Models", 2024, "arXiv 2407.21783"},
    {"mistral", "Jiang et al.", "Mistral 7B", 2023, "arXiv 2310.06825"},
    {"qwen2.5", "Qwen Team", "Qwen2.5 Technical Report", 2024, "arXiv 2412.15115"},
    {"bloom", "BigScience Workshop",
     "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model", 2022, "arXiv 2211.05100"},
    {"mpt", "MosaicML", "Introducing MPT-7B", 2023, "Databricks blog"},
};

}  // namespace

std::span<const Paper> AllPapers() {
  return kPapers;
}

const Paper* FindPaper(std::string_view key) {
  for (const Paper& paper : kPapers) {
    if (paper.key == key) return &paper;
  }
  return nullptr;
}

std::string Cite(const Paper& paper) {
  return fmt::format("{}: {} ({}, {})", paper.authors, paper.title, paper.year, paper.where);
}

}  // namespace lucid
