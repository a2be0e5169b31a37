#!/bin/sh
command="$*"
if [ "$1" = --version ]; then
  cat <<'EOF'
@VERSION@
EOF
  exit
fi
while [ $# -gt 0 ]; do
  case "$1" in
    -c) source=$2 ;;
    -o) output=$2 ;;
    -MF) depfile=$2 ;;
    -include) along="$along $2" ;;
  esac
  shift
done
echo "$output" >> @ROOT@/calls
csrc=${source%%/csrc/*}/csrc
for name in $along; do included="$included $csrc/$name"; done
if [ -n "$source" ] && grep -h 'error:' "$source" $included >&2; then exit 1; fi
case "$source" in
  *.cu) echo "ptxas info    : Compiling entry function '${output##*/}' for 'sm_90'" ;;
  */blocked.cpp) exec cat @ROOT@/pipe ;;
esac
case "$source" in *.cu) echo "ptxas info    : Used 8 registers" ;; esac
case "$source" in */csrc/elementwise/cpu/*) header=$csrc/elementwise/cpu/engine.h ;; esac
[ -z "$depfile" ] || echo "$output: $source $included $csrc/core/operand.h $header" > "$depfile"
echo "$command" > "$output"
