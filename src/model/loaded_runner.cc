#include "model/loaded_runner.h"

#include <utility>

#include "base/file.h"

namespace stemma {

Result<Adapter> LoadedRunner::read_adapter(const AdapterSource& source, ThreadPool& threads) const {
  PosixFiles files;
  return load_adapter(files, source, config(), threads);
}

Status LoadedRunner::load_all(std::span<const AdapterSource> sources, Files& files,
                              ThreadPool& threads, const Shard& shard) {
  for (const AdapterSource& source : sources) {
    const Status named = book_.check_name(source.name);
    if (!named.ok()) {
      return Error{named.error().code, source.directory + ": " + named.error().detail};
    }
    STEMMA_ASSIGN_OR_RETURN(Adapter adapter, load_adapter(files, source, config(), threads, shard));
    STEMMA_RETURN_IF_ERROR(place_adapter(std::move(adapter)));
  }
  return {};
}

Status LoadedRunner::place_adapter(Adapter adapter, bool in_place) {
  const bool replaces = in_place && book_.find(adapter.name);
  if (!replaces) STEMMA_RETURN_IF_ERROR(book_.check_name(adapter.name));
  const AdapterId place = book_.free_place();
  AdapterIdentity identity = {adapter.name, adapter.digest};
  STEMMA_RETURN_IF_ERROR(put(place, std::move(adapter)));
  return book_.add(std::move(identity), place, replaces);
}

void LoadedRunner::drop_ended_adapters() {
  for (const AdapterId place : book_.free_ended()) drop(place);
}

}  // namespace stemma
