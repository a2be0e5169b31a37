// What the library of a loss over rows exports.
#include "rows/cpu/entry.h"

namespace losscli::cpu {
namespace {

Needs nothing(const RowArguments&, const DeviceFacts&) { return {}; }

const RowKernels kernels{kInterface, 2, 5, nothing, run_rows};

}  // namespace
}  // namespace losscli::cpu

LOSSCLI_EXPORT const losscli::RowKernels* losscli_row_kernels() { return &losscli::cpu::kernels; }
