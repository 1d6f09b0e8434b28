#include "replay/trace_reader.h"

#include <utility>

#include "replay/trace_fields.h"

namespace stemma {

Result<TraceRequest> parse_trace_line(std::string_view line, const TraceFormat& format,
                                      std::string_view where) {
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<TraceParser> parser,
                          make_trace_parser({.format = format}));
  STEMMA_RETURN_IF_ERROR(parser->take(line, where));
  TraceRequest request;
  if (!parser->try_next(request)) return wrong_trace_field(where, "line", "holds no request");
  return request;
}

Result<TraceReader> TraceReader::open(const std::string& path, const TraceOptions& options,
                                      std::size_t places) {
  STEMMA_ASSIGN_OR_RETURN(std::unique_ptr<TraceParser> parser, make_trace_parser(options));
  STEMMA_ASSIGN_OR_RETURN(LineReader lines, LineReader::open(path, kTraceLineBytesMax));
  return TraceReader(std::move(lines), std::move(parser), options, places);
}

Result<TraceReader> TraceReader::open(const std::string& path, std::string_view format,
                                      bool skip_bad) {
  TraceOptions options{.skip_bad = skip_bad};
  STEMMA_ASSIGN_OR_RETURN(options.format, find_trace_format(format));
  return open(path, options);
}

TraceReader::TraceReader(LineReader lines, std::unique_ptr<TraceParser> parser,
                         const TraceOptions& options, std::size_t places)
    : lines_(std::move(lines)),
      parser_(std::move(parser)),
      skip_bad_(options.skip_bad),
      consistency_({.places = parser_->hashes_are_chained() ? places : 0,
                    .in_order_of_time = options.reorder_requests == 1}) {}

Result<bool> TraceReader::next(TraceRequest& request) {
  for (;;) {
    if (parser_->try_next(request)) {
      const Status consistent = consistency_.check(request, where());
      if (consistent.ok()) return true;
      STEMMA_RETURN_IF_ERROR(leave_out(consistent.error()));
    } else if (ended_) {
      return false;
    } else {
      STEMMA_ASSIGN_OR_RETURN(const bool more, read_line());
      if (!more) parser_->end();
      ended_ = !more;
    }
  }
}

Result<bool> TraceReader::read_line() {
  std::string_view line;
  STEMMA_ASSIGN_OR_RETURN(const LineReader::Outcome outcome, lines_.next(line));
  if (outcome == LineReader::Outcome::kEnd) return false;
  const Status taken =
      outcome == LineReader::Outcome::kTooLong
          ? wrong_trace_field(where(), "line",
                              "longer than " + std::to_string(kTraceLineBytesMax) + " bytes")
          : parser_->take(line, where());
  if (!taken.ok()) STEMMA_RETURN_IF_ERROR(leave_out(taken.error()));
  return true;
}

Status TraceReader::leave_out(Error error) {
  if (!skip_bad_) return error;
  ++skipped_lines_;
  return {};
}

}  // namespace stemma
