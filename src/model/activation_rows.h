// Activation rows: the f32 rows that layers compute with, all in one buffer, and what layers do to
// them: products with weights, and operations that see one row at a time.
//
// No function here lets a row's result depend on another row of the batch (I13).
//
// Thread:     called by the thread that owns the ThreadPool; the work is spread over it.
// Memory:     allocate_rows takes all of it, once; nothing else allocates.
// Cost:       that of the products.
// Not here:   the operations on one row (device/row_ops), products (device/gemm).
#pragma once

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "device/buffer.h"
#include "device/gemm.h"
#include "device/packed_weights.h"
#include "stemma/result.h"

namespace stemma {

// Rows of f32, dense. Borrows its memory.
struct Rows {
  float* values = nullptr;  // [rows, columns]
  std::int64_t columns = 0;

  std::span<float> row(std::int64_t r) const {
    return {values + r * columns, static_cast<std::size_t>(columns)};
  }
  // The first `rows` of them, for a product.
  ConstMatrixView read(std::int64_t rows) const { return {values, rows, columns, columns}; }
  MatrixView write(std::int64_t rows) const { return {values, rows, columns, columns}; }
};

// Rows to be placed in a buffer.
struct RowsWanted {
  Rows& rows;
  std::int64_t rows_max = 0;
  std::int64_t columns = 0;
};

// A buffer that holds all of `wanted`, whose rows then point into it; each begins at a cache line.
// kOutOfMemory if it cannot be had.
Result<Buffer> allocate_rows(std::span<const RowsWanted> wanted);

// How much an operation on rows has to do, for how it is spread.
struct RowWork {
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // values of one row that it reads or writes
};

// Calls operation(row) for each row in [0, rows), spread over the threads as far as that is worth
// it: threads that have nothing else to do take some microseconds to begin and to end together.
void for_rows(ThreadPool& threads, const RowWork& work,
              FunctionRef<void(std::int64_t row)> operation);

// The same for rows of which nothing is known.
void for_rows(ThreadPool& threads, std::int64_t rows,
              FunctionRef<void(std::int64_t row)> operation);

}  // namespace stemma
