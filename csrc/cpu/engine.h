// The entry points of the CPU.
#pragma once

#include "elementwise.h"

namespace losscli::cpu {

extern const Engine engine;

// Ask for huge pages under a large fresh allocation: its page faults cost more than its bytes.
void advise_huge_pages(void* data, int64_t bytes);

}  // namespace losscli::cpu
