#include "cli/probe_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/machine_entropy.h"
#include "cli/secret_file.h"
#include "server/timing_probe.h"

namespace stemma {

namespace {

void print_text(const TimingProbeReport& report) {
  std::cout << fmt::format("within a tenant: AUC {:.3f} (cached {:.0f} us, fresh {:.0f} us)\n",
                           report.within_auc, report.own_us, report.fresh_us);
  if (!report.across_auc.has_value()) return;
  std::cout << fmt::format("across tenants:  AUC {:.3f} (the other's {:.0f} us, fresh {:.0f} us)\n",
                           *report.across_auc, report.others_us, report.fresh_us);
}

void print_json(const TimingProbeReport& report) {
  nlohmann::ordered_json line;
  line["probes"] = report.probes;
  line["within_auc"] = report.within_auc;
  line["across_auc"] = report.across_auc.has_value() ? nlohmann::ordered_json(*report.across_auc)
                                                     : nlohmann::ordered_json();
  line["fresh_us"] = report.fresh_us;
  line["own_us"] = report.own_us;
  line["others_us"] = report.others_us;
  std::cout << line.dump() << '\n';
}

}  // namespace

ProbeCommand::ProbeCommand(Flags& program)
    : command_(program.add_command(
          "probe", "Measure whether a server's times tell what it has cached, and for whom")) {
  command_.add("url", url_, "http://HOST:PORT")
      .check([](std::string_view url) -> Status {
        const auto parsed = parse_http_url(url);
        return parsed.ok() ? Status() : Status(parsed.error());
      })
      .required();
  command_.add("--key", key_file_, "FILE with the key of the one who probes");
  command_
      .add("--other-key", other_key_file_,
           "FILE with another tenant's key: whose prompts are looked for")
      .needs("--key");
  command_.add("--probes", probes_, "prompts a side")
      .check_range(1, 1'000'000)
      .capture_default_str();
  command_.add("--words", words_, "of a prompt").check_range(1, 100'000).capture_default_str();
  command_.add("--json", json_, "one JSON object");
}

Status ProbeCommand::run() {
  TimingProbeOptions options;
  STEMMA_ASSIGN_OR_RETURN(options.server, parse_http_url(url_));
  if (!key_file_.empty()) {
    STEMMA_ASSIGN_OR_RETURN(options.key, read_secret_file(key_file_, "--key"));
  }
  if (!other_key_file_.empty()) {
    STEMMA_ASSIGN_OR_RETURN(options.other_key, read_secret_file(other_key_file_, "--other-key"));
  }
  options.probes = probes_;
  options.words = words_;
  options.seed = machine_entropy();
  if (isatty(STDERR_FILENO) != 0) {
    options.progress = [this](std::int64_t done) {
      std::cerr << fmt::format("\r{} of {} probes{}", done, probes_, done == probes_ ? "\n" : "");
    };
  }
  STEMMA_ASSIGN_OR_RETURN(const TimingProbeReport report, run_timing_probe(options));
  json_ ? print_json(report) : print_text(report);
  return {};
}

}  // namespace stemma
