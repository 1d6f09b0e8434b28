#include "engine/logits_recorder.h"

#include <array>
#include <bit>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

namespace stemma {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

Result<LogitsView> LogitsRecorder::forward(const KvBatch& batch, KvPools pools) {
  STEMMA_ASSIGN_OR_RETURN(const LogitsView logits, inner_.forward(batch, pools));
  vocab_tokens_ = logits.vocab_tokens;
  std::size_t request = 0;
  for (std::int64_t output = 0; output < logits.outputs; ++output) {
    const std::int32_t row = batch.logit_rows[static_cast<std::size_t>(output)];
    while (batch.row_indptr[request + 1] <= row) ++request;
    keep(batch.requests[request], batch.positions[static_cast<std::size_t>(row)],
         logits.row(output));
  }
  return logits;
}

void LogitsRecorder::keep(RequestId request, std::int32_t position, std::span<const float> row) {
  std::vector<float>& rows = rows_[request];
  std::vector<std::int32_t>& positions = positions_[request];
  while (!positions.empty() && positions.back() >= position) {
    positions.pop_back();
    rows.resize(rows.size() - row.size());
  }
  positions.push_back(position);
  rows.insert(rows.end(), row.begin(), row.end());
}

Status LogitsRecorder::write(const std::string& path) const {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::size_t offset_bytes = 0;
  for (const auto& [request, rows] : rows_) {
    const std::size_t end_bytes = offset_bytes + rows.size() * sizeof(float);
    nlohmann::ordered_json& entry = header["logits." + std::to_string(request.value())];
    entry["dtype"] = "F32";
    entry["shape"] = {static_cast<std::int64_t>(rows.size()) / vocab_tokens_, vocab_tokens_};
    entry["data_offsets"] = {offset_bytes, end_bytes};
    offset_bytes = end_bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = std::bit_cast<std::array<char, 8>>(static_cast<std::uint64_t>(text.size()));
  std::ofstream file(path, std::ios::binary);
  file.write(length.data(), length.size());
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const auto& [request, rows] : rows_) {
    file.write(reinterpret_cast<const char*>(rows.data()),
               static_cast<std::streamsize>(rows.size() * sizeof(float)));
  }
  file.close();
  if (!file) return Error{ErrorCode::kIo, "--logits: cannot write " + path, errno};
  return {};
}

}  // namespace stemma
