#include "pool/kv_layout.h"

namespace stemma {

KvStrides kv_strides(const KvShape& shape, KvLayout layout) {
  KvStrides strides;
  strides.head = shape.head_dim;
  strides.token = shape.heads * strides.head;
  const std::int64_t page_elements = shape.page_size * strides.token;
  if (layout == KvLayout::kLayerFirst) {
    strides.page = page_elements;
    strides.layer = shape.pages * page_elements;
  } else {
    strides.layer = page_elements;
    strides.page = shape.layers * page_elements;
  }
  strides.side = shape.layers * shape.pages * page_elements;
  return strides;
}

KvStrides scale_strides(const KvShape& shape, KvLayout layout) {
  KvShape rows = shape;
  rows.head_dim = 1;
  KvStrides strides = kv_strides(rows, layout);
  strides.token = 1;
  strides.head = shape.page_size;
  return strides;
}

}  // namespace stemma
