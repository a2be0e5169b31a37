
#include <cstring>
#include <string>
#define EXPORT extern "C" __attribute__((visibility("default")))
static std::string history;
static const char* note(std::string line) { history += line + "\n"; return nullptr; }
static int value(const void* table) { return *static_cast<const int*>(table); }
EXPORT const char* losscli_attach_loss(const char* name) {
  if (!strcmp(name, REFUSED)) return "mse: the kernels have 3 operands, the operator has 2";
  return note(std::string("loss ") + name);
}
EXPORT const char* losscli_attach_kernels(const char* name, const char* device, int strategies,
                                          const void* kernels) {
  return note(std::string("kernels ") + name + " " + device + " " + std::to_string(strategies) +
              " " + std::to_string(value(kernels)));
}
EXPORT const char* losscli_attach_row_loss(const char* name, const char* roles,
                                           const char* doubling, int second_dimension, int wide) {
  return note(std::string("row loss ") + name + " " + roles + " " + doubling + " " +
              std::to_string(second_dimension) + " " + std::to_string(wide));
}
EXPORT const char* losscli_attach_row_kernels(const char* name, const char* device,
                                              const void* kernels) {
  return note(std::string("row kernels ") + name + " " + device + " " +
              std::to_string(value(kernels)));
}
EXPORT const char* losscli_attach_part_kernels(const char* device, const void* kernels) {
  return note(std::string("part kernels ") + device + " " + std::to_string(value(kernels)));
}
EXPORT const char* losscli_attach_probe(const char* device, const void* probe) {
  return note(std::string("probe ") + device + " " + std::to_string(value(probe)));
}
EXPORT const char* losscli_history() { return history.c_str(); }
