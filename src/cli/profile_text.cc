// The text of `lucid profile`, for terminals.
#include <fmt/format.h>

#include "cli/profile_report.h"
#include "cli/profile_tables.h"

namespace lucid::cli {

std::string ProfileText(const Engine& engine, const Profile& profile, bool full) {
  std::string text = ProfileTitle(engine, profile) + "\n";
  for (const ProfiledPhase& phase : profile.phases) {
    text += "\n" + ProfileHeading(phase) + "\n";
    for (const std::string& finding : ProfileFindings(phase)) text += "- " + finding + "\n";
    text += "\n" + TableText(ProfileOpTable(phase, full)) + "\n" +
            TableText(ProfileKindTable(phase)) + "\n" + TableText(ProfileStepTable(phase));
    if (!phase.prefill) text += "\n" + TableText(WaterfallTable(profile, phase));
  }
  return text + "\n" + TableText(ProfileLayerTable(profile));
}

}  // namespace lucid::cli
