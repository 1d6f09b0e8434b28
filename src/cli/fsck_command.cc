#include "cli/fsck_command.h"

#include <fmt/format.h>

#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/digest.h"
#include "cli/json_lines.h"
#include "store/directory_files.h"
#include "store/disk_check.h"

namespace stemma {

namespace {

void print_json(const DiskCheckReport& report) {
  for (const DiskFinding& finding : report.findings) {
    nlohmann::ordered_json line = {{"file", finding.file}, {"what", finding.what}};
    if (finding.slot >= 0) {
      line["slot"] = finding.slot;
      line["key"] = to_hex(finding.key.bytes);
    }
    std::cout << json_line(line) << '\n';
  }
  const nlohmann::ordered_json total = {{"findings", report.findings.size()},
                                        {"good_pages", report.good_pages},
                                        {"bad_pages", report.bad_pages},
                                        {"found_pages", report.found_pages},
                                        {"repaired", report.repaired}};
  std::cout << nlohmann::ordered_json{{"summary", total}}.dump() << '\n';
}

void print_text(const DiskCheckReport& report) {
  for (const DiskFinding& finding : report.findings) {
    std::cout << finding.file;
    if (finding.slot >= 0) std::cout << fmt::format(" slot {}", finding.slot);
    std::cout << ": " << finding.what << '\n';
  }
  std::cout << fmt::format("{} pages are right, {} are not", report.good_pages, report.bad_pages);
  if (report.found_pages > 0) {
    std::cout << fmt::format(", {} that the index does not name are right", report.found_pages);
  }
  std::cout << '\n';
}

}  // namespace

FsckCommand::FsckCommand(Flags& program)
    : command_(program.add_command(
          "fsck", "Verify every page of a disk tier; exit code 1 if anything is wrong")) {
  command_.add("directory", directory_, "what --disk of the server names").required();
  command_.add("--repair", repair_, "write the index anew with the pages that are right");
  command_.add("--json", json_, "one JSON object a finding, and a summary");
}

Status FsckCommand::run() {
  const MonotonicClock clock;
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<DirectoryFiles> files,
                          DirectoryFiles::open(directory_, clock, {.create = false}));
  STEMMA_ASSIGN_OR_RETURN(
      const DiskCheckReport report,
      check_disk(*files,
                 {.repair = repair_, .deadline_us = std::numeric_limits<std::int64_t>::max()}));
  json_ ? print_json(report) : print_text(report);
  if (report.findings.empty()) return {};
  return Error{ErrorCode::kCorrupt,
               fmt::format("{}: {} findings, {}", directory_, report.findings.size(),
                           report.repaired ? "repaired" : "not repaired (--repair does)")};
}

}  // namespace stemma
