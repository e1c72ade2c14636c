// The files of src/report/page/, which are part of the program.
#pragma once

#include <string_view>

namespace ac {

struct ReportFiles {
  std::string_view page, style, script;
};

const ReportFiles& report_files();

}  // namespace ac
