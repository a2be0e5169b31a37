#!/bin/sh
case "$1" in
  --query-gpu=*) printf '%s\n' '{gpu}' ;;
  --query-compute-apps=*) printf '%s\n' '{processes}' ;;
esac
