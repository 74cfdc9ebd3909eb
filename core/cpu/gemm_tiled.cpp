// Matrix product blocked for registers and caches.
//
//   where      what lies there                      size in f32 with AVX-512
//   registers  a tile of sums (register_tile.h)     8 x 32
//   L1         kDepth rows of a panel of b          128 x 32, 16 KiB, read by every tile of a block
//   L2         kDepth columns of a block's rows     64 x 128, 32 KiB, read once a panel
//              the block's sums                     64 x 256, 64 KiB
//   L3         the packed panels of b               8 MiB at a time, more where k > 8192
//
// for an L1 of 32 to 48 KiB, an L2 of 512 KiB or more and an L3 of 8 MiB or more, as processors
// have had for years; larger ones gain little, since a panel row of 128 bytes already serves 64
// rows.
//
// A panel is kTileColumns columns of b, packed: copied in the order in which the innermost loop
// reads them, widened to the type of the sums, and filled with zeros where b ends. All rows of c
// need the panels, so all threads pack them first and then compute. The rows of a that a block
// needs are read in place if they lie by rows, else packed by the task that computes the block.
//
// Where k is longer than m, as in the gradient of a weight, which sums over all tokens, the panels
// would be larger than what they are needed for. Then nothing is shared: each task packs, a piece
// of k at a time, what its block needs of both operands, into 64 KiB and 128 KiB of the L2 that it
// reads them from, and blocks are twice as tall.
//
// Each sum runs over k in order: in a register, and between two pieces of k in memory of its own
// type. So an element's bits depend on its row of a and its column of b and on nothing else: not
// the threads, the other rows and columns, how operands lie, or how c is cut into blocks. A product
// of no more rows than a tile has, which would read its panels only once, makes none and adds up in
// the same order (gemm_few_rows.h).

#include "core/cpu/gemm_backends.h"
#include "core/cpu/gemm_few_rows.h"
#include "core/cpu/gemm_pack.h"
#include "core/cpu/gemm_scratch.h"
#include "core/cpu/register_tile.h"

namespace xtrain {
namespace {

constexpr int64_t kDepth = 128;        // of k, between two visits of a sum to memory
constexpr int64_t kMostRows = 64;      // of a block that shares its panels,
constexpr int64_t kMostOwnRows = 128;  // and of one that packs its own
constexpr int64_t kFewestRows = 48;    // aimed at; far fewer would read each panel too often
constexpr int64_t kMostColumns = 256;  // of a block; more columns make fewer tasks pack the same a
constexpr int64_t kBlocks = 32;        // wanted of a product, for threads to share evenly
constexpr int64_t kPackedElements = int64_t{1} << 21;

// What outweighs waking a thread, some 10 microseconds of work.
constexpr int64_t kPieceProducts = int64_t{1} << 20;
constexpr int64_t kPieceElements = int64_t{1} << 16;

// What is packed at a time: columns of some matrices b. With more than one matrix, all columns.
struct Chunk {
  int64_t first_batch, batches, first_column, columns;

