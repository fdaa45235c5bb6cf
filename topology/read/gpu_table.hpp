// Square tables whose rows and columns are GPUs (and NICs), as nvidia-smi prints them: found in whatever text stands
// around, and every cell put under its column, or under none where damage leaves a doubt. Which words may stand in a
// cell, and what they mean, is for the readers of each table.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/read/text_table.hpp"

namespace shardscope::topology {

/// The words of one kind of table.
struct CellCodes {
  /// Lengths of the codes that `text` starts with, 0 for none: two for "NV12…", which may be NV12 or NV1 and more.
  std::array<size_t, 2> (*starts)(std::string_view text);
  /// Whether a word belongs to another kind of table: a row of such words is not ours.
  bool (*foreign)(std::string_view word);
};
bool is_code(std::string_view word, const CellCodes& codes);

struct TableColumn {
  enum class Kind : uint8_t { kGpu, kNic, kElided };

  Kind kind = Kind::kGpu;
  std::string name;
  int gpu = -1;  // of kGpu: its number

  bool operator==(const TableColumn&) const = default;
};
/// What may stand behind the cells of a row, in this order.
enum class TailColumn : uint8_t { kCpus, kNuma, kGpuNuma };

struct TableHeader {
  std::vector<TableColumn> columns;
  std::optional<std::vector<TailColumn>> tail;  // nullopt: damaged
  bool elided = false;                          // "..." at its end
  bool fused = false;                           // blanks between names are lost
};
/// nullopt if the words are no header. `words` begin with the first GPU.
std::optional<TableHeader> header_of(const std::vector<std::string_view>& words, const CellCodes& codes);

/// One part of a row.
struct TableElement {
  enum class Kind : uint8_t { kCode, kTail, kDots, kOther };

  Kind kind = Kind::kOther;
  std::string text;
};
/// The elements of a row behind its label. Words that lost the blank between them are split where there is one way to
/// do it; sets `fused` if so.
std::vector<TableElement> elements_of(std::string_view text, const CellCodes& codes, bool& fused);

/// Lines of a table as they were found.
struct FoundRow {
  int line = 0;
  TableColumn label;
  std::vector<std::string> parts;  // the text behind the label; more than one: lines that may continue it
  bool ends_text = false;          // nothing follows: the text may have been cut inside this row
  bool doubtful = false;           // another row of that label says something else
};
struct FoundTable {
  std::optional<int> header_line;
  std::vector<std::string> header_parts;
  std::vector<FoundRow> rows;  // none: a header alone
};
/// The lines of the first table in `plain` (a plain_text); nullopt if there is neither a row nor a header that says
/// "Affinity". Throws UserError for thousands of them.
std::optional<FoundTable> find_table_lines(std::string_view plain, const std::string& file, const CellCodes& codes,
                                           Faults& faults);

struct TableRow {
  int line = 0;
  size_t column = 0;                              // its label's
  std::vector<std::optional<std::string>> cells;  // of each column; nullopt: not there, or not certain where it
                                                  // belongs; "X" stands nowhere but under the row's own label
  std::vector<std::string> tail;
  bool cut = false;  // its last word is left out, because the text may end inside it
};
struct GpuTable {
  std::vector<TableColumn> columns;
  std::optional<std::vector<TailColumn>> tail;  // nullopt: no header tells
  std::vector<TableRow> rows;
  bool nics_known = true;  // false: columns of NICs may be missing
};
/// The first table in `plain`. nullopt if there is none; one without rows if there is a header alone. Throws UserError
/// for more than 64 GPUs or 256 NICs.
std::optional<GpuTable> find_gpu_table(std::string_view plain, const std::string& file, const CellCodes& codes,
                                       Faults& faults);

/// What stands behind the cells of GPUs' rows of `topo -m`: fills in cpu_affinity, numa_nodes and gpu_numa_id.
void read_smi_tails(const GpuTable& table, Topology& topology, Faults& faults);

}  // namespace shardscope::topology
