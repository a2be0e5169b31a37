// The entry points of the CPU.
#pragma once

#include "elementwise.h"

namespace losscli::cpu {

extern const Engine engine;

}  // namespace losscli::cpu
