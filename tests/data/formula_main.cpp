#include <cstdio>
#include <cstdlib>
int main(int, char** given) {
  const double p = std::atof(given[1]);
  double x, y;
  while (std::scanf("%lf %lf", &x, &y) == 2)
    std::printf("%.17g %.17g %.17g\n", value_of<double>(x, y, p),
                slope_of<double>(x, y, p, false), slope_of<double>(x, y, p, true));
}
