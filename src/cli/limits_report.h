// What lucid limits prints for people.
#pragma once

#include <string>
#include <vector>

#include "account/kernel_use.h"
#include "account/machine.h"

namespace lucid::cli {

// A line about the machine, a Markdown table with a column per number of threads, and remarks.
std::string LimitsText(const Machine& machine);

// A Markdown table: each instruction set, whether its kernels run, why not, what it needs, and for
// which ops it has kernels.
std::string DispatchText(const std::vector<IsaStatus>& rows);

// 350'000'000 -> "350 MB", powers of 1000, as bandwidths count.
std::string DecimalBytes(double bytes);

}  // namespace lucid::cli
