#include "rowwise/cpu/walk_rows.h"
namespace losscli::cpu {
template <typename Stored, typename Real>
Compensated walk_panels(const Call<Stored, Real>&, const LaunchContext&) { return {}; }
template <typename Stored, typename Real>
bool fit_panels(const Call<Stored, Real>&) { return false; }
#define I(S,R) template Compensated walk_panels(const Call<S, R>&, const LaunchContext&); template bool fit_panels(const Call<S, R>&);
I(float,float) I(float,double) I(double,double) I(Half,float) I(Half,double) I(BFloat16,float) I(BFloat16,double)
}