  // Panels follow each other within a matrix, matrices follow each other.
  template <class A>
  int64_t panel_offset(int64_t batch, int64_t column, int64_t k) const {
    return (batch * round_up(columns, kTileColumns<A>) + column) * k;
  }
};

// The largest chunk: as many whole matrices as kPackedElements allows, or as many columns of one,
// but no fewer than a block has.
template <class A>
Chunk largest_chunk(const GemmProblem& p) {
  const int64_t all_columns = round_up(p.n, kTileColumns<A>), depth = std::max<int64_t>(1, p.k);
  const int64_t columns = kPackedElements / depth / kTileColumns<A> * kTileColumns<A>;
  if (columns < all_columns) {
    return {0, 1, 0, std::min(all_columns, std::max(kMostColumns, columns))};
  }
  return {0, std::clamp<int64_t>(columns / all_columns, 1, p.batches()), 0, all_columns};
}

// Packs lines [begin, end) of columns [first, last) of b; `panels` is where the first element goes,
// and panels are `stride` elements apart.
template <class T, class A>
void pack_panels(const GemmProblem& p, const T* b, int64_t begin, int64_t end, int64_t first,
                 int64_t last, A* panels, int64_t stride) {
  constexpr int64_t kWidth = kTileColumns<A>;
  for (int64_t k = begin; k < end; k += kLinesAtOnce) {
    A* panel = panels + (k - begin) * kWidth;
    for (int64_t column = first; column < last; column += kWidth, panel += stride) {
      const T* source = b + offset_in(p.b, k, column);
      const int64_t columns = std::min(kWidth, last - column);
      const int64_t depth = std::min(kLinesAtOnce, end - k);
      if (p.b.transposed) {
        pack_transposed<kWidth>(source, p.b.ld, columns, depth, panel);
      } else {
        pack_lines<kWidth>(source, p.b.ld, columns, depth, panel);
      }
    }
  }
}

// Packs the chunk's panels, cut into pieces of some rows and columns of b.
template <class T, class A>
void pack_chunk(const Cpu& cpu, const GemmProblem& p, const Chunk& chunk, const T* b, A* panels) {
  constexpr int64_t kWidth = kTileColumns<A>, kRows = 64, kColumns = 256;
  const int64_t across = ceil_div(chunk.columns, kColumns), down = ceil_div(p.k, kRows);
  const auto pack_piece = [&](int64_t piece) {
    const int64_t batch = piece / across / down;
    const int64_t begin = piece / across % down * kRows, end = std::min(p.k, begin + kRows);
    const int64_t first = piece % across * kColumns;
    const int64_t last = std::min(chunk.columns, first + kColumns);
    const T* matrix = b + p.batch_offset(p.batch_stride_b, chunk.first_batch + batch);
    pack_panels(p, matrix, begin, end, chunk.first_column + first, chunk.first_column + last,
                panels + chunk.panel_offset<A>(batch, first, p.k) + begin * kWidth, p.k * kWidth);
  };
  const int64_t elements = std::min(chunk.columns, kColumns) * std::min(p.k, kRows);
  const int64_t together = kPieceElements / std::max<int64_t>(1, elements);
  parallel_blocks(cpu, chunk.batches * down * across, std::max<int64_t>(1, together),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t piece = begin; piece < end; ++piece) pack_piece(piece);
                  });
}

// Part of c: rows and columns of one matrix.
struct Block {
  int64_t first_row, last_row, first_column, last_column;  // without the last

  int64_t row_tiles() const { return ceil_div(last_row - first_row, kTileRows); }
  int64_t rows_of_tile(int64_t t) const {
    return std::min(kTileRows, last_row - first_row - t * kTileRows);
  }
};

// Tiles of columns [begin, begin + depth) of a, which lies by columns: copied to `packed`.
template <class T, class A>
void take_columns(const GemmProblem& p, const Block& block, const T* a, int64_t begin,
                  int64_t depth, A* packed, TileMatrix<A>* tiles) {
  for (int64_t t = 0; t < block.row_tiles(); ++t) {
    tiles[t] = {packed + t * kTileRows * kDepth, 1, kTileRows};
  }
  for (int64_t k = 0; k < depth; k += kLinesAtOnce) {
    for (int64_t t = 0; t < block.row_tiles(); ++t) {
      const T* source = a + offset_in(p.a, block.first_row + t * kTileRows, begin + k);
      pack_lines<kTileRows>(source, p.a.ld, block.rows_of_tile(t),
                            std::min(kLinesAtOnce, depth - k),
                            packed + t * kTileRows * kDepth + k * kTileRows);
    }
  }
}

// The same of a that lies by rows: in place where complete and of the right type, else copied.
template <class T, class A>
void take_rows(const GemmProblem& p, const Block& block, const T* a, int64_t begin, int64_t depth,
               A* packed, TileMatrix<A>* tiles) {
  for (int64_t t = 0; t < block.row_tiles(); ++t) {
    const T* source = a + offset_in(p.a, block.first_row + t * kTileRows, begin);
    if constexpr (std::is_same_v<T, A>) {
      if (block.rows_of_tile(t) == kTileRows) {
        tiles[t] = {source, p.a.ld, 1};
        continue;
      }
    }
    A* tile = packed + t * kTileRows * kDepth;
    for (int64_t i = 0; i < block.rows_of_tile(t); ++i) {
#pragma omp simd
      for (int64_t k = 0; k < depth; ++k)
        tile[i * depth + k] = static_cast<A>(source[i * p.a.ld + k]);
    }
    std::fill(tile + block.rows_of_tile(t) * depth, tile + kTileRows * depth, A{0});
    tiles[t] = {tile, depth, 1};
  }
}

