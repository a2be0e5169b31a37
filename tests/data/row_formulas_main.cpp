int main(int, char** given) {
  Row row;
  double p[4] = {};
  int operands;
  while (std::scanf("%d %ld %ld %lf %lf %lf %lf", &operands, &row.size, &row.label, &row.target,
                    p, p + 1, p + 2) == 7) {
    for (int k = 0; k < 3; ++k) row.x[k] = row.out[k] = std::vector<double>(row.size);
    for (int k = 0; k < operands; ++k)
      for (double& each : row.x[k]) std::scanf("%lf", &each);
#define OF(loss) \
  if (!std::strcmp(given[1], #loss)) { \
    std::printf("%.17g", loss::loss_of(row, p)); \
    loss::slopes_of(row, p, 1.5); \
  }
EACH
    for (int k = 0; k < operands; ++k)
      for (double each : row.out[k]) std::printf(" %.17g", each);
    std::printf("\n");
  }
}
