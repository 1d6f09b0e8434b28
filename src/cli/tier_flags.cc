#include "cli/tier_flags.h"

#include "cli/flag_errors.h"
#include "cli/secret_file.h"
#include "cli/sizes.h"

namespace stemma {

void TierFlags::add_to(Flags& command) {
  command.add("--host-bytes", host_bytes_, "host memory for pages that left the device")
      .capture_default_str();
  const auto add_of_tiers = [&](const char* name, auto& value, const char* help) {
    of_any_tier_.push_back(command.add(name, value, help).capture_default_str());
  };
  add_of_tiers("--host-layout", host_layout_, "page_first layer_first");
  add_of_tiers("--tier-codec", codec_,
               "plain int8 int4: how pages are packed below the device; all but plain change "
               "answers a little");
  command.add("--host-file", host_file_,
              "FILE that host memory is written to at the end and read from at the start");
  command.add("--disk", disk_, "directory of pages on disk; they survive a restart");
  command.add("--disk-bytes", disk_bytes_, "of everything in that directory, at most")
      .needs("--disk")
      .capture_default_str();
  command.add("--remote", remote_,
              "pages that several engines share: redis://HOST:PORT, redis-cluster://..., "
              "redis-sentinel://.../NAME, unix://PATH");
  command
      .add("--remote-secret", remote_secret_file_,
           "FILE with a secret that pages in the remote store are sealed with")
      .needs("--remote");
  command.add("--purge-file", purge_file_,
              "FILE in which purges that stores have not confirmed outlive the process; "
              "default: DIR/purges of --disk DIR");
  add_of_tiers("--write-policy", write_policy_,
               "when pages go down: write-through as soon as they are computed; "
               "write-through-selective once they were used --selective-uses times; write-back "
               "before they leave the device, with --disk or --remote also once used so often");
  add_of_tiers(
      "--selective-uses", selective_uses_,
      "uses after which pages are copied at once, unless write-back has host memory alone");
  add_of_tiers("--load-wait-ms", load_wait_ms_,
               "how long a request waits for pages before it computes what is missing");
  command
      .add("--shadow-audit", shadow_audit_percent_,
           "percent of the hits of which a page is computed again and compared")
      .capture_default_str();
}

Status TierFlags::apply(ServedModelOptions& options) const {
  ServedTierOptions& tiers = options.tiers;
  STEMMA_ASSIGN_OR_RETURN(tiers.host_bytes, parse_bytes(host_bytes_, "--host-bytes"));
  STEMMA_ASSIGN_OR_RETURN(tiers.disk_bytes, parse_bytes(disk_bytes_, "--disk-bytes"));
  tiers.host_layout = host_layout_;
  tiers.codec = codec_;
  tiers.host_file = host_file_;
  tiers.purge_file = purge_file_;
  tiers.disk_directory = disk_;
  tiers.remote_url = remote_;
  if (!remote_secret_file_.empty()) {
    STEMMA_ASSIGN_OR_RETURN(tiers.remote_secret,
                            read_secret_file(remote_secret_file_, "--remote-secret"));
  }
  TierOptions& moves = options.engine.kv.tiers;
  const auto policy = parse_write_policy(write_policy_);
  if (!policy.ok()) return of_flag("--write-policy", policy);
  moves.write_policy = *policy;
  moves.selective_uses = selective_uses_;
  if (!(load_wait_ms_ >= 0 && load_wait_ms_ <= 3.6e6)) {
    return Error{ErrorCode::kInvalidArgument, "--load-wait-ms must be from 0 to 3600000"};
  }
  moves.load_wait_us = static_cast<std::int64_t>(load_wait_ms_ * 1000);
  if (!(shadow_audit_percent_ >= 0 && shadow_audit_percent_ <= 100)) {
    return Error{ErrorCode::kInvalidArgument, "--shadow-audit must be from 0 to 100"};
  }
  options.engine.shadow_audit_percent = shadow_audit_percent_;
  return check_has_effect(tiers);
}

// What is said of a tier that is not there would mean the same as nothing.
Status TierFlags::check_has_effect(const ServedTierOptions& tiers) const {
  if (tiers.host_bytes > 0 || !disk_.empty() || !remote_.empty()) return {};
  for (const Flag& flag : of_any_tier_) {
    if (flag.count() == 0) continue;
    return Error{ErrorCode::kInvalidArgument,
                 flag.get_name() + " needs --host-bytes, --disk or --remote"};
  }
  return {};
}

CommandFiles TierFlags::files() const {
  return {.written = {{"--host-file", host_file_}, {"--purge-file", purge_file_}},
          .read = {{"--remote-secret", remote_secret_file_}}};
}

}  // namespace stemma
