#!/bin/sh
if [ "$1" = --version ]; then printf '%s\n' '{version}'; exit; fi
{trouble}
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then echo made > "$2"; fi
  shift
done
