#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>
#define EVERYWHERE
struct Row {
  std::vector<double> x[3], out[3];
  int64_t size, label;
  double target;
  double at(int k, int64_t i) const { return x[k][i]; }
  void write(int k, int64_t i, double value) const {
    const_cast<Row*>(this)->out[k][i] = value;
  }
  template <typename F> double sum(F f) const {
    double total = 0;
    for (int64_t i = 0; i < size; ++i) total += f(i);
    return total;
  }
  template <typename F> double max(F f) const {
    double top = -INFINITY;
    for (int64_t i = 0; i < size; ++i) top = std::fmax(top, f(i));
    return top;
  }
  template <typename F> void each(F f) const { for (int64_t i = 0; i < size; ++i) f(i); }
};
