#include "engine/describe.h"

#include "format/checkpoint.h"
#include "models/load.h"

namespace lucid {

Result<std::vector<std::string>> DescribePositions(const std::string& path,
                                                   const RopeOverrides& rope) {
  LUCID_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(path));
  LUCID_ASSIGN_OR_RETURN(const ArchAndConfig read, ReadModelConfig(*checkpoint, rope));
  return DescribePositions(read.config);
}

}  // namespace lucid