// Whether the sums of a tile can grow in c itself: a whole tile of what c shall hold.
template <class A>
bool stay_in_c(const GemmProblem& p, int64_t rows, int64_t columns) {
  return p.alpha == 1.0 && p.beta == 0.0 && rows == kTileRows && columns == kTileColumns<A>;
}

// Computes a block of c from `panels`, which start with the block's first column, or where they are
// null from b, of which it packs pieces for itself. Takes 320 KiB of stack in f32, 640 in f64.
template <class T, class Out>
void multiply_block(const GemmProblem& p, const Block& block, const T* a, const T* b,
                    const Accumulator<T>* panels, Out* c) {
  using A = Accumulator<T>;
  constexpr int64_t kWidth = kTileColumns<A>, kRows = round_up(kMostOwnRows, kTileRows);
  alignas(kVectorBytes) A packed[kRows * kDepth];
  alignas(kVectorBytes) A own_panels[kDepth * kMostColumns];
  alignas(kVectorBytes) A sums[kRows * kMostColumns];  // tile after tile
  TileMatrix<A> tiles[kRows / kTileRows];
  const int64_t pieces = std::max<int64_t>(1, ceil_div(p.k, kDepth));  // k 0: the sums are 0
  for (int64_t piece = 0; piece < pieces; ++piece) {
    const int64_t begin = piece * kDepth, depth = std::min(kDepth, p.k - begin);
    if (p.a.transposed) {
      take_columns(p, block, a, begin, depth, packed, tiles);
    } else {
      take_rows(p, block, a, begin, depth, packed, tiles);
    }
    if (!panels) {
      pack_panels(p, b, begin, begin + depth, block.first_column, block.last_column, own_panels,
                  kDepth * kWidth);
    }
    const A* panel = panels ? panels + begin * kWidth : own_panels;
    const int64_t to_next_panel = panels ? p.k * kWidth : kDepth * kWidth;
    A* tile = sums;
    for (int64_t column = block.first_column; column < block.last_column;
         column += kWidth, panel += to_next_panel) {
      const int64_t columns = std::min(kWidth, block.last_column - column);
      for (int64_t t = 0; t < block.row_tiles(); ++t, tile += kTileRows * kWidth) {
        const int64_t rows = block.rows_of_tile(t);
        Out* target = c + (block.first_row + t * kTileRows) * p.ldc + column;
        if constexpr (std::is_same_v<A, Out>) {
          if (stay_in_c<A>(p, rows, columns)) {
            multiply_tile(depth, tiles[t], panel, kWidth, piece > 0, target, p.ldc);
            continue;
          }
        }
        multiply_tile(depth, tiles[t], panel, kWidth, piece > 0, tile, kWidth);
        if (piece + 1 < pieces) continue;
        for (int64_t i = 0; i < rows; ++i) {
          store_sums(p, columns, tile + i * kWidth, target + i * p.ldc);
        }
      }
    }
  }
}

// How c, or the columns of a chunk of it, is cut into blocks.
struct Grid {
  int64_t rows, columns;              // of a block
  int64_t row_blocks, column_blocks;  // of a matrix

  // At most down x across blocks, whose borders lie between tiles.
  Grid(const GemmProblem& p, int64_t all_columns, int64_t down, int64_t across, int64_t width)
      : rows(round_up(ceil_div(p.m, down), kTileRows)),
        columns(round_up(ceil_div(all_columns, across), width)),
        row_blocks(ceil_div(p.m, rows)),
        column_blocks(ceil_div(all_columns, columns)) {}

  // Block i of a matrix.
  Block block(const GemmProblem& p, int64_t i, int64_t all_columns) const {
    const int64_t row = i / column_blocks * rows, column = i % column_blocks * columns;
    return {row, std::min(p.m, row + rows), column, std::min(all_columns, column + columns)};
  }
};

