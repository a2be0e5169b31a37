// Turns what a launch may throw into a status.
#pragma once

#include <exception>
#include <new>

#include "core/launch.h"

namespace losscli::cpu {

template <typename Launch>
Status guarded(Launch launch) {
  try {
    launch();
    return {};
  } catch (const std::bad_alloc&) {
    return Status::failure(StatusCode::out_of_memory, "no memory for the sums of its parts");
  } catch (const std::exception& error) {
    return Status::failure(StatusCode::failed, error.what());
  } catch (...) {
    return Status::failure(StatusCode::failed, "an unknown error");
  }
}

}  // namespace losscli::cpu