// Rows are cut before columns: they share the packed panels, while blocks side by side pack the
// same rows of a.
template <class A>
Grid grid_of_chunk(const GemmProblem& p, const Chunk& chunk) {
  const int64_t across = ceil_div(chunk.columns, kMostColumns);
  const int64_t wanted = ceil_div(kBlocks, across * chunk.batches);
  const int64_t rows = std::clamp(ceil_div(p.m, wanted), kFewestRows, kMostRows);
  return Grid(p, chunk.columns, ceil_div(p.m, rows), across, kTileColumns<A>);
}

// The largest blocks that all threads get an equal number of, or so many that it matters little;
// failing both, the smallest.
template <class A>
Grid grid_of_own_panels(const Cpu& cpu, const GemmProblem& p) {
  const int64_t across = ceil_div(p.n, kMostColumns), most_down = ceil_div(p.m, kFewestRows);
  int64_t down = ceil_div(p.m, kMostOwnRows);
  const auto uneven = [&] {
    const int64_t blocks = p.batches() * across * down;
    return blocks < 4 * cpu.threads() && blocks % cpu.threads() > 0;
  };
  while (down < most_down && uneven()) ++down;
  return Grid(p, p.n, down, across, kTileColumns<A>);
}

// Computes the chunk's columns of c from its panels; without any, each block packs its own.
template <class T, class Out>
void multiply_chunk(const Cpu& cpu, const GemmProblem& p, const Chunk& chunk, const Grid& grid,
                    const T* a, const T* b, const Accumulator<T>* panels, Out* c) {
  const int64_t blocks = grid.row_blocks * grid.column_blocks;
  const auto multiply = [&](int64_t i) {
    const int64_t matrix = i / blocks, batch = chunk.first_batch + matrix;
    Block block = grid.block(p, i % blocks, chunk.columns);
    const auto offset = chunk.panel_offset<Accumulator<T>>(matrix, block.first_column, p.k);
    block.first_column += chunk.first_column;
    block.last_column += chunk.first_column;
    multiply_block(p, block, a + p.batch_offset(p.batch_stride_a, batch),
                   b + p.batch_offset(p.batch_stride_b, batch), panels ? panels + offset : nullptr,
                   c + p.batch_offset(p.batch_stride_c, batch));
  };
  const int64_t products = std::min(p.m, grid.rows) * grid.columns * std::max<int64_t>(1, p.k);
  parallel_blocks(cpu, chunk.batches * blocks, std::max<int64_t>(1, kPieceProducts / products),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) multiply(i);
                  });
}

}  // namespace

template <class T, class Out>
void tiled_gemm(const Cpu& cpu, const GemmProblem& p, const T* a, const T* b, Out* c) {
  using A = Accumulator<T>;
  if (p.m <= kTileRows) return few_rows_gemm(cpu, p, a, b, c);
  if (p.k > p.m) {
    const Chunk all{0, p.batches(), 0, p.n};
    return multiply_chunk<T, Out>(cpu, p, all, grid_of_own_panels<A>(cpu, p), a, b, nullptr, c);
  }
  const Chunk largest = largest_chunk<A>(p);
  Scratch<A> panels(cpu.ctx, largest.batches * largest.columns * p.k);
  for (int64_t batch = 0; batch < p.batches(); batch += largest.batches) {
    for (int64_t column = 0; column < p.n; column += largest.columns) {
      const Chunk chunk{batch, std::min(largest.batches, p.batches() - batch), column,
                        std::min(largest.columns, p.n - column)};
      pack_chunk(cpu, p, chunk, b, panels.data());
      multiply_chunk<T, Out>(cpu, p, chunk, grid_of_chunk<A>(p, chunk), a, b, panels.data(), c);
    }
  }
}

template void tiled_gemm(const Cpu&, const GemmProblem&, const double*, const double*, double*);
template void tiled_gemm(const Cpu&, const GemmProblem&, const float*, const float*, float*);
template void tiled_gemm(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*,
                         BFloat16*);
template void tiled_gemm(const Cpu&, const GemmProblem&, const BFloat16*, const BFloat16*, float*);

}  // namespace xtrain
